package components

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/components/kube"
)

func (a *GitOpsHandoverArgs) platformProject() string {
	return kube.Name(kube.MaxNameLength, a.Name, stagePlatform)
}

func (a *GitOpsHandoverArgs) tenantProject() string {
	return kube.Name(kube.MaxNameLength, a.Name, stageTenants)
}

// argoProjects bound what a commit can do: the repository, the namespaces and the kinds. A tenant's folder can hold no
// workload, no Secret and no ServiceAccount, so that it cannot become the operator or read what is another tenant's.
func argoProjects(args *GitOpsHandoverArgs) []child {
	var projects []child
	if args.CRDs != "" || len(args.Platform) > 0 {
		projects = append(projects, child{"project-platform", argoProject(args, args.platformProject(), appProjectSpec{
			Description: "The operator, what it needs, and the CRDs.",
			// The empty namespace is that of the CRDs' Application, whose objects have none.
			Destinations: destinations(append([]string{""}, args.Platform...)),
			ClusterResourceWhitelist: slices.Concat(
				groupKinds("apiextensions.k8s.io", "CustomResourceDefinition"),
				groupKinds("rbac.authorization.k8s.io", "ClusterRole", "ClusterRoleBinding"),
				groupKinds("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
			),
			NamespaceResourceWhitelist: slices.Concat(
				groupKinds("", "ConfigMap", "ResourceQuota", "Service", "ServiceAccount"),
				groupKinds("apps", "Deployment", "StatefulSet"),
				groupKinds("policy", "PodDisruptionBudget"),
				spaceKinds(),
			),
		})})
	}
	if args.DiscoverTenants || len(args.Tenants) > 0 {
		projects = append(projects, child{"project-tenants", argoProject(args, args.tenantProject(), appProjectSpec{
			Description:                "The namespaces of tenants, and the custom resources in them.",
			Destinations:               tenantDestinations(args),
			NamespaceResourceWhitelist: slices.Concat(groupKinds("", "ResourceQuota"), spaceKinds(), groupKinds("dist.system", "*")),
		})})
	}
	return projects
}

func argoProject(args *GitOpsHandoverArgs, name string, spec appProjectSpec) *appProject {
	spec.SourceRepos = []string{args.RepoURL}
	spec.ClusterResourceWhitelist = append(groupKinds("", "Namespace"), spec.ClusterResourceWhitelist...)
	return &appProject{
		TypeMeta:   kube.Type(argoVersion, "AppProject"),
		ObjectMeta: objectMeta(args.Namespace, name, map[string]string{labelPartOf: partOf}),
		Spec:       spec,
	}
}

// spaceKinds are the kinds that every namespace of ours is made of, beside those of the core group.
func spaceKinds() []metav1.GroupKind {
	return slices.Concat(
		groupKinds("networking.k8s.io", "NetworkPolicy"),
		groupKinds("rbac.authorization.k8s.io", "Role", "RoleBinding"),
	)
}

// tenantDestinations are the namespaces of the tenants. When those are discovered they are all but the platform's own, the
// controllers' and the cluster's.
func tenantDestinations(args *GitOpsHandoverArgs) []applicationDestination {
	if !args.DiscoverTenants {
		return destinations(args.Tenants)
	}
	denied := slices.Concat([]string{args.Namespace, "default", "kube-*"}, args.Platform, args.Exclude)
	for i := range denied {
		denied[i] = "!" + denied[i]
	}
	return destinations(append([]string{"*"}, denied...))
}

func destinations(namespaces []string) []applicationDestination {
	list := make([]applicationDestination, 0, len(namespaces))
	for _, namespace := range namespaces {
		list = append(list, applicationDestination{Server: inCluster, Namespace: namespace})
	}
	return list
}

func groupKinds(group string, kinds ...string) []metav1.GroupKind {
	list := make([]metav1.GroupKind, 0, len(kinds))
	for _, kind := range kinds {
		list = append(list, metav1.GroupKind{Group: group, Kind: kind})
	}
	return list
}
