package components_test

import (
	"slices"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/crds"
)

func platformArgs(change func(*components.PlatformArgs)) *components.PlatformArgs {
	args := &components.PlatformArgs{
		Operator: components.OperatorArgs{
			Image: "holdfast.local/operator:1", LeaseServiceImage: "holdfast.local/lease-service:1",
			Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
			},
		},
		TenantNamespaces: []string{"team-a", "team-b"},
	}
	if change != nil {
		change(args)
	}
	return args
}

func recordPlatform(t *testing.T, change func(*components.PlatformArgs)) *stack {
	t.Helper()
	return record(t, func(ctx *pulumi.Context) error {
		_, err := components.NewPlatform(ctx, "holdfast", platformArgs(change))
		return err
	})
}

func TestPlatformHasEverythingTheOperatorNeeds(t *testing.T) {
	s := recordPlatform(t, nil)
	s.requireSound()
	platform := s.find("Platform", "holdfast")
	require.ElementsMatch(t, []string{
		"CustomResourceDefinition", "Deployment", "ConfigMap", "Namespace", "Service", "ServiceAccount", "NetworkPolicy",
		"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
	}, slices.Compact(s.kinds(platform)), "one or more of each")
	namespace := s.find("Namespace", "holdfast-namespace")
	require.Equal(t, "holdfast-system", at(namespace, "metadata", "name"))
	require.Equal(t, "restricted", at(namespace, "metadata", "labels", "pod-security.kubernetes.io/enforce"))
}

func TestPlatformOrder(t *testing.T) {
	s := recordPlatform(t, nil)
	namespace, deployment := s.find("Namespace", "holdfast-namespace"), s.find("Deployment", "holdfast-deployment")
	definition := s.find("CustomResourceDefinition", "holdfast-crd-leaseservices")
	require.Equal(t, "condition=Established", at(definition, "metadata", "annotations", "pulumi.com/waitFor"))
	for _, first := range []struct{ kind, name string }{
		{"CustomResourceDefinition", "holdfast-crd-leaseservices"},
		{"RoleBinding", "holdfast-rolebinding"},
		{"Role", "holdfast-role"},
		{"ServiceAccount", "holdfast-serviceaccount"},
		{"ConfigMap", "holdfast-configmap"},
	} {
		require.True(t, s.before(s.find(first.kind, first.name), deployment), "%s before the Deployment", first.kind)
	}
	for _, res := range s.resources {
		if at(res, "metadata", "namespace") == "holdfast-system" {
			require.True(t, s.before(namespace, res), "namespace before %s", res.URN)
		}
	}
	require.False(t, s.before(deployment, definition))
}

func TestPlatformInstallsEveryCRDAndKeepsItByDefault(t *testing.T) {
	kept := recordPlatform(t, nil)
	dropped := recordPlatform(t, func(a *components.PlatformArgs) { a.DeleteCRDs = true })
	for _, crd := range crds.All() {
		name := "holdfast-crd-" + crd.Spec.Names.Plural
		require.True(t, kept.find("CustomResourceDefinition", name).RetainOnDelete)
		require.False(t, dropped.find("CustomResourceDefinition", name).RetainOnDelete)
		require.Equal(t, crd.Name, at(kept.find("CustomResourceDefinition", name), "metadata", "name"))
	}
	require.False(t, kept.find("Deployment", "holdfast-deployment").RetainOnDelete)
}

