package platform

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/components/render"
)

const gitOps = `{"flavour": "argocd", "repoURL": "https://git.example.com/x.git", "path": "/stacks/gitops/dev/", "cascade": true}`

func ownersConfig(t *testing.T, ownership, ofTenantA string) *Config {
	t.Helper()
	config, err := ParseConfig(map[string]string{
		"holdfast:operator": `{"image": "o"}`, "holdfast:leaseService": `{"image": "l"}`, "holdfast:gitops": gitOps,
		"holdfast:devEtcd": `{"image": "e"}`, "holdfast:releaseGuard": `{}`, "holdfast:ownership": ownership,
		"holdfast:tenants":     `[{"name": "a", "ownership": "` + ofTenantA + `", "useDevEtcd": true}, {"name": "b", "namespace": "bs"}]`,
		"holdfast:selfService": `[{"name": "s", "team": [{"kind": "Group", "name": "g"}]}]`,
	}, nil)
	require.NoError(t, err)
	return config
}

// registered records what is deployed, as component names and as folders that GitOps keeps.
func registered(t *testing.T, config *Config, transit Transit) (resources []render.Resource, folders []string) {
	t.Helper()
	resources, err := render.Record(func(ctx *pulumi.Context) error { return DeployInTransit(ctx, config, transit) })
	require.NoError(t, err)
	for _, res := range resources {
		if res.Type != "kubernetes:argoproj.io/v1alpha1:Application" && res.Type != "kubernetes:argoproj.io/v1alpha1:ApplicationSet" {
			continue
		}
		spec, _ := res.Fields["spec"].(map[string]any)
		if source, ok := spec["source"].(map[string]any); ok {
			folders = append(folders, source["path"].(string))
			continue
		}
		git := spec["generators"].([]any)[0].(map[string]any)["git"].(map[string]any)
		for _, directory := range git["directories"].([]any) {
			folders = append(folders, directory.(map[string]any)["path"].(string))
		}
	}
	slices.Sort(folders)
	return resources, folders
}

func componentNames(resources []render.Resource) []string {
	var names []string
	for _, res := range resources {
		if res.Fields == nil && res.Type != "pulumi:pulumi:Stack" {
			names = append(names, res.Name)
		}
	}
	slices.Sort(names)
	return names
}

var (
	platformFolders = []string{
		"stacks/gitops/dev/argocd", "stacks/gitops/dev/crds", "stacks/gitops/dev/holdfast-etcd",
		"stacks/gitops/dev/holdfast-system", "stacks/gitops/dev/s",
	}
	everything = []string{"a", "a", "b", "b", "dev-etcd", "holdfast", "space-s"}
)

func TestEveryRenderedFolderIsThatOfOneUnit(t *testing.T) {
	config := ownersConfig(t, OwnershipGitOps, OwnershipPulumi)
	manifests, err := RenderManifests(config)
	require.NoError(t, err)
	var rendered, owned []string
	for _, manifest := range manifests {
		rendered = append(rendered, manifest.Folder())
	}
	for _, unit := range config.Units() {
		owned = append(owned, config.Folders(unit)...)
	}
	slices.Sort(rendered)
	slices.Sort(owned)
	require.Equal(t, owned, slices.Compact(rendered))
}

func TestDeployRegistersWhatThatIsPulumisAndKeepsTheRest(t *testing.T) {
	both := append(slices.Clone(platformFolders), "stacks/gitops/dev/a", "stacks/gitops/dev/bs")
	slices.Sort(both)
	for _, tc := range []struct {
		name, ownership, tenantA string
		components, folders      []string
	}{
		{"all is Pulumi's", OwnershipPulumi, OwnershipPulumi, everything, nil},
		{"all is GitOps'", OwnershipGitOps, OwnershipGitOps, []string{"gitops"}, both},
		{"one tenant is GitOps'", OwnershipPulumi, OwnershipGitOps, []string{"b", "b", "dev-etcd", "gitops", "holdfast", "space-s"}, []string{"stacks/gitops/dev/a"}},
		{"one tenant is Pulumi's", OwnershipGitOps, OwnershipPulumi, []string{"a", "a", "gitops"}, slices.DeleteFunc(slices.Clone(both), func(f string) bool { return f == "stacks/gitops/dev/a" })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resources, folders := registered(t, ownersConfig(t, tc.ownership, tc.tenantA), Transit{})
			require.Equal(t, tc.components, componentNames(resources))
			require.Equal(t, tc.folders, folders)
		})
	}
}

