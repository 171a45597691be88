package platform

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/stacks/internal/configschema"
)

const keyPrefix = "holdfast:"

// Config is the configuration of the platform stack: the keys of the namespace "holdfast:" in Pulumi.<stack>.yaml.
type Config struct {
	Ownership    string       `json:"ownership"`
	Namespace    string       `json:"namespace"`
	Operator     Operator     `json:"operator"`
	LeaseService LeaseService `json:"leaseService"`
	ZooKeeper    *ZooKeeper   `json:"zookeeper"`
	CRDs         CRDs         `json:"crds"`
	DevEtcd      *DevEtcd     `json:"devEtcd"`
	ArgoCD       *ArgoCD      `json:"argocd"`
	Tenants      []Tenant     `json:"tenants"`
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
}

// ZooKeeper configures how the operator uses ZooKeeper.
type ZooKeeper struct {
	ConnectString    string                      `json:"connectString"`
	CredentialSecret string                      `json:"credentialSecret"`
	Grants           []components.ZooKeeperGrant `json:"grants"`
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

// Tenant is one tenant: a few keys of its own, and every field of a LeaseService's spec under its own name.
type Tenant struct {
	Name            string              `json:"name"`
	Namespace       string              `json:"namespace"`
	CreateNamespace *bool               `json:"createNamespace"`
	UseDevEtcd      bool                `json:"useDevEtcd"`
	Quota           corev1.ResourceList `json:"quota"`

	v1alpha1.LeaseServiceSpec `json:",inline"`
}

// ConfigError lists everything that is wrong with a stack's configuration.
type ConfigError struct{ Problems []configschema.Problem }

// Error has a line for each problem.
func (e *ConfigError) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	lines = append(lines, fmt.Sprintf("the stack's configuration has %d problem(s):", len(e.Problems)))
	for _, problem := range e.Problems {
		lines = append(lines, "  "+keyPrefix+problem.String())
	}
	return strings.Join(lines, "\n")
}

// WithConfig is a Pulumi run option that hands the stack's raw configuration to set. It is how a program sees all of its
// keys, misspelt ones included: a Pulumi context only answers for keys that it is asked for.
func WithConfig(set func(values map[string]string, secretKeys []string)) pulumi.RunOption {
	return func(info *pulumi.RunInfo) { set(info.Config, info.ConfigSecretKeys) }
}

// ParseConfig reads the configuration from the values that Pulumi hands a program: a string or, for whatever is not a
// string, JSON, by full key. Keys of other namespaces are passed over. Every problem is in the one [ConfigError].
func ParseConfig(values map[string]string, secretKeys []string) (*Config, error) {
	schema := Schema()
	tree, problems := readTree(schema, values, secretKeys)
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

// readTree makes one tree of the values. What cannot be read is left out of it.
func readTree(
	schema *apiextensionsv1.JSONSchemaProps, values map[string]string, secretKeys []string,
) (map[string]any, []configschema.Problem) {
	tree := map[string]any{}
	var problems []configschema.Problem
	for _, full := range slices.Sorted(maps.Keys(values)) {
		key, ours := strings.CutPrefix(full, keyPrefix)
		if !ours {
			continue
		}
		if slices.Contains(secretKeys, full) {
			problems = append(problems, configschema.Problem{Path: key, Message: "holds an encrypted value, but nothing " +
				"here is secret and all of it is shown in plain text: put the secret into a Kubernetes Secret"})
			continue
		}
		value := any(values[full])
		if property, known := schema.Properties[key]; known && property.Type != "string" {
			var decoded any
			if err := utiljson.Unmarshal([]byte(values[full]), &decoded); err == nil {
				value = decoded
			}
		}
		tree[key] = value
	}
	return tree, problems
}

func (c *Config) setDefaults() {
	for i := range c.Tenants {
		tenant := &c.Tenants[i]
		if tenant.Namespace == "" {
			tenant.Namespace = tenant.Name
		}
		if tenant.Replicas == 0 {
			tenant.Replicas = 1
		}
		if tenant.LeaseTTLSeconds == 0 {
			tenant.LeaseTTLSeconds = v1alpha1.DefaultLeaseTTLSeconds
		}
	}
	if c.DevEtcd != nil && c.DevEtcd.Namespace == "" {
		c.DevEtcd.Namespace = components.DefaultDevEtcdNamespace
	}
}
