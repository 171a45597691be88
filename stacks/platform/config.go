package platform

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/stacks/internal/configschema"
)

// Config is the configuration of the platform stack: the keys of the namespace "holdfast:" in Pulumi.<stack>.yaml.
type Config struct {
	// Ownership is who owns the objects, of those tenants too that do not say it themselves.
	Ownership    string       `json:"ownership"`
	GitOps       *GitOps      `json:"gitops"`
	Namespace    string       `json:"namespace"`
	Operator     Operator     `json:"operator"`
	LeaseService LeaseService `json:"leaseService"`
	ZooKeeper    *ZooKeeper   `json:"zookeeper"`
	// ReleaseGuard lets the operator serve ReleaseGuards; nil: it does not.
	ReleaseGuard *components.ReleaseGuardOperatorArgs `json:"releaseGuard"`
	CRDs         CRDs                                 `json:"crds"`
	DevEtcd      *DevEtcd                             `json:"devEtcd"`
	ArgoCD       *ArgoCD                              `json:"argocd"`
	Tenants      []Tenant                             `json:"tenants"`
	SelfService  []Space                              `json:"selfService"`
}

// Operator configures the operator's Deployment.
type Operator struct {
	Image     string                      `json:"image"`
	Replicas  int32                       `json:"replicas"`
	Resources corev1.ResourceRequirements `json:"resources"`
	LogLevel  string                      `json:"logLevel"`
}

// LeaseService configures how the operator serves LeaseServices.
type LeaseService struct {
	// Image of a LeaseService that names none.
	Image                   string `json:"image"`
	MaxConcurrentReconciles int    `json:"maxConcurrentReconciles"`
	// TLS of a LeaseService that says nothing of it.
	TLS LeaseServiceTLS `json:"tls"`
	// ProvisionEtcd: the operator keeps a user of etcd for each LeaseService.
	ProvisionEtcd bool `json:"provisionEtcd"`
	// OperatorChanges is when pods are replaced because another operator makes them otherwise.
	OperatorChanges string `json:"operatorChanges"`
}

// LeaseServiceTLS says whether and how the operator issues certificates.
type LeaseServiceTLS struct {
	// Enabled; nil means true.
	Enabled             *bool  `json:"enabled"`
	CertificateLifetime string `json:"certificateLifetime"`
}

// ZooKeeper configures how the operator uses ZooKeeper.
type ZooKeeper struct {
	ConnectString    string                          `json:"connectString"`
	CredentialSecret string                          `json:"credentialSecret"`
	TLS              components.ZooKeeperOperatorTLS `json:"tls"`
	Grants           []components.ZooKeeperGrant     `json:"grants"`
}

// CRDs says what becomes of the CRDs on destroy.
type CRDs struct {
	// RetainOnDelete keeps them; nil means true.
	RetainOnDelete *bool `json:"retainOnDelete"`
}

// DevEtcd asks for an etcd for development.
type DevEtcd struct {
	Image            string                      `json:"image"`
	Namespace        string                      `json:"namespace"`
	Storage          resource.Quantity           `json:"storage"`
	StorageClassName string                      `json:"storageClassName"`
	Resources        corev1.ResourceRequirements `json:"resources"`
}

// ArgoCD asks for an Argo CD Application.
type ArgoCD struct {
	Name                 string `json:"name"`
	Namespace            string `json:"namespace"`
	Project              string `json:"project"`
	RepoURL              string `json:"repoURL"`
	Path                 string `json:"path"`
	TargetRevision       string `json:"targetRevision"`
	DestinationNamespace string `json:"destinationNamespace"`
}

// GitOps says where the objects are kept whose owner is GitOps.
type GitOps struct {
	Flavour   components.GitOpsFlavour `json:"flavour"`
	Namespace string                   `json:"namespace"`
	RepoURL   string                   `json:"repoURL"`
	// Path of the rendered manifests in the repository.
	Path       string `json:"path"`
	Revision   string `json:"revision"`
	SecretName string `json:"secretName"`
	// Cascade lets objects go from the cluster with their Application or Kustomization.
	Cascade bool `json:"cascade"`
	// Await lets an update wait until Git is in effect; nil means true.
	Await *bool `json:"await"`
	// InstallHealth teaches Argo CD the health of the kinds.
	InstallHealth bool `json:"installHealth"`
	// RevisionManagedByGuard leaves the revision of Applications to a ReleaseGuard.
	RevisionManagedByGuard bool `json:"revisionManagedByGuard"`
}

