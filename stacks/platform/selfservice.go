package platform

import (
	"fmt"
	"math"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/stacks/internal/configschema"
	"github.com/holdfast-io/holdfast/stacks/internal/selfservice"
)

// Space is a namespace for a team that keeps its tenants by itself, from a stack of its own (stacks/tenants).
type Space struct {
	Name            string              `json:"name"`
	Namespace       string              `json:"namespace"`
	CreateNamespace *bool               `json:"createNamespace"`
	Quota           corev1.ResourceList `json:"quota"`
	Team            []Subject           `json:"team"`
	// ZooKeeperConfigs lets the team manage these as well, and with them read the Secrets of its namespace.
	ZooKeeperConfigs bool                    `json:"zookeeperConfigs"`
	UseDevEtcd       bool                    `json:"useDevEtcd"`
	EtcdEndpoints    []string                `json:"etcdEndpoints"`
	Limits           components.TenantLimits `json:"limits"`
}

// Subject is somebody of a team, as RBAC knows them.
type Subject struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

const (
	maxSubjectName = 253
	maxTTLSeconds  = 86400
)

func selfServiceSchema(spec apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	bounds := func(most float64) apiextensionsv1.JSONSchemaProps {
		return *configschema.Object(nil, configschema.Properties{
			"min": configschema.Integer(1, most), "max": configschema.Integer(1, most),
		})
	}
	endpoints := spec.Properties["etcdEndpoints"]
	return configschema.List(configschema.Object([]string{"name", "team"}, configschema.Properties{
		"name":            configschema.DNSLabel(configschema.MaxTenantName),
		"namespace":       configschema.DNSLabel(configschema.MaxLabel),
		"createNamespace": configschema.Boolean(),
		"quota":           configschema.Quantities(),
		"team": configschema.SomeOf(*configschema.Object([]string{"kind", "name"}, configschema.Properties{
			"kind":      configschema.Enum(rbacv1.UserKind, rbacv1.GroupKind, rbacv1.ServiceAccountKind),
			"name":      configschema.Text(maxSubjectName),
			"namespace": configschema.DNSLabel(configschema.MaxLabel),
		})),
		"zookeeperConfigs": configschema.Boolean(),
		"useDevEtcd":       configschema.Boolean(),
		"etcdEndpoints":    endpoints,
		"limits": *configschema.Object(nil, configschema.Properties{
			"replicas":          bounds(*spec.Properties["replicas"].Maximum),
			"leaseTTLSeconds":   bounds(maxTTLSeconds),
			"leases":            bounds(math.MaxInt32),
			"acquiresPerSecond": bounds(math.MaxInt32),
			"images":            configschema.List(new(configschema.Text(configschema.MaxImageLength))),
			"etcdEndpoints":     endpoints,
		}),
	}))
}

// checkSpaces finds what no schema can, and notes the namespaces as taken.
func checkSpaces(c *Config, namespaces map[string]string) []configschema.Problem {
	var problems []configschema.Problem
	names := map[string]string{}
	for i := range c.SelfService {
		space := &c.SelfService[i]
		path := configschema.Item("selfService", i, map[string]any{"name": space.Name})
		before := len(problems)
		problems = claim(problems, names, path, "name", space.Name)
		if len(problems) == before || space.Namespace != space.Name { // one problem for one mistake
			problems = claimNamespace(problems, namespaces, path, space.Namespace, space.CreateNamespace)
		}
		for _, problem := range space.check(c) {
			problems = append(problems, configschema.Problem{Path: configschema.Field(path, problem.Field), Message: problem.Message})
		}
	}
	return problems
}

