package tenants

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/stacks/internal/configschema"
)

const (
	leaseServiceCRD = "leaseservices.dist.system"
	// stackPattern is a stack as a StackReference names it. The file backend calls every organization "organization".
	stackPattern = `^[^/\s]+/[^/\s]+/[^/\s]+$`
)

// Config is the configuration of a team's stack: the keys of the namespace "holdfast:" in its Pulumi.<stack>.yaml.
type Config struct {
	// Platform is the stack of the platform, as organization/project/stack.
	Platform string `json:"platform"`
	// Space is the name of the namespace that the platform prepared, as its configuration calls it.
	Space string `json:"space"`
	// Tenants are the LeaseServices in it.
	Tenants []Tenant `json:"tenants"`
}

// Tenant is one LeaseService: its name, and every field of its spec under its own name.
type Tenant struct {
	Name string `json:"name"`

	v1alpha1.LeaseServiceSpec `json:",inline"`
}

// ConfigError lists everything that is wrong with a stack's configuration.
type ConfigError = configschema.Error

// WithConfig is a Pulumi run option that hands the stack's raw configuration to set: all of its keys, misspelt ones
// included.
func WithConfig(set func(values map[string]string, secretKeys []string)) pulumi.RunOption {
	return func(info *pulumi.RunInfo) { set(info.Config, info.ConfigSecretKeys) }
}

// ParseConfig reads the configuration from the values that Pulumi hands the program of that project: a string or, for
// whatever is not a string, JSON, by full key. Every problem that can be seen without the platform is in the one
// [ConfigError].
func ParseConfig(project string, values map[string]string, secretKeys []string) (*Config, error) {
	schema := Schema()
	tree, problems := configschema.ReadTree(schema, values, secretKeys)
	problems = append(problems, misplaced(project, values)...)
	problems = append(problems, configschema.Validate(schema, tree)...)
	data, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("encode the stack's configuration: %w", err)
	}
	config := &Config{}
	if err := json.Unmarshal(data, config); err == nil {
		problems = append(problems, duplicates(config)...)
	} else if len(problems) == 0 {
		return nil, fmt.Errorf("decode the stack's configuration: %w", err)
	}
	if len(problems) > 0 {
		return nil, &ConfigError{Problems: problems}
	}
	return config, nil
}

// Schema describes the configuration; a tenant's keys include the whole spec of a LeaseService, as its CRD has it.
func Schema() *apiextensionsv1.JSONSchemaProps {
	tenant := configschema.Properties{"name": configschema.DNSLabel(configschema.MaxTenantName)}
	maps.Copy(tenant, configschema.SpecOf(leaseServiceCRD, v1alpha1.GroupVersion.Version).Properties)
	return configschema.Object([]string{"platform", "space", "tenants"}, configschema.Properties{
		"platform": configschema.Matching(stackPattern, "allowed is organization/project/stack, such as organization/holdfast/dev"),
		"space":    configschema.DNSLabel(configschema.MaxTenantName),
		"tenants":  configschema.List(configschema.Object([]string{"name"}, tenant)),
	})
}

// misplaced finds keys that `pulumi config set` put into the project's own namespace: nobody would read them.
func misplaced(project string, values map[string]string) []configschema.Problem {
	var problems []configschema.Problem
	for _, full := range slices.Sorted(maps.Keys(values)) {
		if key, ours := strings.CutPrefix(full, project+":"); ours && project+":" != configschema.KeyPrefix {
			problems = append(problems, configschema.Problem{
				Path: key, Message: fmt.Sprintf("is set as %s, which nobody reads; set %s%s", full, configschema.KeyPrefix, key),
			})
		}
	}
	return problems
}

func duplicates(config *Config) []configschema.Problem {
	var problems []configschema.Problem
	taken := map[string]string{}
	for i := range config.Tenants {
		name := config.Tenants[i].Name
		path := itemPath(i, name)
		if other, found := taken[name]; found && name != "" {
			problems = append(problems, configschema.Problem{
				Path: configschema.Field(path, "name"), Message: fmt.Sprintf("%q is taken by %s; each needs its own", name, other),
			})
		}
		taken[name] = path
	}
	return problems
}

func itemPath(i int, name string) string {
	return configschema.Item("tenants", i, map[string]any{"name": name})
}
