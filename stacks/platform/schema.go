package platform

import (
	"maps"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/stacks/internal/configschema"
)

// The owners of objects that "ownership" may name.
const (
	// OwnershipPulumi has the objects in the stack's state.
	OwnershipPulumi = "pulumi"
	// OwnershipGitOps has them in Git; the stack holds what makes Argo CD or Flux keep them.
	OwnershipGitOps = "gitops"
)

const (
	// zooKeeperServers is the beginning of an expression.
	zooKeeperServers = `^[^\s,/]+(,[^\s,/]+)*`
	zooKeeperPath    = `(/[^\s/]+)+`
	maxZnodePath     = 1024
	maxConnectString = 2 * maxZnodePath
	maxServerName    = 253
	maxReplicas      = 9
	maxReconciles    = 64
	leaseServiceCRD  = "leaseservices.dist.system"
)

// Schema describes the configuration; a tenant's keys include the whole spec of a LeaseService, bounds and all, as its
// CRD has it.
func Schema() *apiextensionsv1.JSONSchemaProps {
	spec := configschema.SpecOf(leaseServiceCRD, v1alpha1.GroupVersion.Version)
	resources := spec.Properties["resources"]
	return configschema.Object([]string{"operator", "leaseService"}, configschema.Properties{
		"ownership": configschema.Enum(OwnershipPulumi, OwnershipGitOps),
		"gitops":    *gitOpsSchema(),
		"namespace": configschema.DNSLabel(configschema.MaxLabel),
		"operator": *configschema.Object([]string{"image"}, configschema.Properties{
			"image":     configschema.Text(configschema.MaxImageLength),
			"replicas":  configschema.Integer(1, maxReplicas),
			"resources": resources,
			"logLevel":  configschema.Enum("debug", "info", "warn", "error"),
		}),
		"leaseService": *configschema.Object([]string{"image"}, configschema.Properties{
			"image":                   configschema.Text(configschema.MaxImageLength),
			"maxConcurrentReconciles": configschema.Integer(1, maxReconciles),
			"tls": *configschema.Object(nil, configschema.Properties{
				"enabled":             configschema.Boolean(),
				"certificateLifetime": configschema.Matching(`^[1-9][0-9]*h$`, "allowed are whole hours, such as 2160h"),
			}),
			"provisionEtcd":   configschema.Boolean(),
			"operatorChanges": configschema.Enum("Approve", "Automatic"),
		}),
		"zookeeper": *zooKeeperSchema(),
		"releaseGuard": *configschema.Object(nil, configschema.Properties{
			"namespaces": configschema.SomeOf(configschema.DNSLabel(configschema.MaxLabel)),
			"prometheus": configschema.List(new(configschema.Matching(`^https?://[^\s@]+$`, "allowed are URLs such as http://prometheus.monitoring:9090, without a user"))),
		}),
		"crds": *configschema.Object(nil, configschema.Properties{"retainOnDelete": configschema.Boolean()}),
		"devEtcd": *configschema.Object([]string{"image"}, configschema.Properties{
			"image":            configschema.Text(configschema.MaxImageLength),
			"namespace":        configschema.DNSLabel(configschema.MaxLabel),
			"storage":          configschema.Quantity(),
			"storageClassName": configschema.Text(configschema.MaxLabel),
			"resources":        resources,
		}),
		"argocd": *configschema.Object([]string{"repoURL", "path"}, configschema.Properties{
			"name":                 configschema.DNSLabel(configschema.MaxLabel),
			"namespace":            configschema.DNSLabel(configschema.MaxLabel),
			"project":              configschema.Text(configschema.MaxLabel),
			"repoURL":              configschema.Text(configschema.MaxImageLength),
			"path":                 configschema.Text(configschema.MaxImageLength),
			"targetRevision":       configschema.Text(configschema.MaxImageLength),
			"destinationNamespace": configschema.DNSLabel(configschema.MaxLabel),
		}),
		"tenants":     configschema.List(tenantSchema(spec)),
		"selfService": selfServiceSchema(spec),
	})
}

