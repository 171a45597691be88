package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/conditions"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit/widget"
)

var env *testkit.Environment // set once, by TestMain

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, &env, widget.CRD())) }

// place is a namespace with clients of it: direct, and through a real cache.
type place struct {
	ctx       context.Context
	direct    client.Client
	cached    client.Client
	namespace string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	ctx := ctrl.LoggerInto(testkit.Context(t), logr.Discard())
	scheme, err := widget.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	direct, err := client.New(env.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "reconcile-"}}
	if err := direct.Create(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	reader, err := cache.New(env.Config, cache.Options{Scheme: scheme, DefaultNamespaces: map[string]cache.Config{namespace.Name: {}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range widget.Owns() {
		if err := reader.IndexField(ctx, obj, reconcile.ControllerIndex("widget"), reconcile.IndexController); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := reader.GetInformer(ctx, &widget.Widget{}, cache.BlockUntilSynced(false)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() { ended <- reader.Start(running) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("cache: %v", err)
		}
	})
	if !reader.WaitForCacheSync(ctx) {
		t.Fatal("the cache does not sync")
	}
	cached, err := client.New(env.Config, client.Options{Scheme: scheme, Cache: &client.CacheOptions{Reader: reader}})
	if err != nil {
		t.Fatal(err)
	}
	return &place{ctx: ctx, direct: direct, cached: cached, namespace: namespace.Name}
}

// widget makes a Widget without a StatefulSet, and waits until the cache has it.
func (p *place) widget(t *testing.T, changes ...func(*widget.Widget)) *widget.Widget {
	t.Helper()
	w := &widget.Widget{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "w"}, Spec: widget.Spec{Data: map[string]string{"a": "1"}}}
	for _, change := range changes {
		change(w)
	}
	if err := p.direct.Create(p.ctx, w); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return p.cached.Get(p.ctx, client.ObjectKeyFromObject(w), &widget.Widget{}) })
	return w
}

func (p *place) get(t *testing.T, obj client.Object) {
	t.Helper()
	if err := p.direct.Get(p.ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%v: %v", err, last)
	}
}

// untilReady makes passes until the object is Ready.
func (p *place) untilReady(t *testing.T, r interface {
	Reconcile(context.Context, ctrl.Request) (ctrl.Result, error)
}, w *widget.Widget) {
	t.Helper()
	eventually(t, func() error {
		if _, err := r.Reconcile(p.ctx, requestFor(w)); err != nil {
			return err
		}
		p.get(t, w)
		if ready := conditions.Get(w, "Ready"); ready == nil || ready.Status != metav1.ConditionTrue {
			return fmt.Errorf("not Ready: %v", w.Status.Conditions)
		}
		return nil
	})
}

func requestFor(w *widget.Widget) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w)}
}

// events keeps what it is told.
type events struct {
	mu   sync.Mutex
	told []string
}

func (e *events) Eventf(_, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, eventType+" "+reason+": "+fmt.Sprintf(note, args...))
}

// brokenStatus fails the first status patches.
type brokenStatus struct {
	client.Client
	failures *int
}

func (b brokenStatus) Status() client.SubResourceWriter {
	return brokenWriter{b.Client.Status(), b.failures}
}

type brokenWriter struct {
	client.SubResourceWriter
	failures *int
}

func (b brokenWriter) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	if *b.failures > 0 {
		*b.failures--
		return apierrors.NewInternalError(errors.New("broken"))
	}
	return b.SubResourceWriter.Patch(ctx, obj, patch, opts...)
}

func TestEventsWaitForTheStatus(t *testing.T) {
	p := newPlace(t)
	w := p.widget(t)
	failures, recorder := 1, &events{}
	r, err := reconcile.New(widget.Kind(), reconcile.Dependencies{Client: brokenStatus{p.cached, &failures}, Recorder: recorder})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(p.ctx, requestFor(w)); err == nil || !strings.Contains(err.Error(), "write the status") {
		t.Errorf("a status that was not written: %v", err)
	}
	if len(recorder.told) != 0 {
		t.Errorf("told before the status was written: %v", recorder.told)
	}
	p.untilReady(t, r, w)
	if last := recorder.told[len(recorder.told)-1]; last != "Normal Ready: 0 of 0 replicas are ready" {
		t.Errorf("told %v", recorder.told)
	}
}

func TestSpecThatCannotWorkLeavesChildrenAlone(t *testing.T) {
	p := newPlace(t)
	w := p.widget(t)
	recorder := &events{}
	r, err := reconcile.New(widget.Kind(), reconcile.Dependencies{Client: p.cached, Recorder: recorder})
	if err != nil {
		t.Fatal(err)
	}
	p.untilReady(t, r, w)
	w.Spec.Invalid = true
	if err := p.direct.Update(p.ctx, w); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		result, err := r.Reconcile(p.ctx, requestFor(w))
		p.get(t, w)
		if stalled := conditions.Get(w, "Stalled"); err != nil || stalled == nil || stalled.Reason != "InvalidSpec" || w.Status.ObservedGeneration != w.Generation {
			return fmt.Errorf("not Stalled: %v, %v, %v", result, err, w.Status)
		}
		return nil
	})
	p.get(t, &corev1.ConfigMap{ObjectMeta: w.ObjectMeta})
	if !slices.Contains(recorder.told, "Warning InvalidSpec: spec.invalid is true; only false works") {
		t.Errorf("told %v", recorder.told)
	}
}