// Tenant is one tenant: a few keys of its own, and every field of a LeaseService's spec under its own name.
type Tenant struct {
	Name            string              `json:"name"`
	Namespace       string              `json:"namespace"`
	CreateNamespace *bool               `json:"createNamespace"`
	Ownership       string              `json:"ownership"`
	Autoscaled      bool                `json:"autoscaled"`
	UseDevEtcd      bool                `json:"useDevEtcd"`
	Quota           corev1.ResourceList `json:"quota"`

	v1alpha1.LeaseServiceSpec `json:",inline"`

	// pinned says that the tenant names its owner itself.
	pinned bool
}

// ConfigError lists everything that is wrong with a stack's configuration.
type ConfigError = configschema.Error

// WithConfig is a Pulumi run option that hands the stack's raw configuration to set. It is how a program sees all of its
// keys, misspelt ones included: a Pulumi context only answers for keys that it is asked for.
func WithConfig(set func(values map[string]string, secretKeys []string)) pulumi.RunOption {
	return func(info *pulumi.RunInfo) { set(info.Config, info.ConfigSecretKeys) }
}

// ParseConfig reads the configuration from the values that Pulumi hands a program: a string or, for whatever is not a
// string, JSON, by full key. Keys of other namespaces are passed over. Every problem is in the one [ConfigError].
func ParseConfig(values map[string]string, secretKeys []string) (*Config, error) {
	schema := Schema()
	tree, problems := configschema.ReadTree(schema, values, secretKeys)
	problems = append(problems, configschema.Validate(schema, tree)...)
	config, err := decode(tree)
	if err == nil {
		problems = append(problems, crossChecks(config)...)
	}
	if len(problems) > 0 {
		return nil, &ConfigError{Problems: problems}
	}
	return config, err
}

func decode(tree map[string]any) (*Config, error) {
	data, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("encode the stack's configuration: %w", err)
	}
	config := &Config{Ownership: OwnershipPulumi, Namespace: components.DefaultNamespace}
	if err := json.Unmarshal(data, config); err != nil {
		return nil, fmt.Errorf("decode the stack's configuration: %w", err)
	}
	config.setDefaults()
	return config, nil
}

func (c *Config) setDefaults() {
	for i := range c.Tenants {
		tenant := &c.Tenants[i]
		if tenant.Namespace == "" {
			tenant.Namespace = tenant.Name
		}
		tenant.pinned = tenant.Ownership != ""
		if !tenant.pinned {
			tenant.Ownership = c.Ownership
		}
		if tenant.Replicas == 0 && !tenant.Autoscaled {
			tenant.Replicas = 1
		}
		if tenant.LeaseTTLSeconds == 0 {
			tenant.LeaseTTLSeconds = v1alpha1.DefaultLeaseTTLSeconds
		}
	}
	for i := range c.SelfService {
		if space := &c.SelfService[i]; space.Namespace == "" {
			space.Namespace = space.Name
		}
	}
	if c.DevEtcd != nil && c.DevEtcd.Namespace == "" {
		c.DevEtcd.Namespace = components.DefaultDevEtcdNamespace
	}
	if c.GitOps != nil {
		c.GitOps.setDefaults()
	}
	if c.ReleaseGuard != nil && len(c.ReleaseGuard.Namespaces) == 0 {
		c.ReleaseGuard.Namespaces = []string{defaultArgoCDNamespace}
	}
}

func (g *GitOps) setDefaults() {
	// Written in one way, since it is compared with the folders that Argo CD and Flux say they keep.
	g.Path = path.Clean(strings.Trim(g.Path, "/"))
	if g.Revision == "" {
		g.Revision = defaultRevision
	}
	if g.Namespace == "" {
		g.Namespace = map[components.GitOpsFlavour]string{
			components.GitOpsArgoCD: defaultArgoCDNamespace, components.GitOpsFlux: "flux-system",
		}[g.Flavour]
	}
}

const (
	defaultRevision        = "main"
	defaultArgoCDNamespace = "argocd"
)
