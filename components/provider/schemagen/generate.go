package schemagen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/holdfast-io/holdfast/components/provider"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// Generate returns the schema of the components in JSON. The same types and comments give the same bytes.
func Generate(list []provider.Component, comments *Comments) ([]byte, error) {
	g := &generator{comments: comments, components: map[reflect.Type]bool{}, types: map[string]*objectSpec{}, of: map[string]reflect.Type{}}
	for _, component := range list {
		g.components[component.Args] = true
	}
	resources := map[string]resourceSpec{}
	for _, component := range list {
		inputs := g.object(component.Args, true)
		outputs := g.outputs(component.State)
		outputs.Description = g.comments.ofType(component.State)
		resources[component.Token()] = resourceSpec{
			objectSpec: outputs, IsComponent: true, InputProperties: inputs.Properties, RequiredInputs: inputs.Required,
		}
	}
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(g.pack(resources)); err != nil {
		return nil, fmt.Errorf("encode the schema: %w", err)
	}
	return encoded.Bytes(), errors.Join(g.errs...)
}

type generator struct {
	comments   *Comments
	components map[reflect.Type]bool // the arguments of components
	types      map[string]*objectSpec
	of         map[string]reflect.Type // whom a name of a type belongs to
	errs       []error
}

func (g *generator) pack(resources map[string]resourceSpec) packageSpec {
	return packageSpec{
		Name:        provider.Name,
		DisplayName: "Holdfast",
		Version:     provider.Version,
		Description: "Leases and locks as a service for each tenant of a Kubernetes cluster.",
		Keywords:    []string{"category/infrastructure", "kind/component", "kubernetes", "locks"},
		License:     "Apache-2.0",
		Repository:  "https://github.com/holdfast-io/holdfast",
		Language: map[string]any{
			"go": map[string]any{
				"importBasePath": "github.com/holdfast-io/holdfast/sdk/go/holdfast", "respectSchemaVersion": true,
			},
			"nodejs": map[string]any{"packageName": "@holdfast-io/holdfast", "respectSchemaVersion": true},
			"python": map[string]any{
				"packageName": "holdfast_pulumi", "respectSchemaVersion": true, "pyproject": map[string]any{"enabled": true},
			},
		},
		Types:     g.types,
		Resources: resources,
	}
}

// outputs are the fields with a tag of Pulumi's.
func (g *generator) outputs(state reflect.Type) objectSpec {
	spec := objectSpec{Properties: map[string]propertySpec{}}
	for field := range state.Fields() {
		name, tagged := field.Tag.Lookup("pulumi")
		output, ok := reflect.Zero(field.Type).Interface().(pulumi.Output)
		if !tagged || !ok {
			continue
		}
		value, _ := g.typeOf(output.ElementType(), state.Name()+"."+name)
		spec.Properties[name] = propertySpec{typeSpec: value, Description: g.comments.ofField(state, field)}
		spec.Required = append(spec.Required, name)
	}
	return spec
}

// partly reports whether a component only looks at a part of a type: then none of its fields is required.
func partly(t reflect.Type) bool { return t == reflect.TypeFor[v1alpha1.ZooKeeperConfigSpec]() }

// object describes a struct. Only what stands alone has required fields if it is a component's arguments: inside of
// others the outer component fills them in.
func (g *generator) object(t reflect.Type, alone bool) objectSpec {
	spec := objectSpec{Type: "object", Description: g.comments.ofType(t), Properties: map[string]propertySpec{}}
	for field := range t.Fields() {
		if !field.IsExported() || field.Tag.Get("json") == "-" {
			continue
		}
		if field.Anonymous {
			inner := g.object(field.Type, alone)
			for name, property := range inner.Properties {
				spec.Properties[name] = property
			}
			spec.Required = append(spec.Required, inner.Required...)
			continue
		}
		name := propertyName(field)
		value, ok := g.typeOf(field.Type, t.Name()+"."+field.Name)
		if !ok {
			continue
		}
		comment := g.comments.ofField(t, field)
		spec.Properties[name] = propertySpec{
			typeSpec: value, Description: comment, Secret: field.Type == reflect.TypeFor[map[string]pulumi.StringInput](),
		}
		if !partly(t) && (alone || !g.components[t]) && (required(field, comment) || g.needed(field.Type, value)) {
			spec.Required = append(spec.Required, name)
		}
	}
	return spec
}

