package live

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Keeper is what keeps one folder of Git in the cluster: an Application of Argo CD, or a Kustomization of Flux.
type Keeper struct {
	// Name is kind, namespace and name.
	Name string
	// Folder is the path in the repository.
	Folder string
	// Waiting says why it is not in effect at the commit that was asked for; empty when it is.
	Waiting string
	// Cascades says that what it keeps would be deleted with it.
	Cascades bool

	object unstructured.Unstructured
}

// Object is the Application or Kustomization, as it was read.
func (k *Keeper) Object() *unstructured.Unstructured { return &k.object }

// ArgoKeepers reads the Applications in the namespace. Commit is the one that each should be in effect at.
func (c *Cluster) ArgoKeepers(ctx context.Context, namespace, commit string) ([]Keeper, error) {
	objects, err := c.List(ctx, "argoproj.io/v1alpha1", "Application", namespace)
	if err != nil {
		return nil, err
	}
	keepers := make([]Keeper, 0, len(objects))
	for i := range objects {
		keepers = append(keepers, Keeper{
			Name:     Name(objects[i].Object),
			Folder:   strings.Trim(text(&objects[i], "spec", "source", "path"), "/"),
			Waiting:  argoWaiting(&objects[i], commit),
			Cascades: len(objects[i].GetFinalizers()) > 0,
			object:   objects[i],
		})
	}
	return keepers, nil
}

func argoWaiting(app *unstructured.Unstructured, commit string) string {
	for _, want := range []struct {
		what, value string
		path        []string
	}{
		{"sync status", "Synced", []string{"status", "sync", "status"}},
		{"revision", commit, []string{"status", "sync", "revision"}},
		{"health", "Healthy", []string{"status", "health", "status"}},
		{"operation", "Succeeded", []string{"status", "operationState", "phase"}},
	} {
		if value := text(app, want.path...); value != want.value {
			reason := fmt.Sprintf("%s is %q, not %q", want.what, value, want.value)
			if message := text(app, "status", "operationState", "message"); message != "" {
				reason += " (" + message + ")"
			}
			return reason
		}
	}
	return ""
}

// FluxKeepers reads the Kustomizations in the namespace.
func (c *Cluster) FluxKeepers(ctx context.Context, namespace, commit string) ([]Keeper, error) {
	objects, err := c.List(ctx, "kustomize.toolkit.fluxcd.io/v1", "Kustomization", namespace)
	if err != nil {
		return nil, err
	}
	keepers := make([]Keeper, 0, len(objects))
	for i := range objects {
		prune, _, _ := unstructured.NestedBool(objects[i].Object, "spec", "prune")
		keepers = append(keepers, Keeper{
			Name:     Name(objects[i].Object),
			Folder:   strings.Trim(strings.TrimPrefix(text(&objects[i], "spec", "path"), "."), "/"),
			Waiting:  fluxWaiting(&objects[i], commit),
			Cascades: prune && text(&objects[i], "spec", "deletionPolicy") != "Orphan",
			object:   objects[i],
		})
	}
	return keepers, nil
}

func fluxWaiting(object *unstructured.Unstructured, commit string) string {
	ready, err := condition(object, "Ready")
	if err != nil {
		return err.Error()
	}
	switch {
	case ready == nil:
		return "it has no condition Ready yet"
	case ready.ObservedGeneration != object.GetGeneration():
		return fmt.Sprintf("condition Ready is of generation %d, not %d", ready.ObservedGeneration, object.GetGeneration())
	case ready.Status != metav1.ConditionTrue:
		return fmt.Sprintf("condition Ready is %s: %s", ready.Status, ready.Message)
	}
	if applied := text(object, "status", "lastAppliedRevision"); !strings.HasSuffix(applied, commit) {
		return fmt.Sprintf("the revision applied is %q, not %q", applied, commit)
	}
	return ""
}

func condition(object *unstructured.Unstructured, conditionType string) (*metav1.Condition, error) {
	var status struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &status); err != nil {
		return nil, fmt.Errorf("read the conditions: %w", err)
	}
	return meta.FindStatusCondition(status.Status.Conditions, conditionType), nil
}

// Hurry asks a keeper to look at Git now rather than at its next interval.
func (c *Cluster) Hurry(ctx context.Context, keeper Keeper, now time.Time) error {
	if keeper.object.GetKind() == "Application" {
		return c.Annotate(ctx, &keeper.object, "argocd.argoproj.io/refresh", "normal")
	}
	return c.Annotate(ctx, &keeper.object, "reconcile.fluxcd.io/requestedAt", now.UTC().Format(time.RFC3339Nano))
}

// keeperFinalizers are those by which Argo CD and Flux have a say in the deletion of their own objects. Argo CD has variants
// of its one, with a "/" and the way to delete.
var keeperFinalizers = []string{"resources-finalizer.argocd.argoproj.io", "finalizers.fluxcd.io"}

// LetGo takes the finalizers of Argo CD and Flux off an object of theirs, unless it has changed since it was read.
func (c *Cluster) LetGo(ctx context.Context, object *unstructured.Unstructured) error {
	kept := othersFinalizers(object.GetFinalizers())
	if len(kept) == len(object.GetFinalizers()) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"finalizers": kept, "resourceVersion": object.GetResourceVersion(),
	}})
	if err != nil {
		return err
	}
	err = c.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	// A change in between, or its end, is looked at the next time.
	if err = client.IgnoreNotFound(err); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("take the finalizers off %s: %w", Name(object.Object), err)
	}
	return nil
}

func othersFinalizers(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(finalizer string) bool {
		name, _, _ := strings.Cut(finalizer, "/")
		return slices.Contains(keeperFinalizers, name)
	})
}

func text(object *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(object.Object, path...)
	return value
}
