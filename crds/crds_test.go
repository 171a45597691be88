package crds_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/holdfast-io/holdfast/crds"
)

func TestAllDecodesEveryFile(t *testing.T) {
	all := crds.All()
	require.Len(t, all, len(crds.Files()))
	var kinds []string
	for _, crd := range all {
		kinds = append(kinds, crd.Spec.Names.Kind)
		require.Equal(t, "dist.system", crd.Spec.Group, crd.Name)
		require.Equal(t, crd.Spec.Names.Plural+"."+crd.Spec.Group, crd.Name)
		for _, version := range crd.Spec.Versions {
			require.NotNil(t, version.Subresources, "%s %s has no subresources", crd.Name, version.Name)
			require.NotNil(t, version.Subresources.Status, "%s %s has no status subresource", crd.Name, version.Name)
		}
	}
	require.Contains(t, kinds, "LeaseService")
}

func TestLeaseServiceColumns(t *testing.T) {
	for _, crd := range crds.All() {
		if crd.Spec.Names.Kind != "LeaseService" {
			continue
		}
		var shown []string
		for _, column := range crd.Spec.Versions[0].AdditionalPrinterColumns {
			if column.Priority == 0 {
				shown = append(shown, column.Name)
			}
		}
		require.Empty(t, cmp.Diff([]string{"Replicas", "Ready", "Leader", "Leases", "Age"}, shown))
		require.Equal(t, ".spec.replicas", crd.Spec.Versions[0].Subresources.Scale.SpecReplicasPath)
	}
}

func TestCallersCannotChangeOneAnothersCopies(t *testing.T) {
	crds.All()[0].Name = "changed"
	require.NotEqual(t, "changed", crds.All()[0].Name)
	crds.Files()[0].Content[0] = 0
	require.NotEqual(t, byte(0), crds.Files()[0].Content[0])
}

// The rules are what a cluster's administrator grants: nothing by wildcard, Secrets written in tenant
// namespaces alone, and nothing that lets the operator hand itself more.
func TestRulesGrantNoMoreThanNamed(t *testing.T) {
	forbidden := map[string][]string{
		"verb":     {"*", "escalate", "bind", "impersonate", "deletecollection"},
		"resource": {"*", "roles", "rolebindings", "clusterroles", "clusterrolebindings", "pods/exec"},
		"group":    {"*", "rbac.authorization.k8s.io"},
	}
	for name, rules := range map[string][]rbacv1.PolicyRule{
		"tenant": crds.TenantRules(), "operator": crds.OperatorRules(), "cluster": crds.ClusterRules(),
	} {
		require.NotEmpty(t, rules, name)
		for _, rule := range rules {
			for kind, values := range map[string][]string{"verb": rule.Verbs, "resource": rule.Resources, "group": rule.APIGroups} {
				require.NotEmpty(t, values, "%s: a rule without any %s: %v", name, kind, rule)
				if kind == "resource" && slices.Contains(values, "configmaps") {
					record := name == "operator" && slices.Equal(rule.ResourceNames, []string{crds.WatchRecord}) && slices.Equal(rule.Verbs, []string{"patch"})
					require.True(t, record || slices.Equal(rule.Verbs, []string{"get", "list", "watch"}), "%s: of the ConfigMaps one alone is written: %v", name, rule)
				}
				if kind == "resource" && slices.Contains(values, "secrets") && name == "operator" {
					named := slices.Equal(rule.ResourceNames, []string{crds.SeedSecret, crds.EtcdAdminAccess}) && slices.Equal(rule.Verbs, []string{"get"})
					require.True(t, named || slices.Equal(rule.Verbs, []string{"create"}), "of the Secrets of its own namespace it reads two: %v", rule)
				}
				if kind == "resource" && name == "cluster" {
					require.NotContains(t, values, "secrets", "what tenants keep secret is read by the Role of their namespace alone")
				}
				for _, value := range values {
					require.False(t, slices.Contains(forbidden[kind], value), "%s: %s %q in %v", name, kind, value, rule)
				}
			}
		}
	}
}
