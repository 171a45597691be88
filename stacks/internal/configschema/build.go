package configschema

import (
	"encoding/json"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/holdfast-io/holdfast/crds"
)

// Limits of the texts that many keys share.
const (
	MaxLabel       = 63
	MaxTenantName  = 52 // the longest name that a LeaseService may have
	MaxImageLength = 512
)

const (
	dnsLabelPattern = `^[a-z]([-a-z0-9]*[a-z0-9])?$`
	dnsLabelAllowed = "allowed are lower case letters, digits and '-', beginning with a letter and not ending in '-'"
	quantityPattern = `^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$`
)

// Properties are the keys of an object.
type Properties = map[string]apiextensionsv1.JSONSchemaProps

// Object is an object with those keys and no others.
func Object(required []string, properties Properties) *apiextensionsv1.JSONSchemaProps {
	return &apiextensionsv1.JSONSchemaProps{Type: "object", Required: required, Properties: properties}
}

// List is a list of items.
func List(item *apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{
		Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: item},
	}
}

// SomeOf is a list that must not be empty.
func SomeOf(item apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	items := List(&item)
	items.MinItems = new(int64(1))
	return items
}

// Text is a string of one character or more.
func Text(maxLength int64) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "string", MinLength: new(int64(1)), MaxLength: new(maxLength)}
}

// DNSLabel is a name of a kind that Kubernetes allows everywhere.
func DNSLabel(maxLength int64) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{
		Type: "string", MaxLength: new(maxLength), Pattern: dnsLabelPattern, Description: dnsLabelAllowed,
	}
}

// Matching is a string that matches the pattern; allowed says in words what does.
func Matching(pattern, allowed string) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "string", Pattern: pattern, Description: allowed}
}

// Integer is a whole number in a range.
func Integer(least, most float64) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "integer", Minimum: new(least), Maximum: new(most)}
}

// Boolean is true or false.
func Boolean() apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "boolean"}
}

// Quantity is an amount as Kubernetes writes it, such as 64Mi.
func Quantity() apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{XIntOrString: true, Pattern: quantityPattern}
}

// Quantities are amounts by resource.
func Quantities() apiextensionsv1.JSONSchemaProps {
	value := Quantity()
	return apiextensionsv1.JSONSchemaProps{
		Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &value},
	}
}

// Enum is one of the values.
func Enum(values ...string) apiextensionsv1.JSONSchemaProps {
	schema := apiextensionsv1.JSONSchemaProps{Type: "string"}
	for _, value := range values {
		raw, err := json.Marshal(value)
		if err != nil {
			continue // a string always has a JSON form
		}
		schema.Enum = append(schema.Enum, apiextensionsv1.JSON{Raw: raw})
	}
	return schema
}

// SpecOf is the schema of the spec of a custom resource, by the name of its CRD and the version. It is empty when there
// is none.
func SpecOf(crdName, version string) apiextensionsv1.JSONSchemaProps {
	for _, crd := range crds.All() {
		if crd.Name != crdName {
			continue
		}
		for _, v := range crd.Spec.Versions {
			if v.Name == version && v.Schema != nil {
				return v.Schema.OpenAPIV3Schema.Properties["spec"]
			}
		}
	}
	return apiextensionsv1.JSONSchemaProps{}
}
