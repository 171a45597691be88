//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/components/render"
	"github.com/holdfast-io/holdfast/test/gitops"
)

// keeper is who keeps the cluster as Git says.
type keeper interface {
	// args of the component for this keeper, by which a commit alone removes a tenant; what all keepers have in common is left out.
	args(tenants ...string) *components.GitOpsHandoverArgs
	// otherArgs are those of the other way to say which folders are tenants'.
	otherArgs(tenants ...string) *components.GitOpsHandoverArgs
	// look has it ask Git now.
	look(ctx context.Context) error
	// unsettled says what is not yet in effect at a commit; "" when everything is, and healthy.
	unsettled(ctx context.Context, commit string) string
	// cascades says what would take objects of the cluster with it if it were deleted; "" when nothing would.
	cascades(ctx context.Context) string
	// kinds are those of the objects that make it keep others.
	kinds() []schema.GroupVersionKind
	// flap says in what an object of these kinds is not as it should be while nothing changes from the commit; "" when all is.
	flap(object *unstructured.Unstructured, commit string) string
	// stop ends the controllers, as if they crashed.
	stop()
}

var (
	applications   = schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Application"}
	kustomizations = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}
	repositories   = schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository"}
)

// argoKeeper is Argo CD.
type argoKeeper struct {
	cluster *testCluster
	argo    *gitops.ArgoCD
}

func newArgoKeeper(t *testing.T, env environment, tc *testCluster) keeper {
	return &argoKeeper{tc, gitops.StartArgoCD(t, tc.Kubeconfig(), env.argocdBin)}
}

// args name the tenants: each has an Application for as long as its folder is in Git.
func (k *argoKeeper) args(tenants ...string) *components.GitOpsHandoverArgs {
	return &components.GitOpsHandoverArgs{Flavour: components.GitOpsArgoCD, InstallHealth: true, Tenants: tenants}
}

func (k *argoKeeper) otherArgs(...string) *components.GitOpsHandoverArgs {
	return &components.GitOpsHandoverArgs{Flavour: components.GitOpsArgoCD, InstallHealth: true, DiscoverTenants: true}
}

func (k *argoKeeper) look(ctx context.Context) error {
	list, err := k.cluster.list(ctx, applications, gitops.ArgoCDNamespace)
	if err != nil {
		return err
	}
	for i := range list {
		if err := k.argo.Refresh(ctx, list[i].GetName()); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return k.argo.RefreshSet(ctx, "holdfast-tenants")
}

func (k *argoKeeper) unsettled(ctx context.Context, commit string) string {
	set := &unstructured.Unstructured{}
	set.SetGroupVersionKind(applications.GroupVersion().WithKind("ApplicationSet"))
	err := k.cluster.client.Get(ctx, client.ObjectKey{Namespace: gitops.ArgoCDNamespace, Name: "holdfast-tenants"}, set)
	if generated := conditionOf(set, "ResourcesUpToDate"); err != nil || generated == nil || generated.Status != metav1.ConditionTrue {
		return fmt.Sprintf("the ApplicationSet: %v, %v", generated, err)
	}
	list, err := k.cluster.list(ctx, applications, gitops.ArgoCDNamespace)
	if err != nil || len(list) == 0 {
		return fmt.Sprintf("%d Applications, %v", len(list), err)
	}
	for i := range list {
		if flap := k.flap(&list[i], commit); flap != "" {
			return flap
		}
	}
	return ""
}

func (k *argoKeeper) kinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		applications, applications.GroupVersion().WithKind("ApplicationSet"), applications.GroupVersion().WithKind("AppProject"),
	}
}

