package namespaces_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-io/holdfast/crds"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// allowCluster lets the cache do what the operator may do in the whole cluster.
func (w *world) allowCluster() {
	w.Helper()
	meta := metav1.ObjectMeta{Name: w.user}
	require.NoError(w, w.admin.Create(w.ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: crds.ClusterRules()}))
	require.NoError(w, w.admin.Create(w.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: w.user}},
	}))
}

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

// An operator that starts after the marker has gone keeps the namespace as one does that saw it go; but not that of another
// operator, in which it has no Role.
func TestANamespaceIsKeptThroughARestart(t *testing.T) {
	w := newWorld(t)
	own, space, foreign := w.namespace(), w.namespace(), w.namespace()
	w.allow(own)
	w.allow(space)
	w.allowCluster()
	held := w.znode(space)
	w.znode(foreign)
	w.run(own)
	require.True(t, w.cache.Watches(space))
	require.False(t, w.cache.Watches(foreign))
	held.SetFinalizers(nil)
	require.NoError(t, w.admin.Update(w.ctx, held))
	w.goneFrom(space)
}

// broken is a transport by which requests that name a namespace fail while it is told so.
type broken struct {
	http.RoundTripper
	namespace string
	fails     *atomic.Bool
}

func (b broken) RoundTrip(req *http.Request) (*http.Response, error) {
	if b.fails.Load() && strings.Contains(req.URL.Path, "/namespaces/"+b.namespace+"/configmaps") {
		return nil, errors.New("the connection is broken")
	}
	return b.RoundTripper.RoundTrip(req)
}

// A namespace whose objects were never told holds nobody up when its marker goes, and is kept until it can be told what it has.
func TestANamespaceThatNeverSyncedHoldsNobodyUp(t *testing.T) {
	w := newWorld(t)
	own, space, next := w.namespace(), w.namespace(), w.namespace()
	for _, each := range []string{own, space, next} {
		w.allow(each)
	}
	var fails atomic.Bool
	fails.Store(true)
	w.wrap = func(inner http.RoundTripper) http.RoundTripper { return broken{inner, space, &fails} }
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
