package components_test

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/crds"
)

func recordSpace(t *testing.T, args components.TenantSpaceArgs) *stack {
	t.Helper()
	return record(t, func(ctx *pulumi.Context) error {
		_, err := components.NewTenantSpace(ctx, "team-a", &args)
		return err
	})
}

func TestTenantSpaceIsClosedAndServed(t *testing.T) {
	s := recordSpace(t, components.TenantSpaceArgs{Tenant: "team-a", OperatorNamespace: "ops"})
	s.requireSound()
	namespace := s.find("Namespace", "team-a-namespace")
	require.Equal(t, "restricted", at(namespace, "metadata", "labels", "pod-security.kubernetes.io/enforce"))
	require.Equal(t, map[string]any{
		"podSelector": map[string]any{}, "policyTypes": []any{"Ingress", "Egress"},
	}, at(s.find("NetworkPolicy", "team-a-default-deny"), "spec"), "nothing in, nothing out")

	role, binding := s.find("Role", "team-a-operator-role"), s.find("RoleBinding", "team-a-operator-rolebinding")
	rules, _ := at(role, "rules").([]any)
	require.Len(t, rules, len(crds.TenantRules()))
	require.Equal(t, at(role, "metadata", "name"), at(binding, "roleRef", "name"))
	require.Equal(t, map[string]any{"kind": "ServiceAccount", "name": "holdfast-operator", "namespace": "ops"},
		at(binding, "subjects", 0))
	for _, res := range s.resources {
		if at(res, "metadata", "namespace") == "team-a" {
			require.True(t, s.before(namespace, res), "the namespace before %s", res.URN)
			require.Equal(t, namespace.URN, res.DeletedWith, "the namespace takes %s along", res.URN)
		}
	}
}

func TestTenantSpaceQuota(t *testing.T) {
	s := recordSpace(t, components.TenantSpaceArgs{Tenant: "team-a", Quota: corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("10"), corev1.ResourceRequestsCPU: resource.MustParse("500m"),
	}})
	require.Equal(t, map[string]any{"hard": map[string]any{"pods": "10", "requests.cpu": "500m"}},
		at(s.find("ResourceQuota", "team-a-quota"), "spec"))
	require.NotContains(t, recordSpace(t, components.TenantSpaceArgs{Tenant: "team-a"}).names(),
		"kubernetes:core/v1:ResourceQuota team-a-quota")
}

func TestTenantSpaceInAnExistingNamespaceLeavesItAlone(t *testing.T) {
	s := recordSpace(t, components.TenantSpaceArgs{Tenant: "team-a", Namespace: "apps", ExistingNamespace: true})
	require.NotContains(t, s.kinds(s.find("TenantSpace", "team-a")), "Namespace")
	require.Equal(t, "apps", at(s.find("Role", "team-a-operator-role"), "metadata", "namespace"))
}

func TestTenantSpaceNeedsATenant(t *testing.T) {
	_, err := components.NewTenantSpace(nil, "x", &components.TenantSpaceArgs{})
	require.EqualError(t, err, "TenantSpace x: tenant is required")
}