func (k *argoKeeper) flap(object *unstructured.Unstructured, commit string) string {
	if object.GetKind() != applications.Kind {
		return ""
	}
	get := func(path ...string) string {
		value, _, _ := unstructured.NestedString(object.Object, path...)
		return value
	}
	state := get("status", "sync", "status") + " " + get("status", "health", "status")
	phase := get("status", "operationState", "phase") // empty when there was nothing to do since the Application was made
	if state == "Synced Healthy" && (phase == "" || phase == "Succeeded") && get("status", "sync", "revision") == commit {
		return ""
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	return fmt.Sprintf("%s is %q %s at %s: %s %v", object.GetName(), state, phase, get("status", "sync", "revision"),
		get("status", "operationState", "message"), conditions)
}

func (k *argoKeeper) stop() { k.argo.Stop() }

func (k *argoKeeper) cascades(ctx context.Context) string {
	list, err := k.cluster.list(ctx, applications, gitops.ArgoCDNamespace)
	if err != nil {
		return err.Error()
	}
	for i := range list {
		if finalizers := list[i].GetFinalizers(); len(finalizers) > 0 {
			return fmt.Sprintf("%s has %v", list[i].GetName(), finalizers)
		}
	}
	return ""
}

// fluxKeeper is Flux.
type fluxKeeper struct {
	cluster *testCluster
	flux    *gitops.Flux
}

func newFluxKeeper(t *testing.T, env environment, tc *testCluster) keeper {
	return &fluxKeeper{tc, gitops.StartFlux(t, tc.Kubeconfig(), env.fluxBin)}
}

// args name no tenant: whatever folder is in Git is one's.
func (k *fluxKeeper) args(...string) *components.GitOpsHandoverArgs {
	return &components.GitOpsHandoverArgs{Flavour: components.GitOpsFlux, DiscoverTenants: true, Interval: 10 * time.Second}
}

func (k *fluxKeeper) otherArgs(tenants ...string) *components.GitOpsHandoverArgs {
	return &components.GitOpsHandoverArgs{Flavour: components.GitOpsFlux, Tenants: tenants, Interval: 10 * time.Second}
}

func (k *fluxKeeper) look(ctx context.Context) error {
	for _, name := range []string{"holdfast", "holdfast-tenants"} { // the second is there when tenants are discovered
		if err := k.flux.RefreshSource(ctx, gitops.FluxNamespace, name); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

func (k *fluxKeeper) unsettled(ctx context.Context, commit string) string {
	list, err := k.cluster.list(ctx, kustomizations, gitops.FluxNamespace)
	if err != nil || len(list) == 0 {
		return fmt.Sprintf("%d Kustomizations, %v", len(list), err)
	}
	for i := range list {
		revision, _, _ := unstructured.NestedString(list[i].Object, "status", "lastAppliedRevision")
		ready := conditionOf(&list[i], "Ready")
		if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != list[i].GetGeneration() ||
			!strings.HasSuffix(revision, commit) {
			return fmt.Sprintf("%s at %q: %v", list[i].GetName(), revision, ready)
		}
	}
	return ""
}

func (k *fluxKeeper) kinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{kustomizations, repositories}
}

// flap takes a Kustomization that Flux looks at, as it does at each interval, for what it was before and is after that: its
// Ready is Unknown in between.
func (k *fluxKeeper) flap(object *unstructured.Unstructured, commit string) string {
	ready := conditionOf(object, "Ready")
	looking := ready != nil && object.GetKind() == kustomizations.Kind && ready.Status == metav1.ConditionUnknown && ready.Reason == "Progressing"
	if ready == nil || ready.Status != metav1.ConditionTrue && !looking && !postponed(object) || ready.ObservedGeneration != object.GetGeneration() {
		return fmt.Sprintf("%s %s: %+v", object.GetKind(), object.GetName(), ready)
	}
	for _, path := range [][]string{{"lastAppliedRevision"}, {"lastAttemptedRevision"}, {"artifact", "revision"}} {
		revision, found, _ := unstructured.NestedString(object.Object, append([]string{"status"}, path...)...)
		if found && !strings.HasSuffix(revision, commit) {
			return fmt.Sprintf("%s %s: %v is %s", object.GetKind(), object.GetName(), path, revision)
		}
	}
	return ""
}

// postponed reports whether Flux puts off looking at a Kustomization because just then it looks at one that this depends on, whose
// Ready is Unknown meanwhile. It applies nothing, and what was applied stays.
func postponed(object *unstructured.Unstructured) bool {
	ready := conditionOf(object, "Ready")
	return object.GetKind() == kustomizations.Kind && ready != nil && ready.Reason == "DependencyNotReady"
}

func (k *fluxKeeper) stop() { k.flux.Stop() }

func (k *fluxKeeper) cascades(ctx context.Context) string {
	list, err := k.cluster.list(ctx, kustomizations, gitops.FluxNamespace)
	if err != nil {
		return err.Error()
	}
	for i := range list {
		if policy, _, _ := unstructured.NestedString(list[i].Object, "spec", "deletionPolicy"); policy != "Orphan" {
			return fmt.Sprintf("%s has %s", list[i].GetName(), policy)
		}
	}
	return ""
}

func conditionOf(object *unstructured.Unstructured, kind string) *metav1.Condition {
	items, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	var conditions []metav1.Condition
	for _, item := range items {
		fields, _ := item.(map[string]any)
		observed, _ := fields["observedGeneration"].(int64)
		conditions = append(conditions, metav1.Condition{
			Type: fmt.Sprint(fields["type"]), Status: metav1.ConditionStatus(fmt.Sprint(fields["status"])),
			Reason: fmt.Sprint(fields["reason"]), Message: fmt.Sprint(fields["message"]), ObservedGeneration: observed,
		})
	}
	return meta.FindStatusCondition(conditions, kind)
}

func (tc *testCluster) list(ctx context.Context, kind schema.GroupVersionKind, namespace string) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	err := tc.client.List(ctx, list, client.InNamespace(namespace))
	return list.Items, err
}

// stagesOf are the objects of a GitOpsHandover as the component makes them, in the order in which they are applied.
func stagesOf(t *testing.T, args *components.GitOpsHandoverArgs) [][]*unstructured.Unstructured {
	t.Helper()
	resources, err := render.Record(func(ctx *pulumi.Context) error {
		_, err := components.NewGitOpsHandover(ctx, "gitops", args)
		return err
	})
	require.NoError(t, err)
	stages := map[string][]*unstructured.Unstructured{}
	for _, resource := range resources {
		if resource.Fields == nil {
			continue
		}
		object := &unstructured.Unstructured{Object: resource.Fields}
		annotations := object.GetAnnotations()
		maps.DeleteFunc(annotations, func(key, _ string) bool { return strings.HasPrefix(key, "pulumi.com/") })
		object.SetAnnotations(annotations)
		stage := object.GetLabels()[components.LabelGitOpsStage]
		stages[stage] = append(stages[stage], object)
	}
	return [][]*unstructured.Unstructured{stages[""], stages["crds"], stages["platform"], stages["tenants"]}
}

func (tc *testCluster) apply(t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, object := range objects {
		// The client writes the answer into what it is given.
		require.NoError(t, tc.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object.DeepCopy()),
			client.FieldOwner("e2e"), client.ForceOwnership), "%s %s", object.GetKind(), object.GetName())
	}
}

// ownObjects are all but Argo CD's ConfigMap, to which the component only adds.
func ownObjects(stage []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(stage), func(object *unstructured.Unstructured) bool { return object.GetName() == "argocd-cm" })
}

// removeStages deletes the stages in reverse, each gone before the one that it depends on.
func (tc *testCluster) removeStages(t *testing.T, stages [][]*unstructured.Unstructured) {
	t.Helper()
	for _, stage := range slices.Backward(stages) {
		stage = ownObjects(stage)
		for _, object := range stage {
			err := tc.client.Delete(t.Context(), object, client.PropagationPolicy(metav1.DeletePropagationForeground))
			require.NoError(t, client.IgnoreNotFound(err))
		}
		for _, object := range stage {
			eventually(t, 3*time.Minute, object.GetKind()+" "+object.GetName()+" is gone", func(ctx context.Context) string {
				live := object.DeepCopy()
				if err := tc.client.Get(ctx, client.ObjectKeyFromObject(object), live); !apierrors.IsNotFound(err) {
					return fmt.Sprintf("%v, finalizers %v, %v", err, live.GetFinalizers(), live.Object["status"])
				}
				return ""
			})
		}
	}
}
