package reconcile_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/conditions"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit/widget"
)

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
}, w *widget.Widget,
) {
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
