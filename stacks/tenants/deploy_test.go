package tenants_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/stacks/tenants"
)

// aSpace is the platform's output selfService, as its stack exports it.
const aSpace = `{"team-b": {
	"namespace": "apps", "etcdEndpoints": ["https://etcd:2379"], "quota": {"pods": "4", "limits.memory": "1Gi", "count/leaseservices.dist.system": "2"},
	"limits": {"replicas": {"max": 3}, "leaseTTLSeconds": {"min": 5}, "etcdEndpoints": ["https://etcd:2379"]}
}, "team-c": {"namespace": "team-c", "limits": {}}}`

// engine has the platform's outputs, and records what is registered.
type engine struct {
	outputs resource.PropertyMap

	mu       sync.Mutex
	services map[string]map[string]any // the specs of LeaseServices by namespace/name
	others   []string
}

func (e *engine) NewResource(args pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case args.TypeToken == "pulumi:pulumi:StackReference":
		return args.Name, resource.PropertyMap{"name": args.Inputs["name"], "outputs": resource.NewProperty(e.outputs)}, nil
	case strings.HasSuffix(args.TypeToken, ":LeaseService"):
		object := args.Inputs.Mappable()
		metadata, _ := object["metadata"].(map[string]any)
		spec, _ := object["spec"].(map[string]any)
		e.services[metadata["namespace"].(string)+"/"+metadata["name"].(string)] = spec
	case args.Custom:
		e.others = append(e.others, args.TypeToken)
	}
	return args.Name + "-id", args.Inputs, nil
}

func (e *engine) Call(pulumi.MockCallArgs) (resource.PropertyMap, error) { return nil, nil }

// deploy runs the program against a platform with that output; an empty one has none.
func deploy(t *testing.T, output string, changes map[string]string) (*engine, error) {
	t.Helper()
	config, err := tenants.ParseConfig(project, values(changes), nil)
	require.NoError(t, err)
	e := &engine{outputs: resource.PropertyMap{}, services: map[string]map[string]any{}}
	if output != "" {
		var value map[string]any
		require.NoError(t, json.Unmarshal([]byte(output), &value))
		e.outputs["selfService"] = resource.NewProperty(resource.NewPropertyMapFromMap(value))
	}
	err = pulumi.RunErr(func(ctx *pulumi.Context) error { return tenants.Deploy(ctx, config) }, pulumi.WithMocks(project, "dev", e))
	return e, err
}

func TestDeployTakesFromThePlatformWhatTheTenantLeavesOut(t *testing.T) {
	e, err := deploy(t, aSpace, map[string]string{"holdfast:tenants": `[
		{"name": "orders", "replicas": 3, "resources": {"limits": {"memory": "64Mi"}}},
		{"name": "alone", "storage": {"size": "1Gi"}, "resources": {"limits": {"memory": "64Mi"}}}
	]`})
	require.NoError(t, err)
	require.Empty(t, e.others, "a team's stack makes custom resources, and nothing else")
	require.Len(t, e.services, 2)
	require.Equal(t, []any{"https://etcd:2379"}, e.services["apps/orders"]["etcdEndpoints"])
	require.InDelta(t, 3, e.services["apps/orders"]["replicas"], 0)
	require.NotContains(t, e.services["apps/alone"], "etcdEndpoints", "who asks for a volume wants an etcd of its own")
}

func TestDeployRefusesWhatThePlatformDoesNotAllow(t *testing.T) {
	const memory = `"resources": {"limits": {"memory": "64Mi"}}`
	for _, tc := range []struct {
		name, tenants string
		want          []string
	}{
		{"outside of the ranges", `[{"name": "a", "replicas": 4, "leaseTTLSeconds": 4, ` + memory + `}]`, []string{
			"tenants[0] (a): replicas: 4 is above 3, the most that the platform allows",
			"tenants[0] (a): leaseTTLSeconds: 4 is below 5, the least that the platform allows",
		}},
		{"another etcd and image", `[{"name": "a", "image": "mine:1", "etcdEndpoints": ["http://mine:1"], ` + memory + `}]`, []string{
			`tenants[0] (a): image: "mine:1" is not allowed; leave it out, for the platform's own`,
			`tenants[0] (a): etcdEndpoints[0]: "http://mine:1" is not allowed; allowed: https://etcd:2379`,
		}},
		{"more than the quota holds", `[{"name": "a", "replicas": 3, ` + memory + `}, {"name": "b", "replicas": 2, ` + memory + `}]`, []string{
			"tenants: are 5 pods together, but the quota of the namespace apps is 4",
		}},
		{"too many", `[{"name": "a", ` + memory + `}, {"name": "b", ` + memory + `}, {"name": "c", ` + memory + `}]`, []string{
			"tenants: are 3 LeaseServices together, but the quota of the namespace apps is 2",
		}},
		{"what the quota counts is not declared", `[{"name": "a"}]`, []string{
			"tenants[0] (a): resources: must set limits.memory, which the platform's quota counts: pods without it are refused",
		}},
		{"a volume that nobody uses", `[{"name": "a", "etcdEndpoints": ["https://etcd:2379"], "storage": {"size": "1Gi"}, ` + memory + `}]`, []string{
			"tenants[0] (a): storage: is the volume of a replica's own etcd; leave it out, since the tenant uses another etcd",
		}},
		{"replicas that share nothing", `[{"name": "a", "replicas": 2, "storage": {"size": "1Gi"}, ` + memory + `}]`, []string{
			"tenants[0] (a): etcdEndpoints: is missing, but 2 replicas need an etcd they share; only 1 replica may run an etcd of its own",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, err := deploy(t, aSpace, map[string]string{"holdfast:tenants": tc.tenants})
			require.Equal(t, tc.want, problems(t, err))
			require.Empty(t, e.services, "nothing is touched before all of it is right")
		})
	}
}

func TestDeployNamesTheSpacesThatThereAre(t *testing.T) {
	_, err := deploy(t, aSpace, map[string]string{"holdfast:space": "team-d"})
	require.Equal(t, []string{`space: "team-d" is no space of the platform; there are: team-b, team-c`}, problems(t, err))
	_, err = deploy(t, "", nil)
	require.Equal(t, []string{`space: "team-b" is no space of the platform, which has none: its owner adds one to holdfast:selfService`}, problems(t, err))
}
