package components_test

import (
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/components/render"
	"github.com/holdfast-io/holdfast/crds"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// handoverArgs hands over an environment of two tenants.
func handoverArgs(flavour components.GitOpsFlavour) *components.GitOpsHandoverArgs {
	return &components.GitOpsHandoverArgs{
		Flavour: flavour, RepoURL: "https://git.example.org/ops.git", Path: "stacks/gitops/prod", Revision: "main",
		CRDs: "crds", Platform: []string{"holdfast-system"}, Tenants: []string{"payments", "search"},
	}
}

func handover(t *testing.T, args *components.GitOpsHandoverArgs) *stack {
	t.Helper()
	s := record(t, func(ctx *pulumi.Context) error {
		_, err := components.NewGitOpsHandover(ctx, "gitops", args)
		return err
	})
	s.requireSound()
	return s
}

func TestHandoverToArgoCD(t *testing.T) {
	s := handover(t, handoverArgs(components.GitOpsArgoCD))
	definitions := s.find("Application", "gitops-application-crds")
	platform := s.find("Application", "gitops-application-holdfast-system")
	tenants := s.find("ApplicationSet", "gitops-applicationset-tenants")
	require.True(t, s.before(definitions, platform), "CRDs come before the operator")
	require.True(t, s.before(platform, tenants), "the operator comes before its custom resources")
	require.True(t, s.before(s.find("AppProject", "gitops-project-platform"), definitions))

	require.Equal(t, "argocd", at(platform, "metadata", "namespace"))
	require.Equal(t, "holdfast-holdfast-system", at(platform, "metadata", "name"))
	require.Equal(t, map[string]any{
		"repoURL": "https://git.example.org/ops.git", "path": "stacks/gitops/prod/holdfast-system", "targetRevision": "main",
	}, at(platform, "spec", "source"))
	template := at(tenants, "spec", "template", "spec").(map[string]any)
	for name, spec := range map[string]map[string]any{"platform": platform.Fields["spec"].(map[string]any), "tenants": template} {
		policy := spec["syncPolicy"].(map[string]any)
		require.Equal(t, map[string]any{"prune": true, "selfHeal": true}, policy["automated"], name)
		require.Contains(t, policy["syncOptions"], "ServerSideApply=true", name)
		require.EqualValues(t, 10, policy["retry"].(map[string]any)["limit"], name)
	}
	require.Equal(t, map[string]any{"selfHeal": true}, at(definitions, "spec", "syncPolicy", "automated"), "CRDs are never pruned")
	require.Equal(t, []any{
		map[string]any{"path": "stacks/gitops/prod/payments"}, map[string]any{"path": "stacks/gitops/prod/search"},
	}, at(tenants, "spec", "generators", 0, "git", "directories"))
	require.Equal(t, "ServerSideDiff=true", at(tenants, "spec", "template", "metadata", "annotations", "argocd.argoproj.io/compare-options"))
	require.Equal(t, "true", at(tenants, "metadata", "annotations", "pulumi.com/patchForce"), "its controller owns the generators as well")
	require.Nil(t, at(platform, "metadata", "annotations", "pulumi.com/patchForce"), "the revision may be a guard's")
}

func TestHandoverToFlux(t *testing.T) {
	args := handoverArgs(components.GitOpsFlux)
	args.SecretName = "git-credentials"
	s := handover(t, args)
	repository := s.find("GitRepository", "gitops-gitrepository")
	require.Equal(t, map[string]any{"branch": "main"}, at(repository, "spec", "ref"))
	require.Equal(t, map[string]any{"name": "git-credentials"}, at(repository, "spec", "secretRef"))
	definitions := s.find("Kustomization", "gitops-kustomization-crds")
	require.Equal(t, false, at(definitions, "spec", "prune"))
	search := s.find("Kustomization", "gitops-kustomization-search")
	require.True(t, s.before(definitions, search))
	require.Equal(t, "flux-system", at(search, "metadata", "namespace"))
	require.Equal(t, "./stacks/gitops/prod/search", at(search, "spec", "path"))
	require.Equal(t, true, at(search, "spec", "wait"))
	require.Equal(t, true, at(search, "spec", "prune"))
	require.Equal(t, "Orphan", at(search, "spec", "deletionPolicy"))
	require.Equal(t, []any{
		map[string]any{"name": "holdfast-crds"}, map[string]any{"name": "holdfast-holdfast-system"},
	}, at(search, "spec", "dependsOn"), "one tenant does not wait for another")
}

func TestFluxFollowsEveryKindOfRevision(t *testing.T) {
	commit := strings.Repeat("0123abcd", 5)
	for revision, want := range map[string]map[string]any{
		"main": {"branch": "main"}, "refs/tags/v1.2.0": {"name": "refs/tags/v1.2.0"}, commit: {"commit": commit}, "": {"branch": "main"},
	} {
		args := handoverArgs(components.GitOpsFlux)
		args.Revision = revision
		require.Equal(t, want, at(handover(t, args).find("GitRepository", "gitops-gitrepository"), "spec", "ref"), "revision %q", revision)
	}
}

// Handing back deletes what keeps the objects, and must not delete the objects; a cascade is asked for, and spares the CRDs.
func TestDeletingAHandoverSparesWhatItKeepsUnlessToldOtherwise(t *testing.T) {
	for _, cascade := range []bool{false, true} {
		args := handoverArgs(components.GitOpsArgoCD)
		args.Cascade = cascade
		s := handover(t, args)
		require.Nil(t, at(s.find("Application", "gitops-application-crds"), "metadata", "finalizers"))
		finalizers := at(s.find("Application", "gitops-application-holdfast-system"), "metadata", "finalizers")
		require.Equal(t, cascade, finalizers != nil)
		require.Equal(t, !cascade, at(s.find("ApplicationSet", "gitops-applicationset-tenants"), "spec", "syncPolicy", "preserveResourcesOnDeletion"))

		args = handoverArgs(components.GitOpsFlux)
		args.Cascade = cascade
		s = handover(t, args)
		require.Equal(t, "Orphan", at(s.find("Kustomization", "gitops-kustomization-crds"), "spec", "deletionPolicy"))
		want := map[bool]string{false: "Orphan", true: "WaitForTermination"}[cascade]
		require.Equal(t, want, at(s.find("Kustomization", "gitops-kustomization-holdfast-system"), "spec", "deletionPolicy"))
	}
}

func TestTenantsAreDiscoveredExceptWhereOthersAre(t *testing.T) {
	discovered := func(flavour components.GitOpsFlavour) *stack {
		args := handoverArgs(flavour)
		args.Tenants, args.DiscoverTenants, args.Exclude = nil, true, []string{"legacy"}
		return handover(t, args)
	}
	s := discovered(components.GitOpsArgoCD)
	require.Equal(t, []any{
		map[string]any{"path": "stacks/gitops/prod/*"},
		map[string]any{"path": "stacks/gitops/prod/holdfast-system", "exclude": true},
		map[string]any{"path": "stacks/gitops/prod/legacy", "exclude": true},
		map[string]any{"path": "stacks/gitops/prod/crds", "exclude": true},
	}, at(s.find("ApplicationSet", "gitops-applicationset-tenants"), "spec", "generators", 0, "git", "directories"))
	var namespaces []any
	for _, item := range at(s.find("AppProject", "gitops-project-tenants"), "spec", "destinations").([]any) {
		namespaces = append(namespaces, item.(map[string]any)["namespace"])
	}
	require.Equal(t, []any{"*", "!argocd", "!default", "!kube-*", "!holdfast-system", "!legacy"}, namespaces)

	s = discovered(components.GitOpsFlux)
	require.Equal(t, "/stacks/gitops/prod/holdfast-system/\n/stacks/gitops/prod/legacy/\n/stacks/gitops/prod/crds/\n",
		at(s.find("GitRepository", "gitops-gitrepository-tenants"), "spec", "ignore"))
	tenants := s.find("Kustomization", "gitops-kustomization-tenants")
	require.Equal(t, "holdfast-tenants", at(tenants, "spec", "sourceRef", "name"))
	require.Equal(t, "./stacks/gitops/prod", at(tenants, "spec", "path"))
}

func TestARevisionCanBeLeftToTheGuard(t *testing.T) {
	args := handoverArgs(components.GitOpsArgoCD)
	args.RevisionManagedByGuard = true
	tenants := handover(t, args).find("ApplicationSet", "gitops-applicationset-tenants")
	require.Equal(t, []any{map[string]any{"jsonPointers": []any{"/spec/source/targetRevision"}}},
		at(tenants, "spec", "ignoreApplicationDifferences"))
}

func TestAnUpdateWaitsForTheStagesOnRequest(t *testing.T) {
	args := handoverArgs(components.GitOpsArgoCD)
	require.Equal(t, "true", at(handover(t, args).find("Application", "gitops-application-crds"), "metadata", "annotations", "pulumi.com/skipAwait"))
	args.Await = true
	require.Equal(t, `["jsonpath={.status.sync.status}=Synced","jsonpath={.status.health.status}=Healthy"]`,
		at(handover(t, args).find("Application", "gitops-application-crds"), "metadata", "annotations", "pulumi.com/waitFor"))
	args = handoverArgs(components.GitOpsFlux)
	args.Await = true
	require.Equal(t, "condition=Ready",
		at(handover(t, args).find("Kustomization", "gitops-kustomization-crds"), "metadata", "annotations", "pulumi.com/waitFor"))
}

func TestArgoCDLearnsTheHealthOfEveryKind(t *testing.T) {
	args := handoverArgs(components.GitOpsArgoCD)
	args.InstallHealth = true
	s := handover(t, args)
	patch := s.find("ConfigMapPatch", "gitops-argocd-cm")
	require.True(t, s.before(patch, s.find("AppProject", "gitops-project-platform")), "nothing is synced before its health is known")
	require.Equal(t, "argocd-cm", at(patch, "metadata", "name"))
	data := at(patch, "data").(map[string]any)
	require.Len(t, data, len(crds.All()))
	for _, crd := range crds.All() {
		require.Contains(t, data[fmt.Sprintf("resource.customizations.health.%s_%s", crd.Spec.Group, crd.Spec.Names.Kind)], "Reconciling")
	}
}

func TestUnusableHandoversAreRefused(t *testing.T) {
	for want, change := range map[string]func(*components.GitOpsHandoverArgs){
		`flavour is "jenkins"`:            func(a *components.GitOpsHandoverArgs) { a.Flavour = "jenkins" },
		`repoURL ""`:                      func(a *components.GitOpsHandoverArgs) { a.RepoURL = "" },
		`path ""`:                         func(a *components.GitOpsHandoverArgs) { a.Path = "/" },
		`folder is "a/b"`:                 func(a *components.GitOpsHandoverArgs) { a.Tenants = []string{"a/b"} },
		`folder "search" is named twice`:  func(a *components.GitOpsHandoverArgs) { a.Platform = []string{"search"} },
		"exclude each other":              func(a *components.GitOpsHandoverArgs) { a.DiscoverTenants = true },
		"only with discoverTenants":       func(a *components.GitOpsHandoverArgs) { a.Exclude = []string{"x"} },
		"nothing is handed over":          func(a *components.GitOpsHandoverArgs) { a.CRDs, a.Platform, a.Tenants = "", nil, nil },
		"interval is 1ns":                 func(a *components.GitOpsHandoverArgs) { a.Interval = 1 },
		`revisionManagedByGuard is for`:   func(a *components.GitOpsHandoverArgs) { a.Flavour, a.RevisionManagedByGuard = "flux", true },
		`installHealth is for`:            func(a *components.GitOpsHandoverArgs) { a.Flavour, a.InstallHealth = "flux", true },
		`allowed are "argocd" and "flux"`: func(a *components.GitOpsHandoverArgs) { a.Flavour = "" },
	} {
		args := handoverArgs(components.GitOpsArgoCD)
		change(args)
		_, err := render.Record(func(ctx *pulumi.Context) error {
			_, err := components.NewGitOpsHandover(ctx, "gitops", args)
			return err
		})
		require.ErrorContains(t, err, want)
	}
}

// What the components make must be allowed by the projects, or nothing of it could be handed over.
func TestTheProjectsAllowWhatIsHandedOver(t *testing.T) {
	made := record(t, func(ctx *pulumi.Context) error {
		if _, err := components.NewPlatform(ctx, "platform", &components.PlatformArgs{
			Operator:       components.OperatorArgs{Image: "operator", LeaseServiceImage: "lease-service", Replicas: 2},
			TokenReviewers: []components.TokenReviewer{{Tenant: "search"}},
		}); err != nil {
			return err
		}
		if _, err := components.NewDevEtcd(ctx, "etcd", &components.DevEtcdArgs{Image: "etcd"}); err != nil {
			return err
		}
		// What a space has beside a tenant's is for a self-service space, which is the platform's.
		if _, err := components.NewTenantSpace(ctx, "space", &components.TenantSpaceArgs{
			Tenant: "self", TokenReview: true, Limits: &components.TenantLimits{},
			Team: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "self-team"}},
		}); err != nil {
			return err
		}
		_, err := components.NewLeaseTenant(ctx, "search", &components.LeaseTenantArgs{
			Tenant: "search", Service: v1alpha1.LeaseServiceSpec{EtcdEndpoints: []string{"http://etcd:2379"}},
			Space: &components.TenantSpaceArgs{Quota: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3")}},
		})
		return err
	})
	args := handoverArgs(components.GitOpsArgoCD)
	args.Platform = append(args.Platform, components.DefaultDevEtcdNamespace, "self")
	seen := map[string]int{}
	for manifest, project := range projectsOf(t, args, made) {
		require.True(t, allows(project, manifest.Object), "%s does not allow %s", project.Name, manifest.Path)
		seen[project.Name]++
	}
	require.Len(t, seen, 2)

	// A tenant's own folder may give it no rights in the cluster, which is why the Platform does.
	made = record(t, func(ctx *pulumi.Context) error {
		_, err := components.NewTenantSpace(ctx, "search", &components.TenantSpaceArgs{Tenant: "search", TokenReview: true})
		return err
	})
	var refused []string
	for manifest, project := range projectsOf(t, args, made) {
		if !allows(project, manifest.Object) {
			refused = append(refused, path.Base(manifest.Path))
		}
	}
	require.Equal(t, []string{"10-clusterrolebinding-holdfast-token-review-search-search.yaml"}, refused)
}

