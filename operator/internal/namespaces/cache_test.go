package namespaces_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/holdfast-io/holdfast/crds"
	"github.com/holdfast-io/holdfast/operator/internal/namespaces"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
)

var env *testkit.Environment // set once, by TestMain

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, &env, crds.All()...)) }

// world is a cache that runs as somebody who may read only where a test lets it.
type world struct {
	*testing.T
	ctx    context.Context
	admin  client.Client
	user   string
	cache  *namespaces.Cache
	gauges *prometheus.Registry

	refuse func(*http.Request) bool // which requests of the cache do not get through; nil: all do

	mu    sync.Mutex
	heard map[string]int // "add ns/name", "delete ns/name"
	logs  bytes.Buffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	admin, err := client.New(env.Config, client.Options{})
	require.NoError(t, err)
	w := &world{T: t, ctx: testkit.Context(t), admin: admin, gauges: prometheus.NewRegistry(), heard: map[string]int{}}
	w.user = "reader-of-" + w.namespace()
	return w
}

func (w *world) namespace() string {
	w.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "space-"}}
	require.NoError(w, w.admin.Create(w.ctx, ns))
	return ns.Name
}

// grant gives the cache rights in a namespace; the empty one is the cluster.
func (w *world) grant(namespace string, rules []rbacv1.PolicyRule) {
	w.Helper()
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: w.user}}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: w.user}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}
	var role, binding client.Object = &rbacv1.Role{ObjectMeta: meta, Rules: rules}, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
	if namespace == "" {
		ref.Kind = "ClusterRole"
		role, binding = &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
	}
	require.NoError(w, w.admin.Create(w.ctx, role))
	require.NoError(w, w.admin.Create(w.ctx, binding))
}

// allow lets the cache read ConfigMaps in a namespace.
func (w *world) allow(namespace string) {
	w.Helper()
	w.grant(namespace, []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}}})
}

// home is the operator's own namespace as it is installed, with the rights that it has there and in the cluster.
func (w *world) home() string {
	w.Helper()
	own := w.namespace()
	w.grant(own, crds.OperatorRules())
	w.grant("", crds.ClusterRules())
	w.configMap(own, crds.WatchRecord, nil)
	return own
}

// recorded are the namespaces of the record.
func (w *world) recorded(own string) []string {
	w.Helper()
	found := &corev1.ConfigMap{}
	require.NoError(w, w.admin.Get(w.ctx, client.ObjectKey{Namespace: own, Name: crds.WatchRecord}, found))
	return slices.Sorted(maps.Keys(found.Data))
}

func (w *world) configMap(namespace, name string, labels map[string]string) *corev1.ConfigMap {
	w.Helper()
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	require.NoError(w, w.admin.Create(w.ctx, obj))
	return obj
}

// Write takes logs.
func (w *world) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.logs.Write(p)
}

func (w *world) note(what string, obj any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o, ok := obj.(client.Object); ok {
		w.heard[what+" "+o.GetNamespace()+"/"+o.GetName()]++
	}
}

func (w *world) hears(what string, obj client.Object) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard[what+" "+obj.GetNamespace()+"/"+obj.GetName()] > 0
}

const byLabel = ".colour"

// run starts the cache with a handler and an index of ConfigMaps. It runs until it is stopped, or the test ends.
func (w *world) run(markers string, given ...string) (stop func()) {
	w.Helper()
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: w.user}
	if w.refuse != nil {
		config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return cut{inner, w.refuse} })
	}
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(w, err)
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	require.NoError(w, err)
	w.cache, err = namespaces.New(config,
		cache.Options{Scheme: scheme.Scheme, Mapper: mapper, HTTPClient: httpClient, ReaderFailOnMissingInformer: true},
		namespaces.Options{
			Given: given, Markers: markers, Registerer: w.gauges, Log: logr.FromSlogHandler(slog.NewJSONHandler(w, nil)),
			ProbeFirst: 50 * time.Millisecond, ProbeMost: 200 * time.Millisecond, Retry: 200 * time.Millisecond, Look: 2 * time.Second,
		})
	require.NoError(w, err)
	require.NoError(w, w.cache.IndexField(w.ctx, &corev1.ConfigMap{}, byLabel, func(obj client.Object) []string {
		return []string{obj.GetLabels()["colour"]}
	}))
	informer, err := w.cache.GetInformer(w.ctx, &corev1.ConfigMap{})
	require.NoError(w, err)
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { w.note("add", obj) }, DeleteFunc: func(obj any) { w.note("delete", obj) },
	})
	require.NoError(w, err)
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- w.cache.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("the cache ended with %v", err)
		}
		if !informer.IsStopped() {
			w.Error("the informer goes on after the cache")
		}
	})
	w.Cleanup(stop)
	require.True(w, w.cache.WaitForCacheSync(w.ctx))
	require.True(w, toolscache.WaitForCacheSync(w.ctx.Done(), registration.HasSynced, informer.HasSynced))
	return stop
}

// says waits until the log has a text.
func (w *world) says(text string) {
	w.Helper()
	w.eventually("the log has "+text, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !bytes.Contains(w.logs.Bytes(), []byte(text)) {
			return errors.New("not said")
		}
		return nil
	})
}

