package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writer makes the writes of a pass to children.
type writer struct {
	client client.Client
}

// write makes one change, and returns the resource version that the object has then ("" for a delete).
func (w writer) write(ctx context.Context, c change) (string, error) {
	switch c.verb {
	case verbCreate:
		return w.create(ctx, c)
	case verbUpdate:
		return w.update(ctx, c)
	case verbReclaim:
		return w.reclaim(ctx, c)
	case verbDelete:
		return "", w.delete(ctx, c)
	}
	return "", fmt.Errorf("no such verb: %s", c.verb)
}

func (w writer) apply(ctx context.Context, intent *unstructured.Unstructured) error {
	return w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(intent), client.FieldOwner(FieldManager), client.ForceOwnership)
}

func (w writer) create(ctx context.Context, c change) (string, error) {
	intent := onlyCreate(c.intent)
	err := w.apply(ctx, intent)
	if existsAlready(err) {
		return "", &errOutdated{cause: err}
	}
	return intent.GetResourceVersion(), classify(err, c.String())
}

// update applies to the very object, in the very state, that was decided on. Without it, an operator that was paused and
// wakes up after another took over would put an old intent over a newer one.
func (w writer) update(ctx context.Context, c change) (string, error) {
	intent := c.intent.DeepCopy()
	intent.SetUID(c.live.GetUID())
	intent.SetResourceVersion(c.live.GetResourceVersion())
	err := w.apply(ctx, intent)
	if apierrors.IsInvalid(err) {
		return w.repair(ctx, c, err)
	}
	return intent.GetResourceVersion(), classify(err, c.String())
}

// repair puts an object right that an apply cannot: when somebody changed the key of an item of ours in a list (the number
// of a port), the item is theirs now, and an apply adds ours beside it, which the API server may refuse (two ports
// of one name). So each list of the intent is replaced as a whole, which takes away items that others added to it:
// that is why it comes second. The fields then belong to an update; the next pass reclaims them.
func (w writer) repair(ctx context.Context, c change, refused error) (string, error) {
	content := map[string]any{"metadata": map[string]any{
		"uid": string(c.live.GetUID()), "resourceVersion": c.live.GetResourceVersion(),
	}}
	for name, value := range c.intent.Object {
		if name != "metadata" && name != "apiVersion" && name != "kind" {
			content[name] = value
		}
	}
	patch, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("%s: %w", c, err)
	}
	obj := c.intent.DeepCopy()
	err = w.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(FieldManager))
	if apierrors.IsInvalid(err) {
		return "", classify(refused, c.String())
	}
	return obj.GetResourceVersion(), classify(err, c.String())
}

// wasRepaired tells whether fields of an object belong to an update of ours. Only repair makes any.
func wasRepaired(live client.Object) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == FieldManager && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == ""
	})
}

// reclaim turns the fields of our update into fields of our apply. Until then an apply that leaves one out does not remove
// it. The patch names the resource version that it was made for.
func (w writer) reclaim(ctx context.Context, c change) (string, error) {
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(c.live, sets.New(FieldManager), FieldManager)
	if err != nil {
		return "", fmt.Errorf("%s: %w", c, err)
	}
	obj := c.live.DeepCopyObject().(client.Object)
	err = w.client.Patch(ctx, obj, client.RawPatch(types.JSONPatchType, patch))
	return obj.GetResourceVersion(), classify(err, c.String())
}

// delete deletes with both preconditions: the UID spares a new object of the same name, the resource version one that was
// given to somebody else after the cache saw it.
func (w writer) delete(ctx context.Context, c change) error {
	uid, version := c.live.GetUID(), c.live.GetResourceVersion()
	err := w.client.Delete(ctx, c.live.DeepCopyObject().(client.Object),
		client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	return classify(client.IgnoreNotFound(err), c.String())
}

// graceField is what onlyCreate sets, as the API server names it in its refusal.
const graceField = "deletionGracePeriodSeconds"

// onlyCreate makes an apply fail when the object exists. Server-side apply has no such option, and without it an object
// that somebody made a moment ago, or that the cache doesn't show yet, would be taken over. The field is one that the
// server clears on creation and refuses to change afterwards, so the apply is atomic with the check.
//
// Rejected: to create without apply, since the fields would then belong to an update and never be removed; and to ask
// the API server first, which is a request more for each child and leaves the race.
func onlyCreate(intent *unstructured.Unstructured) *unstructured.Unstructured {
	intent = intent.DeepCopy()
	if metadata, ok := intent.Object["metadata"].(map[string]any); ok {
		metadata[graceField] = int64(0)
	}
	return intent
}

func existsAlready(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "metadata."+graceField {
			return true
		}
	}
	return false
}
