package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Touch is one change of an object that somebody else made and keeps. Such an object is never created, never deleted and
// never controlled; a kind touches few of its fields, which its documentation names, and only asks for a touch that
// changes something. The request carries the UID and the resource version of the object that was decided on.
//
// Exactly one of Apply and Patch is set.
type Touch struct {
	// Object is the object as it was read.
	Object client.Object

	// What says the change in words, without times and random names. It follows "would".
	What string

	// Apply are fields that are this operator's from then on: they are applied by force under its field manager. They
	// must be all that it ever applies to the object, since an apply takes away what an earlier one had besides.
	Apply map[string]any

	// Patch are fields that are written once and are the other owner's before and after.
	Patch map[string]any
}

// HeldBack makes the error of an object that is paused and would otherwise be changed, for a kind that writes down what it
// decides before it does it. The message is the one of the conditions; see WaitError.
func HeldBack(format string, args ...any) error {
	return &errHeld{message: fmt.Sprintf(format, args...)}
}

// touch makes the plan's touches. One that fails keeps none of the others back, since each is of an object of its own and
// follows from what is written already: an object that cannot be touched must not keep a rollback from the rest. The first
// failure ends the pass.
func (r *Reconciler[T, O]) touch(ctx context.Context, p *pass[T, O]) error {
	var first error
	for _, t := range p.plan.Touches {
		if r.kind.Paused != nil && r.kind.Paused(p.obj) {
			return &errHeld{message: "paused: would " + t.What}
		}
		if err := r.touchOne(ctx, p, t); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (r *Reconciler[T, O]) touchOne(ctx context.Context, p *pass[T, O], t Touch) error {
	gvk, err := apiutil.GVKForObject(t.Object, r.deps.Client.Scheme())
	if err != nil {
		return fmt.Errorf("%s: %w", t.What, err)
	}
	key := keyOf(gvk, t.Object)
	if r.ledger.behind(p.req.NamespacedName, key, t.Object, p.now) {
		return &errOutdated{cause: errors.New("the cache lags behind our last write to an object that is touched")}
	}
	intent := &unstructured.Unstructured{Object: map[string]any{}}
	for name, value := range t.Apply {
		intent.Object[name] = value
	}
	intent.SetGroupVersionKind(gvk)
	intent.SetNamespace(t.Object.GetNamespace())
	intent.SetName(t.Object.GetName())
	intent.SetUID(t.Object.GetUID())
	intent.SetResourceVersion(t.Object.GetResourceVersion())
	version, err := r.writer.touch(ctx, t, intent)
	if err != nil {
		return err
	}
	r.wrote(p, key, "touch", version)
	p.log.Info("touched an object of somebody else", "change", t.What)
	return nil
}

func (w writer) touch(ctx context.Context, t Touch, intent *unstructured.Unstructured) (string, error) {
	var err error
	if t.Patch == nil {
		err = w.apply(ctx, intent)
	} else {
		err = w.patchOnce(ctx, t, intent)
	}
	if apierrors.IsNotFound(err) {
		return "", &errOutdated{cause: err}
	}
	return intent.GetResourceVersion(), classify(err, t.What)
}

func (w writer) patchOnce(ctx context.Context, t Touch, obj *unstructured.Unstructured) error {
	content := map[string]any{"metadata": map[string]any{
		"uid": string(t.Object.GetUID()), "resourceVersion": t.Object.GetResourceVersion(),
	}}
	for name, value := range t.Patch {
		content[name] = value
	}
	patch, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return w.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(FieldManager))
}
