package platform

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/components/render"
	"github.com/holdfast-io/holdfast/stacks/internal/configschema"
)

// claimPlatformNamespaces notes by whom each namespace is taken before the first tenant comes: tenants and spaces get none of
// these, since whoever may use a namespace could take over what else is in it.
func claimPlatformNamespaces(c *Config) (taken map[string]string, problems []configschema.Problem) {
	taken = map[string]string{
		// The rendered manifests have a folder a namespace, beside these two.
		render.CRDFolder:     "the folder of the CRDs",
		render.ClusterFolder: "the folder of what has no namespace",
	}
	problems = claimNamespace(nil, taken, "", c.Namespace, nil)
	taken[c.Namespace] = "the operator"
	for _, controllers := range controllerNamespaces(c) {
		// One installation of Argo CD may be named by several keys.
		if !slices.Contains([]string{releaseGuardKey, argoCDKey}, taken[controllers.namespace]) {
			problems = claim(problems, taken, controllers.owner, controllers.key, controllers.namespace)
		}
	}
	if c.DevEtcd != nil {
		problems = claimNamespace(problems, taken, "devEtcd", c.DevEtcd.Namespace, nil)
	}
	return taken, problems
}

// Keys that name namespaces of Argo CD or Flux.
const (
	releaseGuardKey = "releaseGuard"
	argoCDKey       = "argocd"
	gitOpsKey       = "gitops"
)

type controllerNamespace struct{ owner, key, namespace string }

// controllerNamespaces are those of Argo CD and Flux, the ones that the stack has objects in first.
func controllerNamespaces(c *Config) []controllerNamespace {
	var list []controllerNamespace
	if c.ReleaseGuard != nil {
		for i, namespace := range c.ReleaseGuard.Namespaces {
			list = append(list, controllerNamespace{releaseGuardKey, fmt.Sprintf("namespaces[%d]", i), namespace})
		}
	}
	if c.ArgoCD != nil {
		namespace := c.ArgoCD.Namespace
		if namespace == "" {
			namespace = defaultArgoCDNamespace
		}
		list = append(list, controllerNamespace{argoCDKey, "namespace", namespace})
	}
	if c.GitOps != nil {
		list = append(list, controllerNamespace{gitOpsKey, "namespace", c.GitOps.Namespace})
	}
	return list
}

// claimNamespace notes that owner takes a namespace, or adds a problem. One that is there already, by createNamespace, may be
// that of Argo CD or Flux; but not when the stack has objects in it: these would be in the owner's folder of the manifests.
func claimNamespace(
	problems []configschema.Problem, taken map[string]string, owner, namespace string, create *bool,
) []configschema.Problem {
	if namespace == "default" || strings.HasPrefix(namespace, "kube-") {
		return append(problems, configschema.Problem{
			Path:    configschema.Field(owner, "namespace"),
			Message: fmt.Sprintf("%q is the cluster's own; allowed is any name but default and those that begin with kube-", namespace),
		})
	}
	if create != nil && !*create && taken[namespace] == gitOpsKey {
		taken[namespace] = owner
		return problems
	}
	return claim(problems, taken, owner, "namespace", namespace)
}

// claim notes that owner takes value, or adds a problem when another has taken it.
func claim(
	problems []configschema.Problem, taken map[string]string, owner, key, value string,
) []configschema.Problem {
	if value == "" {
		return problems
	}
	if other, found := taken[value]; found {
		return append(problems, configschema.Problem{
			Path:    configschema.Field(owner, key),
			Message: fmt.Sprintf("%q is taken by %s; each needs its own", value, other),
		})
	}
	taken[value] = owner
	return problems
}