func TestPlatformOperatorIsRestricted(t *testing.T) {
	deployment := recordPlatform(t, nil).find("Deployment", "holdfast-deployment")
	pod := []any{"spec", "template", "spec"}
	container := append(append([]any{}, pod...), "containers", 0)
	for path, want := range map[string]any{"runAsNonRoot": true, "runAsUser": int64(65532)} {
		require.Equal(t, want, at(deployment, append(pod, "securityContext", path)...), path)
	}
	require.Equal(t, map[string]any{
		"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
		"capabilities": map[string]any{"drop": []any{"ALL"}},
	}, at(deployment, append(container, "securityContext")...))
	require.Equal(t, "RuntimeDefault", at(deployment, append(pod, "securityContext", "seccompProfile", "type")...))
	require.Equal(t, "/healthz", at(deployment, append(container, "livenessProbe", "httpGet", "path")...))
	require.Equal(t, "/readyz", at(deployment, append(container, "readinessProbe", "httpGet", "path")...))
	require.Equal(t, "128Mi", at(deployment, append(container, "resources", "limits", "memory")...))
	require.Equal(t, "5m", deployment.CreateTimeout)
}

func TestPlatformConfigurationRollsTheOperator(t *testing.T) {
	mounted := func(s *stack) any {
		name := at(s.find("Deployment", "holdfast-deployment"), "spec", "template", "spec", "volumes", 0, "configMap", "name")
		require.Equal(t, at(s.find("ConfigMap", "holdfast-configmap"), "metadata", "name"), name)
		return name
	}
	one := recordPlatform(t, nil)
	same := recordPlatform(t, func(a *components.PlatformArgs) { a.Operator.Replicas = 3 })
	fewer := recordPlatform(t, func(a *components.PlatformArgs) { a.TenantNamespaces = []string{"team-a"} })
	other := recordPlatform(t, func(a *components.PlatformArgs) { a.Operator.LogLevel = "debug" })
	require.Contains(t, mounted(one), "holdfast-operator-")
	require.Equal(t, mounted(one), mounted(same), "what is not in the file does not roll the pods")
	require.Equal(t, mounted(one), mounted(fewer), "tenants come and go while the operator runs")
	require.NotEqual(t, mounted(one), mounted(other))

	content, _ := at(one.find("ConfigMap", "holdfast-configmap"), "data", "operator.yaml").(string)
	var config map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(content), &config))
	require.Equal(t, map[string]any{
		"apiVersion":               "config.dist.system/v1alpha1",
		"kind":                     "OperatorConfig",
		"namespaces":               []any{},
		"namespacesFromConfigMaps": true,
		"leaderElection":           map[string]any{"enabled": true, "namespace": "holdfast-system"},
		"metrics":                  map[string]any{"bindAddress": ":8080"},
		"health":                   map[string]any{"bindAddress": ":8081"},
		"log":                      map[string]any{"level": "info"},
		"gracefulShutdownTimeout":  "20s",
		"leaseService": map[string]any{
			"image": "holdfast.local/lease-service:1", "maxConcurrentReconciles": float64(4),
		},
	}, config)
}

func TestPlatformInHighAvailabilityHasABudget(t *testing.T) {
	s := recordPlatform(t, func(a *components.PlatformArgs) { a.Operator.Replicas = 2 })
	require.Equal(t, int64(1), at(s.find("PodDisruptionBudget", "holdfast-pdb"), "spec", "maxUnavailable"))
	require.Equal(t, int64(2), at(s.find("Deployment", "holdfast-deployment"), "spec", "replicas"))
}

func TestPlatformServesItsOwnNamespaceWhenItHasNoTenants(t *testing.T) {
	rules := func(s *stack) []any {
		list, _ := at(s.find("Role", "holdfast-role"), "rules").([]any)
		return list
	}
	require.Len(t, rules(recordPlatform(t, nil)), len(crds.OperatorRules()))
	alone := recordPlatform(t, func(a *components.PlatformArgs) { a.TenantNamespaces = nil })
	require.Len(t, rules(alone), len(crds.OperatorRules())+len(crds.TenantRules()))
	require.Equal(t, "holdfast-system",
		at(alone.find("ConfigMap", "holdfast-watch-holdfast-system"), "metadata", "labels", crds.WatchLabel))
}

