package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	kind, looked := widget.Kind(), &sync.Map{}
	kind.Decide = noting(t, looked, kind.Decide)
	if err := reconcile.Setup(p.ctx, mgr, kind, reconcile.Options{}); err != nil {
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
	// settled waits until the object is Ready after it was written since a change. A change of a child makes it not Ready
	// first; before that is written, it is Ready still, and not at rest.
	settled := func() {
		version := w.ResourceVersion
		eventually(t, func() error {
			if err := others(p.ctx, p.direct, p.namespace); err != nil {
				return err
			}
			p.get(t, w)
			c := conditions.Get(w, "Ready")
			if w.ResourceVersion == version || c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != w.Generation {
				return fmt.Errorf("not Ready since version %s: %s, %v", version, w.ResourceVersion, w.Status.Conditions)
			}
			return nil
		})
	}
	settled()

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
	settled()
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	if err := p.direct.Delete(p.ctx, configMap); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return p.direct.Get(p.ctx, client.ObjectKeyFromObject(configMap), configMap) })
	settled()

	// A pass over an object at rest writes nothing. The first pass ends after the one that the object is Ready by, whose last
	// write is counted only when the API server has answered, and is seen before that.
	again := func(value string) {
		w.Annotations = map[string]string{lookAgain: value}
		if err := p.direct.Update(p.ctx, w); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			if began, decided := looked.Load(value); !decided || passes(t) <= began.(float64) {
				return errors.New("no pass has ended")
			}
			return nil
		})
	}
	again("once")
	writes := counter(t, "holdfast_reconcile_writes_total")
	again("twice")
	if now := counter(t, "holdfast_reconcile_writes_total"); now != writes {
		t.Errorf("%v writes to an object at rest", now-writes)
	}
}

const lookAgain = "example.com/look-again"

type decide func(*widget.Widget, widget.Observation, time.Time) reconcile.Plan[*widget.Widget]

// noting has a decision note, for each value of the annotation, how many passes had ended when it was first seen.
func noting(t *testing.T, looked *sync.Map, next decide) decide {
	return func(w *widget.Widget, observed widget.Observation, now time.Time) reconcile.Plan[*widget.Widget] {
		looked.LoadOrStore(w.Annotations[lookAgain], passes(t))
		return next(w, observed, now)
	}
}

// passes counts those that have ended.
func passes(t *testing.T) float64 { return counter(t, "controller_runtime_reconcile_total") }

// counter sums a counter of the operator.
func counter(t *testing.T, name string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Error(err) // the decision is not made on the test's goroutine
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
