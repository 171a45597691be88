package components_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

func TestLimitsNameTheFieldAndWhatIsAllowed(t *testing.T) {
	limits := components.TenantLimits{
		Replicas:        &components.Range{Min: 2, Max: 3},
		LeaseTTLSeconds: &components.Range{Max: 30},
		Images:          []string{"registry.example.com/holdfast/*", "other:1"},
		EtcdEndpoints:   []string{"https://etcd:2379"},
		Leases:          &components.Range{Max: 1000}, AcquiresPerSecond: &components.Range{Min: 5, Max: 50},
	}
	for _, tc := range []struct {
		name string
		spec v1alpha1.LeaseServiceSpec
		want []string
	}{
		{
			"all within",
			v1alpha1.LeaseServiceSpec{
				Replicas: 3, LeaseTTLSeconds: 30, Image: "registry.example.com/holdfast/lease-service:v2",
				EtcdEndpoints: []string{"https://etcd:2379"}, Etcd: &v1alpha1.LeaseServiceEtcd{Prefix: "/holdfast/apps/locks/"},
				Limits: &v1alpha1.LeaseServiceLimits{Leases: 1000, AcquiresPerSecond: 5},
			},
			nil,
		},
		{
			"the API's defaults count",
			v1alpha1.LeaseServiceSpec{},
			[]string{
				"replicas: 1 is below 2, the least that the platform allows",
				"leaseTTLSeconds: 60 is above 30, the most that the platform allows",
				"limits.leases: is not given, which is no limit; at most 1000 is allowed",
				"limits.acquiresPerSecond: is not given, which is no limit; at most 50 is allowed",
			},
		},
		{
			"everything else",
			v1alpha1.LeaseServiceSpec{
				Replicas: 4, LeaseTTLSeconds: 1, Image: "registry.example.com/holdfast", EtcdEndpoints: []string{"https://etcd:2379", "http://mine:1"},
				Etcd:   &v1alpha1.LeaseServiceEtcd{Prefix: "/holdfast/apps-2/"},
				Limits: &v1alpha1.LeaseServiceLimits{Leases: 1001, AcquiresPerSecond: 4},
				Scheduling: &v1alpha1.LeaseServiceScheduling{
					PriorityClassName: "system-node-critical", Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				},
			},
			[]string{
				"replicas: 4 is above 3, the most that the platform allows",
				"limits.leases: 1001 is above 1000, the most that the platform allows",
				"limits.acquiresPerSecond: 4 is below 5, the least that the platform allows",
				`image: "registry.example.com/holdfast" is not allowed; allowed: registry.example.com/holdfast/*, other:1`,
				`etcdEndpoints[1]: "http://mine:1" is not allowed; allowed: https://etcd:2379`,
				`etcd.prefix: "/holdfast/apps-2/" is not allowed; it must begin with /holdfast/apps/`,
				`scheduling.priorityClassName: "system-node-critical" is not allowed; leave it out`,
				"scheduling.tolerations: are not allowed; leave it out",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, problem := range limits.Check("apps", &tc.spec) {
				got = append(got, problem.Error())
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestNoLimitsStillKeepTheImageAndTheKeys(t *testing.T) {
	spec := v1alpha1.LeaseServiceSpec{Replicas: 100, EtcdEndpoints: []string{"http://any:1"}}
	require.Empty(t, components.TenantLimits{}.Check("apps", &spec))
	spec.Image = "mine:1"
	spec.Etcd = &v1alpha1.LeaseServiceEtcd{Prefix: "/holdfast/other/"}
	problems := components.TenantLimits{}.Check("apps", &spec)
	require.Len(t, problems, 2)
	require.EqualError(t, problems[0], `image: "mine:1" is not allowed; leave it out, for the platform's own`)
}

func TestTenantSpaceForATeam(t *testing.T) {
	team := []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "team-a"}}
	s := recordSpace(t, components.TenantSpaceArgs{
		Tenant: "team-a", Namespace: "apps", Team: team, Limits: &components.TenantLimits{Replicas: &components.Range{Max: 3}},
	})
	s.requireSound()
	binding := s.find("RoleBinding", "team-a-team-rolebinding")
	require.Equal(t, []any{map[string]any{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "team-a"}}, at(binding, "subjects"))
	rules, _ := at(s.find("Role", "team-a-team-role"), "rules").([]any)
	for _, rule := range rules {
		require.NotContains(t, rule.(map[string]any)["resources"], "secrets", "a team reads no Secrets by this Role")
		require.NotContains(t, rule.(map[string]any)["resources"], "zookeeperconfigs", "by which the operator would read them for it")
		require.NotContains(t, rule.(map[string]any)["verbs"], "*")
	}
	space := s.find("Namespace", "team-a-namespace")
	for _, name := range []string{"team-a-limits", "team-a-scale-limits"} {
		policy := s.find("ValidatingAdmissionPolicy", name)
		require.Empty(t, policy.DeletedWith, "the limits have no namespace, and do not go with one")
		require.NotContains(t, policy.Dependencies, space.URN)
		spec := at(s.find("ValidatingAdmissionPolicyBinding", name+"-binding"), "spec")
		require.Equal(t, at(policy, "metadata", "name"), spec.(map[string]any)["policyName"])
		require.Equal(t, map[string]any{"kubernetes.io/metadata.name": "apps"},
			at(s.find("ValidatingAdmissionPolicyBinding", name+"-binding"), "spec", "matchResources", "namespaceSelector", "matchLabels"))
	}
}

func TestATeamManagesZooKeeperConfigsOnlyWhenAskedFor(t *testing.T) {
	team := []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "team-a"}}
	s := recordSpace(t, components.TenantSpaceArgs{Tenant: "team-a", Team: team, ZooKeeperConfigs: true, Limits: &components.TenantLimits{}})
	require.Equal(t, []any{"leaseservices", "zookeeperconfigs"}, at(s.find("Role", "team-a-team-role"), "rules", 0, "resources"))
	require.NotContains(t, s.names(), "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy team-a-scale-limits",
		"no limits of replicas, nothing to hold a Scale to")
}

func TestTenantSpaceForNobodyHasNeitherRoleNorLimits(t *testing.T) {
	names := recordSpace(t, components.TenantSpaceArgs{Tenant: "team-a"}).names()
	require.NotContains(t, names, "kubernetes:rbac.authorization.k8s.io/v1:Role team-a-team-role")
	require.NotContains(t, names, "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy team-a-limits")
}
