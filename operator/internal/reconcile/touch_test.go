package reconcile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/conditions"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit/widget"
)

// An object that cannot be touched keeps nobody else from being touched, and the first failure is told.
func TestTouchThatFailsKeepsNoOtherBack(t *testing.T) {
	p := newPlace(t)
	w := p.widget(t)
	foreign := func(name string) *corev1.ConfigMap {
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name}}
		if err := p.direct.Create(p.ctx, obj); err != nil {
			t.Fatal(err)
		}
		return obj
	}
	refused, refusedToo, last := foreign("a"), foreign("b"), foreign("c")
	touch := func(obj client.Object, value any) reconcile.Touch {
		return reconcile.Touch{Object: obj, What: "touch " + obj.GetName(), Patch: map[string]any{"data": value}}
	}
	kind := widget.Kind()
	kind.Decide = func(w *widget.Widget, observed widget.Observation, now time.Time) reconcile.Plan[*widget.Widget] {
		plan := widget.Decide(w, observed, now)
		plan.Touches = []reconcile.Touch{
			touch(refused, map[string]any{"no key!": "v"}), touch(refusedToo, map[string]any{"none either!": "v"}), touch(last, map[string]any{"k": "v"}),
		}
		return plan
	}
	r, err := reconcile.New(kind, reconcile.Dependencies{Client: p.cached, Recorder: &events{}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if _, err := r.Reconcile(p.ctx, requestFor(w)); err != nil {
			return err
		}
		p.get(t, w)
		stalled := conditions.Get(w, "Stalled")
		if stalled == nil {
			return errors.New("not Stalled")
		}
		if !strings.Contains(stalled.Message, "no key!") || strings.Contains(stalled.Message, "none either!") {
			return fmt.Errorf("not the first failure is told: %s", stalled.Message)
		}
		return nil
	})
	p.get(t, last)
	if last.Data["k"] != "v" {
		t.Errorf("the last object has %v", last.Data)
	}
}
