package platform_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/stacks/platform"
)

// problemsOf are those that the configuration has.
func problemsOf(t *testing.T, changes map[string]string) []string {
	t.Helper()
	_, err := platform.ParseConfig(values(changes), nil)
	if err == nil {
		return nil
	}
	var configError *platform.ConfigError
	require.ErrorAs(t, err, &configError)
	var problems []string
	for _, problem := range configError.Problems {
		problems = append(problems, problem.String())
	}
	return problems
}

func TestNamespacesThatAreTaken(t *testing.T) {
	const (
		clusters = "is the cluster's own; allowed is any name but default and those that begin with kube-"
		argoCD   = `{"flavour": "argocd", "repoURL": "https://g", "path": "p"}`
		flux     = `{"flavour": "flux", "repoURL": "https://g", "path": "p"}`
		team     = `"team": [{"kind": "Group", "name": "g"}]`
	)
	for _, tc := range []struct {
		name    string
		changes map[string]string
		want    []string
	}{
		{"the cluster's", map[string]string{
			"namespace": "default", "devEtcd": `{"image": "e", "namespace": "kube-system"}`,
			"tenants":     `[{"name": "default"}, {"name": "a", "namespace": "kube-node-lease"}, {"name": "b", "namespace": "kube-x", "createNamespace": false}, {"name": "kube"}]`,
			"selfService": `[{"name": "s", "namespace": "kube-public", ` + team + `}]`,
		}, []string{
			`namespace: "default" ` + clusters,
			`devEtcd.namespace: "kube-system" ` + clusters,
			`tenants[0] (default): namespace: "default" ` + clusters,
			`tenants[1] (a): namespace: "kube-node-lease" ` + clusters,
			`tenants[2] (b): namespace: "kube-x" ` + clusters,
			`selfService[0] (s): namespace: "kube-public" ` + clusters,
		}},
		{"Argo CD's, of three keys", map[string]string{
			"gitops": argoCD, "releaseGuard": `{}`, "argocd": `{"repoURL": "https://g", "path": "p"}`,
			"tenants": `[{"name": "argocd"}]`, "selfService": `[{"name": "s", "namespace": "argocd", ` + team + `}]`,
		}, []string{
			`tenants[0] (argocd): namespace: "argocd" is taken by releaseGuard; each needs its own`,
			`selfService[0] (s): namespace: "argocd" is taken by releaseGuard; each needs its own`,
		}},
		{"Argo CD's, of an Application", map[string]string{
			"argocd":  `{"repoURL": "https://g", "path": "p", "namespace": "cd"}`,
			"tenants": `[{"name": "argocd"}, {"name": "cd"}, {"name": "a", "namespace": "cd", "createNamespace": false}]`,
		}, []string{
			`tenants[1] (cd): namespace: "cd" is taken by argocd; each needs its own`,
			`tenants[2] (a): namespace: "cd" is taken by argocd; each needs its own`,
		}},
		{"each of a release guard", map[string]string{
			"releaseGuard": `{"namespaces": ["one", "two"]}`, "tenants": `[{"name": "argocd"}, {"name": "two"}, {"name": "a", "namespace": "one", "createNamespace": false}]`,
		}, []string{
			`tenants[1] (two): namespace: "two" is taken by releaseGuard; each needs its own`,
			`tenants[2] (a): namespace: "one" is taken by releaseGuard; each needs its own`,
		}},
		{"Flux'", map[string]string{"gitops": flux, "tenants": `[{"name": "argocd"}, {"name": "flux-system"}]`}, []string{
			`tenants[1] (flux-system): namespace: "flux-system" is taken by gitops; each needs its own`,
		}},
		{"Flux', shared by one", map[string]string{
			"gitops": flux, "tenants": `[{"name": "flux-system", "createNamespace": false}, {"name": "a", "namespace": "flux-system", "createNamespace": false}]`,
		}, []string{
			`tenants[1] (a): namespace: "flux-system" is taken by tenants[0] (flux-system); each needs its own`,
		}},
		{"the operator's, by the controllers", map[string]string{"gitops": argoCD, "namespace": "argocd"}, []string{
			`gitops.namespace: "argocd" is taken by the operator; each needs its own`,
		}},
		{"the controllers', by the development etcd", map[string]string{"gitops": argoCD, "devEtcd": `{"image": "e", "namespace": "argocd"}`}, []string{
			`devEtcd.namespace: "argocd" is taken by gitops; each needs its own`,
		}},
		{"a folder's, by the operator", map[string]string{"namespace": "crds"}, []string{
			`namespace: "crds" is taken by the folder of the CRDs; each needs its own`,
		}},
		{"nobody's", map[string]string{"tenants": `[{"name": "argocd"}, {"name": "flux-system"}, {"name": "defaults"}]`}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, problemsOf(t, tc.changes))
		})
	}
}
