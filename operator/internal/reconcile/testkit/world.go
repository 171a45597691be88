package testkit

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/conditions"
)

const (
	// rounds is the most rounds that anything may take to converge.
	rounds = 120
	// quiet is the number of rounds without a change after which a world is at rest.
	quiet = 3
)

// world is one namespace with one object of the kind, an operator, and the other controllers.
type world struct {
	testing.TB
	ctx       context.Context
	subject   Subject
	server    *server
	others    client.Client // the user and the other controllers
	moved     int           // writes of the others
	clock     *clocktesting.FakePassiveClock
	namespace string
	object    ref
	operator  *operator
}

// operator is one running operator: a reconciler, its cache, and its way to the API server.
type operator struct {
	world      *world
	cache      *cache
	seen       contents // what the cache has
	frozen     bool     // the cache sees nothing new
	gate       gate     // nil: every write is made
	reconciler ctrlreconcile.Reconciler
	recorder   *recorder
	attempts   []write // writes that were asked for
	done       []write // writes that succeeded
}

func newWorld(tb testing.TB, env *Environment, subject Subject) *world {
	tb.Helper()
	ctx := ctrl.LoggerInto(Context(tb), logr.Discard())
	direct, err := client.NewWithWatch(env.Config, client.Options{Scheme: subject.Scheme, HTTPClient: env.http, Mapper: env.mapper})
	if err != nil {
		tb.Fatalf("client: %v", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "kit-"}}
	if err := direct.Create(ctx, namespace); err != nil {
		tb.Fatalf("create a namespace: %v", err)
	}
	w := &world{
		TB: tb, ctx: ctx, subject: subject, namespace: namespace.Name,
		server: &server{tb: tb, ctx: ctx, direct: direct, contents: contents{}},
		clock:  clocktesting.NewFakePassiveClock(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)),
	}
	writes := w.server.client(func(_ context.Context, _ write, do func() error) error {
		w.moved++
		return do()
	})
	w.others = cachedClient{Client: writes, cache: &cache{scheme: subject.Scheme, contents: func() contents { return w.server.contents }}}
	if subject.Before != nil {
		if err := subject.Before(ctx, w.others, w.namespace); err != nil {
			tb.Fatalf("make what was there before: %v", err)
		}
	}
	w.operator = w.newOperator()
	return w
}

// newOperator starts an operator, which has read the cache anew and remembers nothing.
func (w *world) newOperator() *operator {
	w.Helper()
	o := &operator{world: w, recorder: &recorder{}, seen: w.server.contents}
	o.cache = &cache{scheme: w.subject.Scheme, known: map[schema.GroupVersionKind]bool{}, contents: func() contents { return o.seen }}
	types := append([]client.Object{w.subject.Object()}, w.subject.Owns...)
	for _, obj := range append(types, w.subject.Reads...) {
		o.cache.known[w.server.refTo(obj).kind] = true
	}
	o.restart()
	return o
}

// restart replaces the process: the reconciler is new, the cache stays as it is.
func (o *operator) restart() {
	o.world.Helper()
	writes := o.world.server.client(o.pass)
	dependencies := reconcile.Dependencies{
		Client: cachedClient{Client: writes, cache: o.cache}, Recorder: o.recorder, Clock: o.world.clock,
	}
	build := o.world.subject.Reconciler
	if effects := o.world.subject.Effects; effects != nil {
		build = func(d reconcile.Dependencies) (ctrlreconcile.Reconciler, error) { return effects(d, o.outside) }
	}
	reconciler, err := build(dependencies)
	if err != nil {
		o.world.Fatalf("build the reconciler: %v", err)
	}
	o.reconciler = reconciler
}

// outside is the gate of the operator's changes outside of the API server.
func (o *operator) outside(ctx context.Context, what string, do func() error) error {
	return o.pass(ctx, write{verb: "effect", ref: ref{name: types.NamespacedName{Name: what}}}, do)
}

// pass is the gate of the operator's client.
func (o *operator) pass(ctx context.Context, w write, do func() error) error {
	o.attempts = append(o.attempts, w)
	through := o.gate
	if through == nil {
		through = func(_ context.Context, _ write, do func() error) error { return do() }
	}
	return through(ctx, w, func() error {
		err := do()
		if err == nil {
			o.done = append(o.done, w)
		}
		return err
	})
}

// cachedClient reads from the cache and writes to the server, as the manager's client does.
type cachedClient struct {
	client.Client
	cache *cache
}

func (c cachedClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.cache.Get(ctx, key, obj, opts...)
}

func (c cachedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.cache.List(ctx, list, opts...)
}