func TestFinalizerWaitsForTheCleaning(t *testing.T) {
	p := newPlace(t)
	w := p.widget(t)
	cleaned := 0
	kind := widget.KindWithFinalizer(func(*widget.Widget) error {
		if cleaned++; cleaned == 1 {
			return reconcile.Wait(time.Second, "Cleaning", "one thing is left")
		}
		return nil
	})
	r, err := reconcile.New(kind, reconcile.Dependencies{Client: p.cached, Recorder: &events{}})
	if err != nil {
		t.Fatal(err)
	}
	p.untilReady(t, r, w)
	if err := p.direct.Delete(p.ctx, w); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if result, err := r.Reconcile(p.ctx, requestFor(w)); err != nil || (cleaned == 1 && result.RequeueAfter == 0) {
			t.Fatalf("got %v, %v", result, err)
		}
		if cleaned == 1 {
			p.get(t, w)
			if c := conditions.Get(w, "Reconciling"); c == nil || c.Reason != "Deleting" || c.Message != "one thing is left" {
				t.Fatalf("while it cleans up: %v", w.Status.Conditions)
			}
		}
		if err := p.direct.Get(p.ctx, client.ObjectKeyFromObject(w), w); !apierrors.IsNotFound(err) {
			return fmt.Errorf("still there: %w", err)
		}
		return nil
	})
}

func TestEffectIsClaimedBeforeItIsMade(t *testing.T) {
	p := newPlace(t)
	w := p.widget(t)
	const claim = "test.dist.system/made"
	made := 0
	kind := widget.KindWithFinalizer(func(*widget.Widget) error { return nil })
	kind.Finalizer.WithEffect = true
	kind.Decide = func(w *widget.Widget, observed widget.Observation, now time.Time) reconcile.Plan[*widget.Widget] {
		plan := widget.Decide(w, observed, now)
		if made == 0 {
			plan.Effect = &reconcile.Effect{What: "make it", Claim: map[string]string{claim: "it"}, Run: func(ctx context.Context) error {
				live := &widget.Widget{}
				if err := p.direct.Get(ctx, client.ObjectKeyFromObject(w), live); err != nil {
					return err
				}
				if live.Annotations[claim] != "it" || len(live.Finalizers) != 1 {
					t.Errorf("not claimed before: %v", live.ObjectMeta)
				}
				made++
				return nil
			}}
		}
		return plan
	}
	r, err := reconcile.New(kind, reconcile.Dependencies{Client: p.cached, Recorder: &events{}})
	if err != nil {
		t.Fatal(err)
	}
	p.untilReady(t, r, w)
	if made != 1 {
		t.Errorf("made %d times", made)
	}
}

func TestKindThatLacksSomethingIsRefused(t *testing.T) {
	kind := widget.Kind()
	kind.Decide = nil
	if _, err := reconcile.New(kind, reconcile.Dependencies{}); err == nil || !strings.Contains(err.Error(), `kind "widget"`) {
		t.Errorf("got %v", err)
	}
}

// TestControllerInAManager runs a kind as the operator does: watches, the real cache with its transform, the index.
func TestControllerInAManager(t *testing.T) {
	p := newPlace(t)
	scheme := p.direct.Scheme()
	mgr, err := ctrl.NewManager(env.Config, ctrl.Options{
		Scheme: scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{p.namespace: {}},
			// The set's status is what the kind looks at, so it is kept whole.
			DefaultTransform: reconcile.Trim(scheme, widget.GroupVersion.Group), ReaderFailOnMissingInformer: true,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := reconcile.Setup(p.ctx, mgr, widget.Kind(), reconcile.Options{}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(p.ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	w := p.widget(t, func(w *widget.Widget) { w.Spec.Size = 1 })
	others := testkit.StatefulSets(nil)
	ready := func() error {
		if err := others(p.ctx, p.direct, p.namespace); err != nil {
			return err
		}
		p.get(t, w)
		if c := conditions.Get(w, "Ready"); c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != w.Generation {
			return fmt.Errorf("not Ready: %v", w.Status.Conditions)
		}
		return nil
	}
	eventually(t, ready)

	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	p.get(t, set)
	set.Spec.Template.Spec.Containers[0].Image = "example.com/main:edited"
	if err := p.direct.Update(p.ctx, set); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		p.get(t, set)
		if image := set.Spec.Template.Spec.Containers[0].Image; image != "example.com/main:1" {
			return fmt.Errorf("the image is still %s", image)
		}
		return nil
	})
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	if err := p.direct.Delete(p.ctx, configMap); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return p.direct.Get(p.ctx, client.ObjectKeyFromObject(configMap), configMap) })
	eventually(t, ready)

	// Passes over an object at rest write nothing.
	before, writes := verdicts(t), counter(t, "holdfast_reconcile_writes_total")
	w.Annotations = map[string]string{"example.com/look": "again"}
	if err := p.direct.Update(p.ctx, w); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if verdicts(t) == before {
			return errors.New("no pass yet")
		}
		return nil
	})
	if now := counter(t, "holdfast_reconcile_writes_total"); now != writes {
		t.Errorf("%v writes to an object at rest", now-writes)
	}
}

func verdicts(t *testing.T) float64 { return counter(t, "holdfast_reconcile_verdicts_total") }

// counter sums a counter of the operator.
func counter(t *testing.T, name string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() == name {
			for _, metric := range family.GetMetric() {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}