func (s *Space) check(c *Config) []components.LimitError {
	var problems []components.LimitError
	add := func(field, message string) {
		problems = append(problems, components.LimitError{Field: field, Message: message})
	}
	switch {
	case s.UseDevEtcd && len(s.EtcdEndpoints) > 0:
		add("useDevEtcd", "cannot be true together with etcdEndpoints; keep one of them")
	case s.UseDevEtcd && c.DevEtcd == nil:
		add("useDevEtcd", "is true, but the stack has no devEtcd; configure holdfast:devEtcd or give etcdEndpoints")
	}
	if s.ZooKeeperConfigs && c.ZooKeeper != nil && c.ZooKeeper.ConnectString != "" && len(c.ZooKeeper.Grants) == 0 {
		add("zookeeperConfigs", "is true, but zookeeper.grants is empty, by which the team could write the znodes of everybody "+
			"in zookeeper.connectString; give each namespace its paths in holdfast:zookeeper.grants")
	}
	checkRange := func(field string, bounds *components.Range) {
		if bounds != nil && bounds.Max > 0 && bounds.Min > bounds.Max {
			add("limits."+field, fmt.Sprintf("min %d is above max %d", bounds.Min, bounds.Max))
		}
	}
	checkRange("replicas", s.Limits.Replicas)
	checkRange("leaseTTLSeconds", s.Limits.LeaseTTLSeconds)
	checkRange("leases", s.Limits.Leases)
	checkRange("acquiresPerSecond", s.Limits.AcquiresPerSecond)
	for i, subject := range s.Team {
		if (subject.Kind == rbacv1.ServiceAccountKind) != (subject.Namespace != "") {
			add(fmt.Sprintf("team[%d].namespace", i), "is for a ServiceAccount, which needs it, and for nobody else")
		}
	}
	for i, image := range s.Limits.Images {
		if strings.Contains(strings.TrimSuffix(image, "*"), "*") || image == "*" {
			add(fmt.Sprintf("limits.images[%d]", i), fmt.Sprintf("%q is not allowed; "+
				"allowed is a whole image, or the beginning of one and \"*\", such as registry.example.com/holdfast/*", image))
		}
	}
	return problems
}

// deploySelfService makes the spaces, which are the platform's, and tells the teams' stacks of them.
func (d *deployment) deploySelfService() error {
	if len(d.config.SelfService) == 0 {
		return nil
	}
	spaces, made := map[string]selfservice.Space{}, pulumi.StringArray{}
	for i := range d.config.SelfService {
		space := &d.config.SelfService[i]
		spaces[space.Name] = selfservice.Space{
			Namespace: space.Namespace, EtcdEndpoints: space.endpoints(d.config), Quota: space.Quota, Limits: space.limits(d.config),
		}
		if !d.registered(PlatformUnit) {
			continue
		}
		component, err := components.NewTenantSpace(d.ctx, "space-"+space.Name, &components.TenantSpaceArgs{
			Tenant:            space.Name,
			Namespace:         space.Namespace,
			ExistingNamespace: space.CreateNamespace != nil && !*space.CreateNamespace,
			OperatorNamespace: d.config.Namespace,
			Quota:             space.Quota,
			Team:              space.subjects(),
			ZooKeeperConfigs:  space.ZooKeeperConfigs,
			Limits:            new(space.limits(d.config)),
		}, d.options(PlatformUnit, pulumi.DependsOn(d.before))...)
		if err != nil {
			return err
		}
		made = append(made, component.Namespace)
		d.objects = append(d.objects, component.Objects()...)
	}
	value, err := selfservice.Encode(spaces)
	if err != nil {
		return err
	}
	d.ctx.Export(selfservice.Output, made.ToStringArrayOutput().ApplyT(func([]string) any { return value }))
	return nil
}

// spaceFolders are the folders of the rendered manifests of the spaces.
func (c *Config) spaceFolders() []string {
	var folders []string
	for i := range c.SelfService {
		folders = append(folders, c.SelfService[i].Namespace)
	}
	return folders
}

// endpoints are those that the space's tenants get.
func (s *Space) endpoints(config *Config) []string {
	if s.UseDevEtcd {
		return []string{components.DevEtcdEndpoint(config.DevEtcd.Namespace)}
	}
	return s.EtcdEndpoints
}

// limits are those of the configuration. Endpoints that are given to tenants are allowed, and if none are listed they
// are the only ones.
func (s *Space) limits(config *Config) components.TenantLimits {
	limits := s.Limits
	limits.EtcdEndpoints = append(append([]string{}, s.endpoints(config)...), limits.EtcdEndpoints...)
	return limits
}

func (s *Space) subjects() []rbacv1.Subject {
	subjects := make([]rbacv1.Subject, 0, len(s.Team))
	for _, subject := range s.Team {
		full := rbacv1.Subject{Kind: subject.Kind, Name: subject.Name, Namespace: subject.Namespace}
		if subject.Kind != rbacv1.ServiceAccountKind {
			full.APIGroup = rbacv1.GroupName
		}
		subjects = append(subjects, full)
	}
	return subjects
}
