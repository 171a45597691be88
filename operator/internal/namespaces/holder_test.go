package namespaces_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/crds"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// znode makes a ZooKeeperConfig that has the operator's finalizer.
func (w *world) znode(namespace string) *unstructured.Unstructured {
	w.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"path": "/" + namespace, "stringData": "x"}}}
	obj.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ZooKeeperConfig"))
	obj.SetNamespace(namespace)
	obj.SetName("held")
	obj.SetFinalizers([]string{v1alpha1.FinalizerZnode})
	require.NoError(w, w.admin.Create(w.ctx, obj))
	w.Cleanup(func() {
		obj.SetFinalizers(nil)
		if err := w.admin.Update(context.WithoutCancel(w.ctx), obj); err != nil {
			w.Errorf("let the object go: %v", err)
		}
	})
	return obj
}

func (w *world) goneFrom(space string) {
	w.Helper()
	w.eventually("it is let go", func() error {
		if w.cache.Watches(space) {
			return errors.New("still watched")
		}
		return nil
	})
}

// An operator that starts after the marker and its own Role have gone comes back to the namespace, as its record has it. It stays
// away from those of other operators, whose finalizers are the same.
func TestANamespaceIsKeptThroughARestart(t *testing.T) {
	w := newWorld(t)
	own, space, foreign := w.home(), w.namespace(), w.namespace()
	w.allow(space)
	held := w.znode(space)
	w.znode(foreign)
	marker := w.configMap(own, "watch", map[string]string{crds.WatchLabel: space})
	var writes atomic.Int32
	w.refuse = func(req *http.Request) bool {
		if req.Method == http.MethodPatch {
			writes.Add(1)
		}
		return false
	}
	stop := w.run(own)
	require.Equal(t, []string{space}, w.recorded(own))
	stop()
	writes.Store(0)
	stop = w.run(own)
	require.True(t, w.cache.Watches(space))
	require.Zero(t, writes.Load(), "what is on record is not written again")
	stop()

	require.NoError(t, w.admin.Delete(w.ctx, marker))
	require.NoError(t, w.admin.Delete(w.ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: w.user}}))
	w.run(own)
	require.True(t, w.cache.Watches(space))
	require.False(t, w.cache.Watches(foreign))
	held.SetFinalizers(nil)
	require.NoError(t, w.admin.Update(w.ctx, held))
	w.goneFrom(space)
	w.forgets(own)
}

// What lost its marker while no operator ran, and needs none, is struck out without being watched.
func TestANamespaceWithoutFinalizersIsForgotten(t *testing.T) {
	w := newWorld(t)
	own, space := w.home(), w.namespace()
	marker := w.configMap(own, "watch", map[string]string{crds.WatchLabel: space})
	stop := w.run(own)
	require.Equal(t, []string{space}, w.recorded(own))
	stop()
	require.NoError(t, w.admin.Delete(w.ctx, marker))
	w.run(own)
	w.forgets(own)
	require.False(t, w.cache.Watches(space))
}

// A pass that was under way when a namespace was dropped may add a finalizer: it is seen before the namespace is forgotten.
func TestAFinalizerThatComesLate(t *testing.T) {
	w := newWorld(t)
	own, space := w.home(), w.namespace()
	w.allow(space)
	marker := w.configMap(own, "watch", map[string]string{crds.WatchLabel: space})
	var looks atomic.Int32
	var late atomic.Bool
	w.refuse = func(req *http.Request) bool {
		return strings.Contains(req.URL.Path, "/namespaces/"+space+"/zookeeperconfigs") && looks.Add(1) > 1 && !late.Load()
	}
	w.run(own)
	require.NoError(t, w.admin.Delete(w.ctx, marker))
	w.goneFrom(space)
	held := w.znode(space)
	late.Store(true)
	w.eventually("it is watched again", func() error {
		if !w.cache.Watches(space) {
			return errors.New("not watched")
		}
		return nil
	})
	require.Equal(t, []string{space}, w.recorded(own))
	held.SetFinalizers(nil)
	require.NoError(t, w.admin.Update(w.ctx, held))
	w.goneFrom(space)
	w.forgets(own)
}

// A namespace of the record that cannot be looked into is said to be so, and is not forgotten.
func TestANamespaceThatCannotBeLookedInto(t *testing.T) {
	w := newWorld(t)
	own, space := w.home(), w.namespace()
	w.configMap(own, "watch", map[string]string{crds.WatchLabel: space})
	w.run(own)()
	w.refuse = func(req *http.Request) bool {
		return strings.HasSuffix(req.URL.Path, "/namespaces/"+space+"/zookeeperconfigs")
	}
	require.NoError(t, w.admin.DeleteAllOf(w.ctx, &corev1.ConfigMap{}, client.InNamespace(own), client.HasLabels{crds.WatchLabel}))
	w.run(own)
	w.says("whether there are finalizers in a namespace that was watched cannot be told")
	require.Equal(t, []string{space}, w.recorded(own))
}

// An operator whose record is missing serves all the same, and says what may come of it.
func TestWithoutARecordNamespacesAreServed(t *testing.T) {
	w := newWorld(t)
	own, space := w.home(), w.namespace()
	w.allow(space)
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: crds.WatchRecord}}
	require.NoError(t, w.admin.Delete(w.ctx, record))
	w.configMap(own, "watch", map[string]string{crds.WatchLabel: space})
	w.run(own)
	require.True(t, w.cache.Watches(space))
	w.says("a restart may forget namespaces that are watched")
	w.configMap(own, crds.WatchRecord, nil)
	w.eventually("it is noted as soon as there is a record", func() error {
		if len(w.recorded(own)) == 0 {
			return errors.New("not noted")
		}
		return nil
	})
}

// forgets waits until the record is empty.
func (w *world) forgets(own string) {
	w.Helper()
	w.eventually("it is forgotten", func() error {
		if left := w.recorded(own); len(left) > 0 {
			return fmt.Errorf("the record has %v", left)
		}
		return nil
	})
}

// cut is a transport that some requests do not get through.
type cut struct {
	http.RoundTripper
	refuse func(*http.Request) bool
}

func (c cut) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.refuse(req) {
		return nil, errors.New("the connection is broken")
	}
	return c.RoundTripper.RoundTrip(req)
}

// A namespace whose objects were never told holds nobody up when its marker goes, and is kept until it can be told what it has.
func TestANamespaceThatNeverSyncedHoldsNobodyUp(t *testing.T) {
	w := newWorld(t)
	own, space, next := w.home(), w.namespace(), w.namespace()
	for _, each := range []string{space, next} {
		w.allow(each)
	}
	var fails atomic.Bool
	fails.Store(true)
	w.refuse = func(req *http.Request) bool {
		return fails.Load() && strings.Contains(req.URL.Path, "/namespaces/"+space+"/configmaps")
	}
	w.run(own)
	marker := w.configMap(own, "watch", map[string]string{crds.WatchLabel: space})
	w.eventually("it is watched", func() error {
		if !w.cache.Watches(space) {
			return errors.New("not yet")
		}
		return nil
	})
	require.NoError(t, w.admin.Delete(w.ctx, marker))
	w.configMap(own, "watch-next", map[string]string{crds.WatchLabel: next})
	obj := w.configMap(next, "seen", nil)
	w.eventually("the next one is watched", func() error { return w.get(obj) })
	require.True(t, w.cache.Watches(space), "nobody knows whether it is needed")
	fails.Store(false)
	w.goneFrom(space)
}