func (w *world) eventually(what string, check func() error) {
	w.Helper()
	var last error
	err := wait.PollUntilContextCancel(w.ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	require.NoError(w, err, "%s: %v", what, last)
}

func (w *world) get(obj client.Object) error {
	return w.cache.Get(w.ctx, client.ObjectKeyFromObject(obj), &corev1.ConfigMap{})
}

// inAll are the names of the ConfigMaps of a colour in all namespaces.
func (w *world) inAll(colour string) []string {
	w.Helper()
	list := &corev1.ConfigMapList{}
	require.NoError(w, w.cache.List(w.ctx, list, client.MatchingFields{byLabel: colour}))
	out := []string{}
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	return out
}

func (w *world) readable(namespace string) error {
	want := fmt.Sprintf("# HELP holdfast_namespace_readable 1 for a watched namespace in which the operator may read all that it needs, 0 for another.\n"+
		"# TYPE holdfast_namespace_readable gauge\nholdfast_namespace_readable{namespace=%q} 1\n", namespace)
	return testutil.GatherAndCompare(w.gauges, bytes.NewBufferString(want), "holdfast_namespace_readable")
}

func TestANamespaceThatCannotBeReadHoldsNobodyUp(t *testing.T) {
	w := newWorld(t)
	open, shut := w.namespace(), w.namespace()
	w.allow(open)
	seen, hidden := w.configMap(open, "seen", nil), w.configMap(shut, "hidden", map[string]string{"colour": "red"})
	w.run("", open, shut)
	require.NoError(t, w.get(seen))
	err := w.get(hidden)
	var unreadable *namespaces.UnreadableError
	require.ErrorAs(t, err, &unreadable, "what may not be read must not pass for what is not there")
	require.False(t, apierrors.IsNotFound(err))
	require.True(t, apierrors.IsForbidden(err))
	var waiting *reconcile.WaitError
	require.ErrorAs(t, err, &waiting, "to an object that depends on it, it is something to wait for")
	require.ErrorAs(t, w.cache.List(w.ctx, &corev1.ConfigMapList{}, client.InNamespace(shut)), &unreadable)
	require.Empty(t, w.inAll("red"))
	require.Error(t, w.readable(shut))

	w.allow(shut)
	w.eventually("the namespace can be read", func() error { return w.get(hidden) })
	w.eventually("the handler hears of it", func() error {
		if !w.hears("add", hidden) {
			return errors.New("not heard")
		}
		return nil
	})
	require.Equal(t, []string{"hidden"}, w.inAll("red"))
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(t, 1, bytes.Count(w.logs.Bytes(), []byte("a namespace cannot be read")))
	require.Equal(t, 1, bytes.Count(w.logs.Bytes(), []byte("a namespace can be read")))
}

func TestNamespacesComeAndGoByTheirMarkers(t *testing.T) {
	w := newWorld(t)
	own, first, second := w.home(), w.namespace(), w.namespace()
	for _, each := range []string{first, second} {
		w.allow(each)
	}
	marker := func(namespace string) *corev1.ConfigMap {
		return w.configMap(own, "watch-"+namespace, map[string]string{crds.WatchLabel: namespace})
	}
	red := map[string]string{"colour": "red"}
	one, two := w.configMap(first, "one", red), w.configMap(second, "two", red)
	marker(first)
	w.run(own)
	require.NoError(t, w.get(one), "the namespaces of the markers that there are belong to the first sync")
	require.True(t, w.hears("add", one))
	require.True(t, apierrors.IsNotFound(w.get(two)))
	require.Error(t, w.cache.List(w.ctx, &corev1.ConfigMapList{}, client.InNamespace(second)), "an empty answer would be a lie")
	require.Equal(t, []string{"one"}, w.inAll("red"))

	added := marker(second)
	w.eventually("the second namespace is watched", func() error { return w.get(two) })
	w.eventually("the handler hears of it", func() error {
		if !w.hears("add", two) || !w.cache.Watches(second) {
			return errors.New("not heard")
		}
		return nil
	})
	require.ElementsMatch(t, []string{"one", "two"}, w.inAll("red"))

	require.NoError(t, w.admin.Delete(w.ctx, added))
	w.eventually("the handler hears that its objects go", func() error {
		if !w.hears("delete", two) || w.cache.Watches(second) {
			return errors.New("not heard")
		}
		return nil
	})
	require.True(t, apierrors.IsNotFound(w.get(two)))
	require.Equal(t, []string{"one"}, w.inAll("red"))
	require.False(t, w.hears("delete", one))
	require.NoError(t, w.readable(first), "the metric has what is watched, and no more")
}

// A marker that goes too early (nobody orders what two Applications of Argo CD prune) leaves no finalizer behind that nobody
// would remove.
func TestANamespaceIsKeptWhileItsFinalizersNeedIt(t *testing.T) {
	w := newWorld(t)
	own, space := w.home(), w.namespace()
	w.allow(space)
	marker := w.configMap(own, "watch", map[string]string{crds.WatchLabel: space})
	held := w.configMap(space, "held", nil)
	held.Finalizers = []string{"dist.system/test"}
	require.NoError(t, w.admin.Update(w.ctx, held))
	w.run(own)
	require.NoError(t, w.admin.Delete(w.ctx, marker))
	w.says("until its finalizers are gone")
	require.True(t, w.cache.Watches(space))
	require.NoError(t, w.get(held))
	held.Finalizers = nil
	require.NoError(t, w.admin.Update(w.ctx, held))
	w.goneFrom(space)
}

func TestANamespaceThatDoesNotExistYet(t *testing.T) {
	w := newWorld(t)
	own := w.home()
	name := own + "-later"
	w.configMap(own, "watch", map[string]string{crds.WatchLabel: name})
	w.run(own)
	require.NoError(t, w.admin.Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	w.allow(name)
	obj := w.configMap(name, "born", nil)
	w.eventually("it can be read", func() error { return w.get(obj) })
}
