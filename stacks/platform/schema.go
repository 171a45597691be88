package platform

import (
	"encoding/json"
	"maps"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/holdfast-io/holdfast/crds"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// OwnershipPulumi is the owner of a stack's objects that "ownership" may name.
const OwnershipPulumi = "pulumi"

const (
	dnsLabelPattern = `^[a-z]([-a-z0-9]*[a-z0-9])?$`
	dnsLabelAllowed = "allowed are lower case letters, digits and '-', beginning with a letter and not ending in '-'"
	quantityPattern = `^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$`
	// zooKeeperServers is the beginning of an expression.
	zooKeeperServers = `^[^\s,/]+(,[^\s,/]+)*`
	zooKeeperPath    = `(/[^\s/]+)+`
	// maxTenantName is the longest name that a LeaseService may have.
	maxTenantName   = 52
	maxLabel        = 63
	maxReplicas     = 9
	maxReconciles   = 64
	maxImageLength  = 512
	leaseServiceCRD = "leaseservices.dist.system"
)

// Schema describes the configuration; a tenant's keys include the whole spec of a LeaseService, bounds and all, as its
// CRD has it.
func Schema() *apiextensionsv1.JSONSchemaProps {
	spec := leaseServiceSpecSchema()
	resources := spec.Properties["resources"]
	return object([]string{"operator", "leaseService"}, props{
		"ownership": enum(OwnershipPulumi),
		"namespace": dnsLabel(maxLabel),
		"operator": *object([]string{"image"}, props{
			"image":     text(maxImageLength),
			"replicas":  integer(1, maxReplicas),
			"resources": resources,
			"logLevel":  enum("debug", "info", "warn", "error"),
		}),
		"leaseService": *object([]string{"image"}, props{
			"image":                   text(maxImageLength),
			"maxConcurrentReconciles": integer(1, maxReconciles),
		}),
		"zookeeper": *zooKeeperSchema(),
		"crds":      *object(nil, props{"retainOnDelete": boolean()}),
		"devEtcd": *object([]string{"image"}, props{
			"image":            text(maxImageLength),
			"namespace":        dnsLabel(maxLabel),
			"storage":          quantity(),
			"storageClassName": text(maxLabel),
			"resources":        resources,
		}),
		"argocd": *object([]string{"repoURL", "path"}, props{
			"name":                 dnsLabel(maxLabel),
			"namespace":            dnsLabel(maxLabel),
			"project":              text(maxLabel),
			"repoURL":              text(maxImageLength),
			"path":                 text(maxImageLength),
			"targetRevision":       text(maxImageLength),
			"destinationNamespace": dnsLabel(maxLabel),
		}),
		"tenants": list(tenantSchema(spec)),
	})
}

// zooKeeperSchema refuses what the operator would not start with.
func zooKeeperSchema() *apiextensionsv1.JSONSchemaProps {
	return object(nil, props{
		"connectString":    matching(zooKeeperServers+zooKeeperPath+"?$", "allowed are servers and a chroot, such as zk-0:2181,zk-1:2181/apps"),
		"credentialSecret": dnsLabel(maxLabel),
		"grants": list(object([]string{"namespaces", "paths"}, props{
			"namespaces": someOf(matching(`^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$`, `allowed is the name of a namespace, or "*" for every one`)),
			"ensembles":  list(new(matching(zooKeeperServers+"$", "allowed are servers without a chroot, such as zk-0:2181,zk-1:2181"))),
			"paths":      someOf(matching("^(/|"+zooKeeperPath+")$", `allowed is an absolute path without a "/" at the end, or "/" for all`)),
		})),
	})
}

func tenantSchema(spec apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	all := props{}
	maps.Copy(all, spec.Properties)
	maps.Copy(all, props{
		"name":            dnsLabel(maxTenantName),
		"namespace":       dnsLabel(maxLabel),
		"createNamespace": boolean(),
		"useDevEtcd":      boolean(),
		"quota":           quantities(),
	})
	return object([]string{"name"}, all)
}

// leaseServiceSpecSchema is empty when there is no such CRD, which a test excludes.
func leaseServiceSpecSchema() apiextensionsv1.JSONSchemaProps {
	for _, crd := range crds.All() {
		if crd.Name != leaseServiceCRD {
			continue
		}
		for _, version := range crd.Spec.Versions {
			if version.Name == v1alpha1.GroupVersion.Version && version.Schema != nil {
				return version.Schema.OpenAPIV3Schema.Properties["spec"]
			}
		}
	}
	return apiextensionsv1.JSONSchemaProps{}
}

type props = map[string]apiextensionsv1.JSONSchemaProps

func object(required []string, properties props) *apiextensionsv1.JSONSchemaProps {
	return &apiextensionsv1.JSONSchemaProps{Type: "object", Required: required, Properties: properties}
}

func list(item *apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{
		Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: item},
	}
}

// someOf is a list that must not be empty.
func someOf(item apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	items := list(&item)
	items.MinItems = new(int64(1))
	return items
}

func text(maxLength int64) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "string", MinLength: new(int64(1)), MaxLength: new(maxLength)}
}

func dnsLabel(maxLength int64) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{
		Type: "string", MaxLength: new(maxLength), Pattern: dnsLabelPattern, Description: dnsLabelAllowed,
	}
}

func matching(pattern, allowed string) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "string", Pattern: pattern, Description: allowed}
}

func integer(least, most float64) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "integer", Minimum: new(least), Maximum: new(most)}
}

func boolean() apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "boolean"}
}

func quantity() apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{XIntOrString: true, Pattern: quantityPattern}
}

func quantities() apiextensionsv1.JSONSchemaProps {
	value := quantity()
	return apiextensionsv1.JSONSchemaProps{
		Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &value},
	}
}

func enum(values ...string) apiextensionsv1.JSONSchemaProps {
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