// projectsOf goes through the manifests, each with the project of the Application that applies its folder.
func projectsOf(t *testing.T, args *components.GitOpsHandoverArgs, made *stack) iter.Seq2[render.Manifest, render.Resource] {
	t.Helper()
	manifests, err := render.Manifests(made.resources)
	require.NoError(t, err)
	require.NotEmpty(t, manifests)
	projects := handover(t, args)
	return func(yield func(render.Manifest, render.Resource) bool) {
		for _, manifest := range manifests {
			project := projects.find("AppProject", "gitops-project-platform")
			if slices.Contains(args.Tenants, manifest.Folder()) {
				project = projects.find("AppProject", "gitops-project-tenants")
			} else {
				require.Contains(t, append([]string{args.CRDs}, args.Platform...), manifest.Folder())
			}
			if !yield(manifest, project) {
				return
			}
		}
	}
}

func allows(project render.Resource, object map[string]any) bool {
	list := "namespaceResourceWhitelist"
	if metadata, _ := object["metadata"].(map[string]any); metadata["namespace"] == nil {
		list = "clusterResourceWhitelist"
	}
	apiVersion, _ := object["apiVersion"].(string)
	group := strings.TrimSuffix(path.Dir(apiVersion), ".")
	allowed, _ := at(project, "spec", list).([]any)
	return slices.ContainsFunc(allowed, func(item any) bool {
		kind := item.(map[string]any)
		return kind["group"] == group && (kind["kind"] == "*" || kind["kind"] == object["kind"])
	})
}