func TestUnitsInTransitAreRetainedAndSharedWithoutCascade(t *testing.T) {
	for _, ownership := range []string{OwnershipPulumi, OwnershipGitOps} {
		config := ownersConfig(t, ownership, ownership)
		resources, folders := registered(t, config, Transit{Units: config.Units(), Shared: true})
		require.Equal(t, []string{"a", "a", "b", "b", "destroy-guard", "dev-etcd", "gitops", "holdfast", "space-s"}, componentNames(resources))
		require.Len(t, folders, len(platformFolders)+2)
		for _, res := range resources {
			metadata, _ := res.Fields["metadata"].(map[string]any)
			require.NotContains(t, metadata, "finalizers", res.URN)
		}
		require.Equal(t, []string{"a", "a", "b", "b", "dev-etcd", "holdfast", "space-s"}, retained(resources))
	}
}

// retained are the components whose children are all retained: the engine hands the option down.
func retained(resources []render.Resource) []string {
	return componentNames(slices.DeleteFunc(slices.Clone(resources), func(res render.Resource) bool { return !res.RetainOnDelete }))
}

// A destroy without the program is refused by the engine while a resource of the state has a delete hook, and with it what is
// deleted first is what everything else is needed for.
func TestADestroyIsGuardedWhileItWouldLeaveObjectsBehind(t *testing.T) {
	for _, tc := range []struct {
		name, ownership, tenantA string
		cascade                  bool
		transit                  []Unit
		guarded                  bool
	}{
		{"all is Pulumi's", OwnershipPulumi, OwnershipPulumi, false, nil, false},
		{"all is GitOps'", OwnershipGitOps, OwnershipGitOps, false, nil, true},
		{"one tenant is GitOps'", OwnershipPulumi, OwnershipGitOps, false, nil, true},
		{"one tenant is Pulumi's", OwnershipGitOps, OwnershipPulumi, false, nil, true},
		{"objects go with what keeps them", OwnershipGitOps, OwnershipGitOps, true, nil, false},
		{"all is in transit", OwnershipPulumi, OwnershipPulumi, false, []Unit{PlatformUnit, TenantUnit("a"), TenantUnit("b")}, true},
		{"all is in transit, and nothing cascades", OwnershipGitOps, OwnershipGitOps, true, []Unit{PlatformUnit, TenantUnit("a"), TenantUnit("b")}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := ownersConfig(t, tc.ownership, tc.tenantA)
			config.GitOps.Cascade = tc.cascade
			resources, _ := registered(t, config, Transit{Units: tc.transit, Shared: len(tc.transit) > 0})
			i := slices.IndexFunc(resources, func(res render.Resource) bool { return res.Name == destroyGuardName })
			require.Equal(t, tc.guarded, i >= 0)
			if !tc.guarded {
				return
			}
			guard := resources[i]
			require.Equal(t, []string{destroyHook}, guard.BeforeDelete)
			for _, res := range resources {
				if res.Fields != nil && !neededBy(resources, res.URN) {
					require.Contains(t, guard.Dependencies, res.URN, "it could be deleted before the guard")
				}
			}
		})
	}
}

// neededBy reports whether another object depends on the one.
func neededBy(resources []render.Resource, urn string) bool {
	return slices.ContainsFunc(resources, func(res render.Resource) bool {
		return res.Fields != nil && slices.Contains(res.Dependencies, urn)
	})
}