func gitOpsSchema() *apiextensionsv1.JSONSchemaProps {
	path := configschema.Text(configschema.MaxImageLength)
	path.XValidations = apiextensionsv1.ValidationRules{
		{Rule: "!self.matches('(^|/)[.][.](/|$)')", Message: `allowed is a path in the repository without ".."`},
	}
	return configschema.Object([]string{"flavour", "repoURL", "path"}, configschema.Properties{
		"flavour":                configschema.Enum(string(components.GitOpsArgoCD), string(components.GitOpsFlux)),
		"namespace":              configschema.DNSLabel(configschema.MaxLabel),
		"repoURL":                configschema.Text(configschema.MaxImageLength),
		"path":                   path,
		"revision":               configschema.Text(configschema.MaxImageLength),
		"secretName":             configschema.DNSLabel(configschema.MaxLabel),
		"cascade":                configschema.Boolean(),
		"await":                  configschema.Boolean(),
		"installHealth":          configschema.Boolean(),
		"revisionManagedByGuard": configschema.Boolean(),
	})
}

// zooKeeperSchema refuses what the operator would not start with.
func zooKeeperSchema() *apiextensionsv1.JSONSchemaProps {
	namespace := configschema.Matching(`^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$`, `allowed is the name of a namespace, or "*" for every one`)
	namespace.MaxLength = new(int64(configschema.MaxLabel))
	return configschema.Object(nil, configschema.Properties{
		"connectString":    znodes(maxConnectString, zooKeeperServers+"("+zooKeeperPath+")?$", "allowed are servers and a chroot, such as zk-0:2181,zk-1:2181/apps"),
		"credentialSecret": configschema.DNSLabel(configschema.MaxLabel),
		"tls": *configschema.Object(nil, configschema.Properties{
			"enabled":    configschema.Boolean(),
			"secret":     configschema.DNSLabel(configschema.MaxLabel),
			"serverName": configschema.Text(maxServerName),
		}),
		"grants": configschema.List(configschema.Object([]string{"namespaces", "paths"}, configschema.Properties{
			"namespaces": configschema.SomeOf(namespace),
			"ensembles":  configschema.List(new(configschema.Matching(zooKeeperServers+"$", "allowed are servers without a chroot, such as zk-0:2181,zk-1:2181"))),
			"paths":      configschema.SomeOf(znodes(maxZnodePath, "^(/|"+zooKeeperPath+")$", `allowed is an absolute path without a "/" at the end, or "/" for all`)),
		})),
	})
}

// znodes is a path of ZooKeeper's, or a string that ends in one.
func znodes(maxLength int64, pattern, allowed string) apiextensionsv1.JSONSchemaProps {
	schema := configschema.Matching(pattern, allowed)
	schema.MaxLength = new(maxLength)
	schema.XValidations = apiextensionsv1.ValidationRules{
		{Rule: "!self.matches('/[.][.]?(/|$)')", Message: `a path has no part "." or ".."`},
		{Rule: "!self.matches('^[^/]*/zookeeper(/|$)')", Message: "/zookeeper and what is below it ZooKeeper keeps for itself"},
		{Rule: "!self.matches('[\u0000-\u001f\u007f-\u009f\ue000-\uf8ff\ufff0-\uffff]')", Message: "a path has no character that ZooKeeper refuses: control characters and those of private use"},
	}
	return schema
}

func tenantSchema(spec apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	all := configschema.Properties{}
	maps.Copy(all, spec.Properties)
	maps.Copy(all, configschema.Properties{
		"name":            configschema.DNSLabel(configschema.MaxTenantName),
		"namespace":       configschema.DNSLabel(configschema.MaxLabel),
		"createNamespace": configschema.Boolean(),
		"ownership":       configschema.Enum(OwnershipPulumi, OwnershipGitOps),
		"autoscaled":      configschema.Boolean(),
		"useDevEtcd":      configschema.Boolean(),
		"quota":           configschema.Quantities(),
	})
	return configschema.Object([]string{"name"}, all)
}
