package namespaces

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/holdfast-io/holdfast/crds"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

// record is the ConfigMap crds.WatchRecord: its keys are the namespaces in which this operator may have left finalizers.
// A namespace is in it from before it is watched until a look has found none of them, so that no marker and no Role has
// to outlive an operator that is away for the operator to come back to them.
//
// The finalizers themselves do not say which operator they are of, and what an object says of itself is its owner's to write:
// a namespace's tenant could call any operator of the cluster into it.
//
// Replicas write the same keys beside one another: each patch names only what it changes, and says the same whoever sends it.
// It is not safe for concurrent use.
type record struct {
	maps clientcorev1.ConfigMapInterface
	// timeout bounds a request.
	timeout time.Duration
	// names are the keys that are known to be there.
	names sets.Set[string]
	// until is when those that were dropped may be looked at again.
	until map[string]time.Time
}

func newRecord(maps clientcorev1.ConfigMapInterface, timeout time.Duration) *record {
	return &record{maps: maps, timeout: timeout, names: sets.New[string](), until: map[string]time.Time{}}
}

// load reads what an earlier operator has left.
func (r *record) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	found, err := r.maps.Get(ctx, crds.WatchRecord, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read which namespaces were watched before: %w", err)
	}
	r.names = r.names.Union(sets.KeySet(found.Data))
	return nil
}

// keep notes namespaces. It writes only what is not known to be there.
func (r *record) keep(ctx context.Context, names ...string) error {
	names = slices.DeleteFunc(names, r.names.Has)
	if err := r.write(ctx, names, "watched"); err != nil {
		return err
	}
	r.names.Insert(names...)
	return nil
}

// renew notes a namespace again, since another replica may have struck it out.
func (r *record) renew(ctx context.Context, name string) error {
	r.names.Delete(name)
	return r.keep(ctx, name)
}

// forget strikes a namespace out. Another replica may have done so already.
func (r *record) forget(ctx context.Context, name string) error {
	if err := r.write(ctx, []string{name}, nil); err != nil {
		return err
	}
	r.names.Delete(name)
	delete(r.until, name)
	return nil
}

// rest has a namespace that was just dropped wait for a while: passes that are under way end meanwhile.
func (r *record) rest(name string, wait time.Duration) { r.until[name] = time.Now().Add(wait) }

func (r *record) rests(name string) bool { return time.Now().Before(r.until[name]) }

// write gives keys a value; nil removes them.
func (r *record) write(ctx context.Context, names []string, value any) error {
	if len(names) == 0 {
		return nil
	}
	data := map[string]any{}
	for _, name := range names {
		data[name] = value
	}
	patch, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		return fmt.Errorf("note which namespaces are watched: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	if _, err := r.maps.Patch(ctx, crds.WatchRecord, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: reconcile.FieldManager}); err != nil {
		return fmt.Errorf("note which namespaces are watched: %w", err)
	}
	return nil
}