func TestNothingThatIsDestroyedNextHasToBecomeReady(t *testing.T) {
	config := ownersConfig(t, OwnershipGitOps, OwnershipGitOps)
	unawaited := func(destroy bool) map[string]int {
		resources, _ := registered(t, config, Transit{Units: config.Units(), Shared: true, Destroy: destroy})
		types := map[string]int{}
		for _, res := range resources {
			annotations, _, err := unstructured.NestedStringMap(res.Fields, "metadata", "annotations")
			require.NoError(t, err)
			if annotations["pulumi.com/skipAwait"] == "true" {
				types[res.Type]++
			}
		}
		return types
	}
	want := unawaited(false)
	require.NotContains(t, want, "kubernetes:apps/v1:Deployment")
	want["kubernetes:apps/v1:Deployment"], want["kubernetes:apps/v1:StatefulSet"] = 1, 1
	want["kubernetes:dist.system/v1alpha1:LeaseService"] = 2
	want["kubernetes:argoproj.io/v1alpha1:Application"], want["kubernetes:argoproj.io/v1alpha1:ApplicationSet"] = len(platformFolders), 1
	require.Equal(t, want, unawaited(true))
	require.NotContains(t, want, "kubernetes:core/v1:Namespace", "its deletion would not be waited for")
}

func TestOneTenantInTransitLeavesTheOthersAlone(t *testing.T) {
	resources, folders := registered(t, ownersConfig(t, OwnershipPulumi, OwnershipPulumi), Transit{Units: []Unit{TenantUnit("a")}, Shared: true})
	require.Equal(t, []string{"stacks/gitops/dev/a"}, folders)
	require.Equal(t, []string{"a", "a"}, retained(resources))
}

func TestPinnedTenantsKeepTheirOwner(t *testing.T) {
	config := ownersConfig(t, OwnershipGitOps, OwnershipPulumi)
	require.Equal(t, OwnershipPulumi, config.Owner(TenantUnit("a")))
	require.Equal(t, OwnershipGitOps, config.Owner(TenantUnit("b")))
	require.True(t, config.Pinned(TenantUnit("a")))
	require.False(t, config.Pinned(TenantUnit("b")))
	require.False(t, config.Pinned(PlatformUnit))
	require.Empty(t, config.Owner(TenantUnit("x")))
	require.Empty(t, PlatformUnit.Tenant())
	require.Equal(t, "a", TenantUnit("a").Tenant())
}

