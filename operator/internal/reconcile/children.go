package reconcile

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

const (
	// conflictRecheck is the time after which a foreign object is looked at again: it is not ours, so its going
	// starts no pass.
	conflictRecheck = 30 * time.Second
	// refusedRecheck is the time after which a child that the API server refused is tried again, for what
	// refused it (a policy, an admission webhook) may change without an event.
	refusedRecheck = 5 * time.Minute
)

type verb string

const (
	verbCreate verb = "create"
	verbUpdate verb = "update"
	verbDelete verb = "delete"
	// verbReclaim makes fields that a repair replaced (see writer.repair) fields of our apply again.
	verbReclaim verb = "reclaim"
)

// change is one write that a pass wants.
type change struct {
	verb   verb
	key    objectKey
	intent *unstructured.Unstructured // what to apply; nil for a delete
	live   client.Object              // what was decided on; nil for a create
	field  string                     // the first field that differs, for an update
}

func (c change) String() string {
	what := fmt.Sprintf("%s %s %s", c.verb, c.key.kind.Kind, c.key.name.Name)
	if c.field != "" {
		what += " (" + c.field + ")"
	}
	return what
}

// mark identifies an update: the state that it was decided on, and what it sends.
func (c change) mark() string {
	hash := fnv.New64a()
	// Maps are marshalled in the order of their keys. An intent came from JSON, so it can be marshalled.
	_ = json.NewEncoder(hash).Encode(c.intent.Object)
	return fmt.Sprintf("%s/%s/%x", c.live.GetUID(), c.live.GetResourceVersion(), hash.Sum64())
}

// children is what the cache has of one owner's children.
type children struct {
	live  map[objectKey]client.Object
	read  map[schema.GroupKind]bool // the types that were looked at
	prune map[schema.GroupKind]bool // those of which nothing else may stay
}

// intentsOf turns the desired children of a plan into what is sent for them.
func intentsOf(owner client.Object, desired []client.Object, scheme *runtime.Scheme) ([]*unstructured.Unstructured, error) {
	intents := make([]*unstructured.Unstructured, 0, len(desired))
	seen := map[objectKey]bool{}
	for _, child := range desired {
		intent, err := intentOf(child, scheme)
		if err != nil {
			return nil, err
		}
		if err := controllerutil.SetControllerReference(owner, intent, scheme); err != nil {
			return nil, fmt.Errorf("own child %s: %w", child.GetName(), err)
		}
		key := keyOf(intent.GroupVersionKind(), intent)
		if seen[key] {
			return nil, fmt.Errorf("the plan has two children %s %s", key.kind.Kind, key.name)
		}
		seen[key] = true
		intents = append(intents, intent)
	}
	return intents, nil
}

func keyOf(gvk schema.GroupVersionKind, obj client.Object) objectKey {
	return objectKey{kind: gvk.GroupKind(), name: client.ObjectKeyFromObject(obj)}
}

// childReader reads an owner's children from the cache: a list by the index of controllers for each type, and a get for
// each desired child that is not among them, to see whose it is.
type childReader struct {
	reader client.Reader
	scheme *runtime.Scheme
	index  string
}

func (r childReader) read(ctx context.Context, owner client.Object, intents []*unstructured.Unstructured, prune []client.Object) (children, error) {
	found := children{
		live: map[objectKey]client.Object{}, read: map[schema.GroupKind]bool{}, prune: map[schema.GroupKind]bool{},
	}
	for _, prototype := range prune {
		gvk, err := apiutil.GVKForObject(prototype, r.scheme)
		if err != nil {
			return found, fmt.Errorf("type to prune: %w", err)
		}
		found.prune[gvk.GroupKind()] = true
		if err := r.list(ctx, gvk, owner, found); err != nil {
			return found, err
		}
	}
	for _, intent := range intents {
		if err := r.list(ctx, intent.GroupVersionKind(), owner, found); err != nil {
			return found, err
		}
		if err := r.get(ctx, intent, found.live); err != nil {
			return found, err
		}
	}
	return found, nil
}