// Each namespace has a marker of its own, so that it can go after the namespace has.
func TestPlatformTellsTheOperatorOfEachNamespace(t *testing.T) {
	s := recordPlatform(t, nil)
	for _, namespace := range []string{"team-a", "team-b"} {
		marker := s.find("ConfigMap", "holdfast-watch-"+namespace)
		require.Equal(t, namespace, at(marker, "metadata", "labels", crds.WatchLabel))
		require.Equal(t, "holdfast-system", at(marker, "metadata", "namespace"))
	}
	role, binding := s.find("ClusterRole", "holdfast-clusterrole"), s.find("ClusterRoleBinding", "holdfast-clusterrolebinding")
	rules, _ := at(role, "rules").([]any)
	require.Len(t, rules, len(crds.ClusterRules()))
	require.Equal(t, at(role, "metadata", "name"), at(binding, "roleRef", "name"))
	require.Equal(t, "holdfast-system", at(binding, "subjects", 0, "namespace"))
}

// What the operator notes of namespaces is its own: an update must not take it out.
func TestPlatformLeavesTheRecordOfNamespacesAlone(t *testing.T) {
	record := recordPlatform(t, nil).find("ConfigMap", "holdfast-watchrecord")
	require.Equal(t, crds.WatchRecord, at(record, "metadata", "name"))
	require.NotContains(t, record.Fields, "data")
}

func TestPlatformBindsTheReviewersOfTokens(t *testing.T) {
	s := recordPlatform(t, func(a *components.PlatformArgs) {
		a.TokenReviewers = []components.TokenReviewer{{Tenant: "team-a"}, {Tenant: "team-b", Namespace: "shared"}}
	})
	s.requireSound()
	for namespace, account := range map[string]string{"team-a": "team-a-lease-service", "shared": "team-b-lease-service"} {
		binding := s.find("ClusterRoleBinding", "holdfast-token-review-"+namespace)
		require.Equal(t, "system:auth-delegator", at(binding, "roleRef", "name"))
		require.Equal(t, []any{map[string]any{"kind": "ServiceAccount", "name": account, "namespace": namespace}}, at(binding, "subjects"))
	}
	_, err := components.NewPlatform(nil, "holdfast", &components.PlatformArgs{
		Operator:       components.OperatorArgs{Image: "operator", LeaseServiceImage: "lease-service"},
		TokenReviewers: []components.TokenReviewer{{Namespace: "shared"}},
	})
	require.EqualError(t, err, "Platform holdfast: tokenReviewers[0].tenant is required")
}

func TestPlatformArgoCDApplication(t *testing.T) {
	s := recordPlatform(t, func(a *components.PlatformArgs) {
		a.ArgoCD = &components.ArgoCDArgs{RepoURL: "https://git.example.com/tenants.git", Path: "apps"}
	})
	s.requireSound()
	application := s.find("Application", "holdfast-application")
	require.Equal(t, "kubernetes:argoproj.io/v1alpha1:Application", application.Type)
	require.Equal(t, "argocd", at(application, "metadata", "namespace"))
	require.Equal(t, map[string]any{
		"automated":   map[string]any{"prune": true, "selfHeal": true},
		"syncOptions": []any{"CreateNamespace=true", "ServerSideApply=true", "PruneLast=true", "FailOnSharedResource=true"},
		"retry": map[string]any{
			"limit": int64(10), "refresh": true, "backoff": map[string]any{"duration": "5s", "factor": int64(2), "maxDuration": "1m"},
		},
	}, at(application, "spec", "syncPolicy"))
	require.Equal(t, map[string]any{"server": "https://kubernetes.default.svc", "namespace": "holdfast-system"},
		at(application, "spec", "destination"))
	require.True(t, s.before(s.find("Deployment", "holdfast-deployment"), application))
}

func TestPlatformWithoutImagesIsRefused(t *testing.T) {
	_, err := components.NewPlatform(nil, "holdfast", &components.PlatformArgs{})
	require.EqualError(t, err,
		`Platform holdfast: operator.image "" and operator.leaseServiceImage "" must both be set`)
}