func TestAnUpdateThatWouldChangeTheOwnerIsRefused(t *testing.T) {
	const (
		prefix   = "urn:pulumi:dev::holdfast::"
		platform = prefix + "holdfast:index:Platform::holdfast"
		etcd     = prefix + "holdfast:index:DevEtcd::dev-etcd"
		space    = prefix + "holdfast:index:TenantSpace::a"
		tenant   = prefix + "holdfast:index:LeaseTenant::a"
		keeper   = prefix + "holdfast:index:GitOpsHandover::gitops"
		object   = prefix + "holdfast:index:GitOpsHandover$kubernetes:"
		operator = object + "argoproj.io/v1alpha1:Application::gitops-application-holdfast-system"
		set      = object + "argoproj.io/v1alpha1:ApplicationSet::gitops-applicationset-tenants"
		fluxA    = object + "kustomize.toolkit.fluxcd.io/v1:Kustomization::gitops-kustomization-a"
		health   = object + "core/v1:ConfigMapPatch::gitops-argocd-cm"
		// The ApplicationSet's folders follow.
		ofA, ofB = set + " a", set + " bs"
	)
	for _, tc := range []struct {
		name, ownership, tenantA string
		state                    []string
		want                     string
	}{
		{"a new stack", OwnershipGitOps, OwnershipGitOps, nil, ""},
		{"Pulumi's stays Pulumi's", OwnershipPulumi, OwnershipPulumi, []string{platform, etcd, space, tenant}, ""},
		{"GitOps' stays GitOps'", OwnershipGitOps, OwnershipGitOps, []string{keeper, operator, health, set + " a bs"}, ""},
		{"each has its part", OwnershipGitOps, OwnershipPulumi, []string{keeper, operator, ofB, space, tenant}, ""},
		{"a tenant that is no more goes", OwnershipPulumi, OwnershipPulumi, []string{keeper, set + " gone", platform}, ""},
		{"the platform would go", OwnershipGitOps, OwnershipPulumi, []string{platform, space}, "the platform is GitOps' by the configuration"},
		{"the etcd would go", OwnershipGitOps, OwnershipPulumi, []string{etcd}, "the platform is GitOps' by the configuration"},
		{"a tenant would go", OwnershipPulumi, OwnershipGitOps, []string{platform, tenant}, "tenant a is GitOps' by the configuration"},
		{"a tenant's space would go", OwnershipPulumi, OwnershipGitOps, []string{platform, space}, "run make handover TO=gitops TENANT=a"},
		{"what keeps it would go", OwnershipPulumi, OwnershipPulumi, []string{keeper, operator}, "run make handover TO=pulumi, which"},
		{"what keeps one tenant would go", OwnershipGitOps, OwnershipPulumi, []string{keeper, operator, ofA}, "run make handover TO=pulumi TENANT=a, which"},
		{"what keeps the platform would go, beside a tenant", OwnershipPulumi, OwnershipGitOps, []string{keeper, operator, ofA}, "the platform is Pulumi's by the configuration"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := checkOwners(ownersConfig(t, tc.ownership, tc.tenantA), "dev", "holdfast", stateOf(tc.state))
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, "holdfast:ownership: ")
		})
	}

	config := ownersConfig(t, OwnershipGitOps, OwnershipGitOps)
	require.ErrorContains(t, checkOwners(config, "dev", "holdfast", stateOf([]string{keeper, fluxA})),
		"holdfast:gitops.flavour: is argocd, but the stack still holds what makes flux keep objects")
	require.ErrorContains(t, checkOwners(config, "prod", "holdfast", stateOf([]string{keeper, fluxA})), "run make handover TO=pulumi ENV=prod, and")
	config.GitOps.Flavour = "flux"
	require.NoError(t, checkOwners(config, "dev", "holdfast", stateOf([]string{keeper, fluxA})))
	require.ErrorContains(t, checkOwners(config, "dev", "holdfast", stateOf([]string{keeper, operator})), "set it back to argocd")
	config = ownersConfig(t, OwnershipGitOps, OwnershipPulumi)
	config.GitOps.Flavour = "flux"
	require.ErrorContains(t, checkOwners(config, "dev", "holdfast", stateOf([]string{keeper, fluxA})), "TENANT=a")
	require.ErrorContains(t, checkOwners(config, "dev", "holdfast", stateOf([]string{set})), "not known which tenants")
}

// stateOf is a state of the URNs; what follows one after a space are the folders of an ApplicationSet.
func stateOf(resources []string) map[string]any {
	state := map[string]any{}
	for _, resource := range resources {
		urn, folders, _ := strings.Cut(resource, " ")
		var directories []any
		for folder := range strings.FieldsSeq(folders) {
			directories = append(directories, map[string]any{"path": "stacks/gitops/dev/" + folder})
		}
		state[urn] = map[string]any{"outputs": map[string]any{"spec": map[string]any{
			"generators": []any{map[string]any{"git": map[string]any{"directories": directories}}},
		}}}
	}
	return state
}

// What an update refuses is told by the names of what the update before it registered.
func TestWhatIsKeptIsToldByTheNamesThatAreRegistered(t *testing.T) {
	for _, flavour := range []components.GitOpsFlavour{components.GitOpsArgoCD, components.GitOpsFlux} {
		config := ownersConfig(t, OwnershipGitOps, OwnershipGitOps)
		config.GitOps.Flavour = flavour
		resources, _ := registered(t, config, Transit{})
		state := map[string]any{}
		for _, res := range resources {
			state[res.URN] = map[string]any{"type": res.Type, "outputs": res.Fields}
		}
		kept, err := keptByGitOps(state)
		require.NoError(t, err)
		require.Equal(t, map[components.GitOpsFlavour]bool{flavour: true}, kept.flavours)
		var folders []string
		for _, unit := range config.Units() {
			folders = append(folders, config.Folders(unit)...)
		}
		slices.Sort(folders)
		require.Equal(t, folders, slices.Sorted(maps.Keys(kept.folders)))
	}
}