func (r childReader) list(ctx context.Context, gvk schema.GroupVersionKind, owner client.Object, found children) error {
	if found.read[gvk.GroupKind()] {
		return nil
	}
	found.read[gvk.GroupKind()] = true
	raw, err := r.scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return fmt.Errorf("list %s: %w", gvk.Kind, err)
	}
	list, ok := raw.(client.ObjectList)
	if !ok {
		return fmt.Errorf("list %s: %T is no list of objects", gvk.Kind, raw)
	}
	// What comes back is the cache's own: it is read here, and never changed.
	err = r.reader.List(ctx, list, client.InNamespace(owner.GetNamespace()),
		client.MatchingFields{r.index: string(owner.GetUID())}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list %s: %w", gvk.Kind, err)
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		obj, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("list %s: %T is no object", gvk.Kind, item)
		}
		found.live[keyOf(gvk, obj)] = obj
		return nil
	})
}

func (r childReader) get(ctx context.Context, intent *unstructured.Unstructured, live map[objectKey]client.Object) error {
	gvk := intent.GroupVersionKind()
	key := keyOf(gvk, intent)
	if live[key] != nil {
		return nil
	}
	raw, err := r.scheme.New(gvk)
	if err != nil {
		return fmt.Errorf("get %s: %w", gvk.Kind, err)
	}
	obj, ok := raw.(client.Object)
	if !ok {
		return fmt.Errorf("get %s: %T is no object", gvk.Kind, raw)
	}
	switch err := r.reader.Get(ctx, key.name, obj); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get %s %s: %w", gvk.Kind, key.name, err)
	}
	live[key] = obj
	return nil
}

// changesOf decides what to write. It is pure. The error is what keeps some child from being written, beside the
// changes that can be made; with a *StalledError there are none.
func changesOf(owner client.Object, kind schema.GroupKind, intents []*unstructured.Unstructured, found children, scheme *runtime.Scheme) ([]change, error) {
	var changes []change
	var foreign []string
	var waiting error
	desired := map[objectKey]bool{}
	for _, intent := range intents {
		key := keyOf(intent.GroupVersionKind(), intent)
		desired[key] = true
		live := found.live[key]
		switch claimOf(owner, kind, live) {
		case claimAbsent:
			changes = append(changes, change{verb: verbCreate, key: key, intent: intent})
		case claimOurs, claimOrphan:
			current, err := unstructuredOf(live, scheme)
			if err != nil {
				return nil, err
			}
			switch field := driftOf(intent, current); {
			case wasRepaired(live):
				changes = append(changes, change{verb: verbReclaim, key: key, live: live})
			case field != "":
				changes = append(changes, change{verb: verbUpdate, key: key, intent: intent, live: live, field: field})
			}
		case claimPredecessor:
			waiting = Wait(catchUp, v1alpha1.ReasonProgressing, "%s %s of the deleted %s of the same name is not garbage collected yet", key.kind.Kind, key.name.Name, kind.Kind)
		case claimLeaving:
			waiting = Wait(catchUp, v1alpha1.ReasonProgressing, "%s %s is being deleted, and is made anew then", key.kind.Kind, key.name.Name)
		case claimForeign:
			foreign = append(foreign, fmt.Sprintf("%s %s exists and %s", key.kind.Kind, key.name.Name, ownerInWords(live)))
		}
	}
	if len(foreign) > 0 {
		return nil, &StalledError{
			Reason: v1alpha1.ReasonConflict, After: conflictRecheck,
			Message: strings.Join(foreign, "; ") + ": delete it, or give this object another name",
		}
	}
	return append(changes, pruneOf(owner, kind, desired, found)...), waiting
}

func pruneOf(owner client.Object, kind schema.GroupKind, desired map[objectKey]bool, found children) []change {
	var changes []change
	for _, key := range sortedKeys(found.live) {
		live := found.live[key]
		if found.prune[key.kind] && !desired[key] && claimOf(owner, kind, live) == claimOurs {
			changes = append(changes, change{verb: verbDelete, key: key, live: live})
		}
	}
	return changes
}

func sortedKeys(live map[objectKey]client.Object) []objectKey {
	return slices.SortedFunc(maps.Keys(live), func(a, b objectKey) int {
		return cmp.Or(strings.Compare(a.kind.String(), b.kind.String()), strings.Compare(a.name.String(), b.name.String()))
	})
}
