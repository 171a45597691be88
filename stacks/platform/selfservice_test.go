package platform_test

import (
	"fmt"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/components/render"
	"github.com/holdfast-io/holdfast/stacks/internal/selfservice"
	"github.com/holdfast-io/holdfast/stacks/platform"
)

const aSpace = `[{
	"name": "team-b", "namespace": "apps", "useDevEtcd": true, "quota": {"pods": 8},
	"team": [{"kind": "ServiceAccount", "name": "deployer", "namespace": "ci"}, {"kind": "Group", "name": "team-b"}],
	"limits": {"replicas": {"max": 3}}
}]`

const devEtcd = `{"image": "holdfast.local/etcd:dev"}`

func TestDeployPreparesSpaces(t *testing.T) {
	stack := recordStack(t, map[string]string{"devEtcd": devEtcd, "selfService": aSpace})
	binding := stack["RoleBinding space-team-b-team-rolebinding"]
	require.Equal(t, []any{
		map[string]any{"kind": "ServiceAccount", "name": "deployer", "namespace": "ci"},
		map[string]any{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "team-b"},
	}, binding.Fields["subjects"])
	require.Contains(t, stack, "ValidatingAdmissionPolicy space-team-b-limits")
	require.NotContains(t, stack, "LeaseTenant team-b", "the tenants are the team's to make")
	policy, _ := stack["NetworkPolicy dev-etcd-networkpolicy"].Fields["spec"].(map[string]any)
	require.Contains(t, fmt.Sprint(policy), "apps", "the tenants of the space reach the etcd that they get")
}

func TestZooKeeperConfigsOfASpace(t *testing.T) {
	const space = `[{"name": "a", "team": [{"kind": "Group", "name": "a"}], "zookeeperConfigs": true}]`
	for name, zookeeper := range map[string]string{
		"ensembles of its own":     `{}`,
		"grants in the operator's": `{"connectString": "zk-0:2181", "grants": [{"namespaces": ["a"], "paths": ["/a"]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			stack := recordStack(t, map[string]string{"zookeeper": zookeeper, "selfService": space})
			require.Contains(t, fmt.Sprint(stack["Role space-a-team-role"].Fields["rules"]), "zookeeperconfigs")
		})
	}
	stack := recordStack(t, map[string]string{"devEtcd": devEtcd, "selfService": aSpace})
	require.NotContains(t, fmt.Sprint(stack["Role space-team-b-team-role"].Fields["rules"]), "zookeeperconfigs", "off by default")
}

func TestDeployExportsSpaces(t *testing.T) {
	outputs := make(chan any, 1)
	deploy := program(t, map[string]string{"devEtcd": devEtcd, "selfService": aSpace})
	_, err := render.Record(func(ctx *pulumi.Context) error {
		if err := deploy(ctx); err != nil {
			return err
		}
		pulumi.All(ctx.GetCurrentExportMap()[selfservice.Output]).ApplyT(func(all []any) string {
			outputs <- all[0]
			return ""
		})
		return nil
	})
	require.NoError(t, err)
	space, err := selfservice.Decode(<-outputs, "team-b")
	require.NoError(t, err)
	require.Equal(t, "apps", space.Namespace)
	require.Equal(t, []string{"http://etcd.holdfast-etcd.svc:2379"}, space.EtcdEndpoints)
	require.Equal(t, space.EtcdEndpoints, space.Limits.EtcdEndpoints, "what tenants get is what they may name")
	require.EqualValues(t, 3, space.Limits.Replicas.Max)
	require.EqualValues(t, 8, space.Quota.Pods().Value())
}

func TestParseConfigRefusesSpaces(t *testing.T) {
	for _, tc := range []struct {
		name, spaces string
		want         []string
	}{
		{"nobody", `[{"name": "a"}]`, []string{"selfService[0] (a): team: is required"}},
		{"a ServiceAccount from nowhere", `[{"name": "a", "team": [{"kind": "ServiceAccount", "name": "x"}, {"kind": "User", "name": "y", "namespace": "z"}]}]`, []string{
			"selfService[0] (a): team[0].namespace: is for a ServiceAccount, which needs it, and for nobody else",
			"selfService[0] (a): team[1].namespace: is for a ServiceAccount, which needs it, and for nobody else",
		}},
		{"a namespace that a tenant has", `[{"name": "a", "namespace": "team-a", "team": [{"kind": "Group", "name": "a"}]}]`, []string{
			`selfService[0] (a): namespace: "team-a" is taken by tenants[0] (team-a); each needs its own`,
		}},
		{"ZooKeeperConfigs in everybody's ensemble", `[{"name": "a", "team": [{"kind": "Group", "name": "a"}], "zookeeperConfigs": true}]`, []string{
			"selfService[0] (a): zookeeperConfigs: is true, but zookeeper.grants is empty, by which the team could write the znodes of everybody " +
				"in zookeeper.connectString; give each namespace its paths in holdfast:zookeeper.grants",
		}},
		{"bounds and images", `[{"name": "a", "team": [{"kind": "Group", "name": "a"}], "useDevEtcd": true,
			"limits": {"replicas": {"min": 3, "max": 2}, "leases": {"min": 3, "max": 2}, "leaseTTLSeconds": {"max": 100000}, "images": ["*", "reg/*/x", "reg/*"]}}]`, []string{
			"selfService[0] (a): limits.leaseTTLSeconds.max: 100000 is above the maximum 86400",
			"selfService[0] (a): useDevEtcd: is true, but the stack has no devEtcd; configure holdfast:devEtcd or give etcdEndpoints",
			"selfService[0] (a): limits.replicas: min 3 is above max 2",
			"selfService[0] (a): limits.leases: min 3 is above max 2",
			`selfService[0] (a): limits.images[0]: "*" is not allowed; allowed is a whole image, or the beginning of one and "*", such as registry.example.com/holdfast/*`,
			`selfService[0] (a): limits.images[1]: "reg/*/x" is not allowed; allowed is a whole image, or the beginning of one and "*", such as registry.example.com/holdfast/*`,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := platform.ParseConfig(values(map[string]string{
				"tenants": `[{"name": "team-a"}]`, "zookeeper": `{"connectString": "zk-0:2181"}`, "selfService": tc.spaces,
			}), nil)
			var configError *platform.ConfigError
			require.ErrorAs(t, err, &configError)
			var got []string
			for _, problem := range configError.Problems {
				got = append(got, problem.String())
			}
			require.Equal(t, tc.want, got)
		})
	}
}
