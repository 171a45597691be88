package components_test

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/crds"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

func TestPlatformServesReleaseGuardsOnlyWhenAsked(t *testing.T) {
	off := recordPlatform(t, func(*components.PlatformArgs) {})
	for _, res := range off.resources {
		require.NotEqual(t, "holdfast-release-guard", at(res, "metadata", "name"), "%s exists though the guard is off", res.Name)
	}

	on := recordPlatform(t, func(a *components.PlatformArgs) {
		a.Operator.ReleaseGuard = &components.ReleaseGuardOperatorArgs{Prometheus: []string{"http://prometheus.monitoring:9090"}}
	})
	on.requireSound()
	content, _ := at(on.find("ConfigMap", "holdfast-configmap"), "data", "operator.yaml").(string)
	var config map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(content), &config))
	require.Equal(t, map[string]any{
		"namespaces": []any{"argocd"}, "prometheus": []any{"http://prometheus.monitoring:9090"},
	}, config["releaseGuard"])
	role := on.find("Role", "holdfast-releaseguard-role-argocd")
	require.Equal(t, "argocd", at(role, "metadata", "namespace"))
	require.Len(t, at(role, "rules"), len(crds.ReleaseGuardRules()))
	binding := on.find("RoleBinding", "holdfast-releaseguard-rolebinding-argocd")
	require.Equal(t, "argocd", at(binding, "metadata", "namespace"))
	require.Equal(t, "holdfast-release-guard", at(binding, "roleRef", "name"))
	require.Equal(t, "holdfast-system", at(binding, "subjects", 0, "namespace"))
}

// In Argo CD's namespace the operator changes Applications and its own status, and reads no Secret.
func TestReleaseGuardRules(t *testing.T) {
	for _, rule := range crds.ReleaseGuardRules() {
		for _, resource := range rule.Resources {
			allowed := map[string][]string{
				"applications": {"get", "list", "watch", "patch"}, "releaseguards": {"get", "list", "watch"},
				"releaseguards/status": {"get", "patch"}, "events": {"create", "patch"},
			}[resource]
			require.Equal(t, allowed, rule.Verbs, resource)
		}
	}
	require.NotEmpty(t, []rbacv1.PolicyRule(crds.ReleaseGuardRules()))
}

func TestReleaseGuard(t *testing.T) {
	guard := func(change func(*components.ReleaseGuardArgs)) *stack {
		args := &components.ReleaseGuardArgs{
			Metadata: metav1.ObjectMeta{Namespace: "argocd", Name: "tenants"},
			Spec: v1alpha1.ReleaseGuardSpec{Revision: "v1", Rings: []v1alpha1.ReleaseRing{
				{Name: "canary", Applications: []string{"team-a"}}, {Name: "rest", Selector: &metav1.LabelSelector{}},
			}},
		}
		change(args)
		return record(t, func(ctx *pulumi.Context) error {
			_, err := components.NewReleaseGuard(ctx, "tenants", args)
			return err
		})
	}
	declared := guard(func(*components.ReleaseGuardArgs) {}).find("ReleaseGuard", "tenants")
	require.Equal(t, "v1", at(declared, "spec", "revision"))
	require.Equal(t, "canary", at(declared, "spec", "rings", 0, "name"))
	require.Equal(t, "true", at(declared, "metadata", "annotations", "pulumi.com/skipAwait"))
	require.NotContains(t, declared.Fields, "status")

	awaited := guard(func(a *components.ReleaseGuardArgs) { a.Await = true }).find("ReleaseGuard", "tenants")
	require.Equal(t, "condition=Ready", at(awaited, "metadata", "annotations", "pulumi.com/waitFor"))
}
