package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

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