// reconcile makes one pass of an operator, and checks what it left.
func (o *operator) reconcile(ctx context.Context) (ctrl.Result, error) {
	o.world.Helper()
	if !o.frozen {
		o.seen = o.world.server.contents
	}
	result, err := o.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: o.world.object.name})
	o.world.check()
	return result, err
}

// check holds the object's conditions to the contract.
func (w *world) check() {
	w.Helper()
	if obj := w.get(); obj != nil {
		if err := conditions.Check(obj); err != nil {
			w.Fatalf("the conditions break the contract: %v\n%s", err, text(obj))
		}
	}
}

// get returns the object as the server has it, or nil.
func (w *world) get() reconcile.Object {
	obj, _ := w.server.contents[w.object].(reconcile.Object)
	return obj
}

// create makes the object, as a user does.
func (w *world) create(edits ...Edit) {
	w.Helper()
	obj := w.subject.Object()
	obj.SetNamespace(w.namespace)
	for _, edit := range edits {
		edit.Apply(obj)
	}
	if err := w.others.Create(w.ctx, obj); err != nil {
		w.Fatalf("create the object: %v", err)
	}
	w.object = w.server.refTo(obj)
}

// edit changes the object, as a user does.
func (w *world) edit(change func(client.Object)) {
	w.Helper()
	obj := w.get().DeepCopyObject().(client.Object)
	change(obj)
	if err := w.others.Update(w.ctx, obj); err != nil {
		w.Fatalf("edit the object: %v", err)
	}
}

// revert gives the object the spec that Subject.Object has.
func (w *world) revert() {
	w.Helper()
	obj := w.subject.Object()
	obj.SetNamespace(w.namespace)
	obj.SetResourceVersion(w.get().GetResourceVersion())
	obj.SetFinalizers(w.get().GetFinalizers())
	if err := w.others.Update(w.ctx, obj); err != nil {
		w.Fatalf("take the edit back: %v", err)
	}
}

// remove deletes an object, as a user does.
func (w *world) remove(r ref) {
	w.Helper()
	obj := w.server.contents[r]
	if obj == nil {
		w.Fatalf("delete %s: it is not there", r)
	}
	if err := client.IgnoreNotFound(w.others.Delete(w.ctx, obj.DeepCopyObject().(client.Object))); err != nil {
		w.Fatalf("delete %s: %v", r, err)
	}
}

// simulate lets every other controller make one step, and tells whether any of them did something.
func (w *world) simulate() bool {
	w.Helper()
	before := w.moved
	for _, step := range append([]Simulator{w.collectGarbage}, w.subject.Simulators...) {
		if err := step(w.ctx, w.others, w.namespace); err != nil {
			w.Fatalf("simulate another controller: %v", err)
		}
	}
	return w.moved > before
}

// settle lets everything run until nothing changes any more. It fails when that does not come.
func (w *world) settle() {
	w.Helper()
	var err error
	var result ctrl.Result
	for round, still := 0, 0; still < quiet; round++ {
		if round == rounds {
			w.Fatalf("no rest after %d rounds; the last pass returned %v, %v\nits writes: %v\n%s", rounds, result, err, tail(w.operator.attempts), text(w.get()))
		}
		asked := len(w.operator.attempts)
		result, err = w.operator.reconcile(w.ctx)
		if w.simulate() || len(w.operator.attempts) > asked || err != nil {
			still = 0
		} else {
			still++
		}
		w.clock.SetTime(w.clock.Now().Add(max(result.RequeueAfter, time.Second)))
	}
}

// settleReady settles, and demands that the object is Ready.
func (w *world) settleReady() {
	w.Helper()
	w.settle()
	obj := w.get()
	if obj == nil {
		w.Fatalf("the object is gone")
	}
	ready := conditions.Get(obj, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue || obj.GetObservedGeneration() != obj.GetGeneration() {
		w.Fatalf("the object did not become Ready:\n%s", text(obj))
	}
}

// children returns the objects of the owned types.
func (w *world) children() contents {
	owned := map[schema.GroupVersionKind]bool{}
	for _, obj := range w.subject.Owns {
		owned[w.server.refTo(obj).kind] = true
	}
	found := maps.Clone(w.server.contents)
	maps.DeleteFunc(found, func(r ref, _ client.Object) bool { return !owned[r.kind] })
	return found
}

func tail(writes []write) []write { return writes[max(0, len(writes)-10):] }

// recorder keeps events.
type recorder struct{ events []string }

// Eventf keeps an event.
func (r *recorder) Eventf(_, _ runtime.Object, eventType, reason, _, _ string, _ ...any) {
	r.events = append(r.events, eventType+" "+reason)
}

// errInjected is an error that no API server makes: a broken connection.
var errInjected = errors.New("read tcp 10.0.0.1:34567->10.0.0.2:6443: read: connection reset by peer")