func required(field reflect.StructField, comment string) bool {
	if tag, ok := field.Tag.Lookup("json"); ok {
		return !strings.Contains(tag, ",omit") && field.Type.Kind() != reflect.Pointer
	}
	return strings.Contains(comment, "; required.")
}

// needed reports whether a struct has to be given since something in it has to be.
func (g *generator) needed(t reflect.Type, value typeSpec) bool {
	described := g.types[strings.TrimPrefix(value.Ref, "#/types/")]
	return t.Kind() == reflect.Struct && described != nil && len(described.Required) > 0
}

// scalar describes the types with a JSON form of their own.
func scalar(t reflect.Type) (spec typeSpec, ok bool) {
	switch t {
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[metav1.Duration](), reflect.TypeFor[metav1.Time](),
		reflect.TypeFor[time.Duration](), reflect.TypeFor[[]byte](), reflect.TypeFor[pulumi.StringInput]():
		return typeSpec{Type: "string"}, true
	case reflect.TypeFor[intstr.IntOrString]():
		return typeSpec{OneOf: []typeSpec{{Type: "integer"}, {Type: "string"}}}, true
	case reflect.TypeFor[any]():
		return typeSpec{Ref: "pulumi.json#/Any"}, true
	default:
		return typeSpec{}, false
	}
}

// typeOf describes a type. It is not ok for resources: a program in another language gives them as resource options.
func (g *generator) typeOf(t reflect.Type, path string) (spec typeSpec, ok bool) {
	if value, known := scalar(t); known {
		return value, true
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.typeOf(t.Elem(), path)
	case reflect.Bool:
		return typeSpec{Type: "boolean"}, true
	case reflect.Int, reflect.Int32, reflect.Int64:
		return typeSpec{Type: "integer"}, true
	case reflect.Float32, reflect.Float64:
		return typeSpec{Type: "number"}, true
	case reflect.String:
		if values := g.comments.ofValues(t); len(values) > 0 {
			return g.named(t, func() objectSpec {
				return objectSpec{Type: "string", Description: g.comments.ofType(t), Enum: values}
			}), true
		}
		return typeSpec{Type: "string"}, true
	case reflect.Slice:
		item, usable := g.typeOf(t.Elem(), path)
		return typeSpec{Type: "array", Items: &item}, usable
	case reflect.Map:
		item, usable := g.typeOf(t.Elem(), path)
		return typeSpec{Type: "object", AdditionalProperties: &item}, usable
	case reflect.Struct:
		return g.named(t, func() objectSpec { return g.object(t, false) }), true
	case reflect.Interface:
		if t.Implements(reflect.TypeFor[pulumi.Resource]()) {
			return typeSpec{}, false
		}
		fallthrough
	default:
		g.errs = append(g.errs, fmt.Errorf("%s: the type %s has no form in other languages", path, t))
		return typeSpec{}, false
	}
}

// named refers to a type by name, and describes it once.
func (g *generator) named(t reflect.Type, describe func() objectSpec) typeSpec {
	name := strings.TrimSuffix(t.Name(), "Args")
	if g.components[t] {
		name += "Options" // the component itself has the name
	}
	token := provider.Name + ":index:" + name
	if owner, taken := g.of[token]; taken && owner != t {
		g.errs = append(g.errs, fmt.Errorf("%s and %s would both be called %s", owner, t, name))
	}
	if g.types[token] == nil {
		g.of[token] = t
		g.types[token] = &objectSpec{} // a type may contain itself
		*g.types[token] = describe()
	}
	return typeSpec{Ref: "#/types/" + token}
}

// propertyName is the name of a field in JSON, or else its own with a beginning in lower case: "repoURL", "deleteCRDs".
// The decoder of encoding/json finds the field by either.
func propertyName(field reflect.StructField) string {
	if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
		return name
	}
	runes := []rune(field.Name)
	for i := range runes {
		if !unicode.IsUpper(runes[i]) || (i > 0 && i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			break
		}
		runes[i] = unicode.ToLower(runes[i])
	}
	return string(runes)
}
