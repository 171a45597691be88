package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/conditions"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit/widget"
)

var env *testkit.Environment // set once, by TestMain

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, &env, widget.CRD())) }

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
			return fmt.Errorf("not Stalled: %v, %w, %v", result, err, w.Status)
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

// rewriting is an API server with a webhook that rewrites a label of every object.
type rewriting struct {
	client.Client
	applies *int
}

func (r rewriting) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	*r.applies++
	obj.(client.Object).SetLabels(map[string]string{"app": "rewritten"})
	return r.Client.Apply(ctx, obj, opts...)
}

func TestWhatAWebhookRewritesIsNotFoughtOver(t *testing.T) {
	p := newPlace(t)
	w := p.widget(t)
	applies := 0
	r, err := reconcile.New(widget.Kind(), reconcile.Dependencies{Client: rewriting{p.cached, &applies}, Recorder: &events{}})
	if err != nil {
		t.Fatal(err)
	}
	p.untilReady(t, r, w)
	before := applies
	for range 5 {
		if _, err := r.Reconcile(p.ctx, requestFor(w)); err != nil {
			t.Fatal(err)
		}
	}
	// Two children are made; a second apply to each ends the record of its creation, and a third shows that
	// applying has no effect.
	if applies != before || applies != 6 {
		t.Errorf("%d applies until Ready, and %d after", before, applies-before)
	}
}

func TestKindThatLacksSomethingIsRefused(t *testing.T) {
	kind := widget.Kind()
	kind.Decide = nil
	if _, err := reconcile.New(kind, reconcile.Dependencies{}); err == nil || !strings.Contains(err.Error(), `kind "widget"`) {
		t.Errorf("got %v", err)
	}
}

func TestChildThatAppearsAfterTheDecisionIsNotChanged(t *testing.T) {
	p := newPlace(t)
	w := p.widget(t)
	absent := false
	kind := widget.Kind()
	kind.Decide = func(w *widget.Widget, observed widget.Observation, now time.Time) reconcile.Plan[*widget.Widget] {
		plan := widget.Decide(w, observed, now)
		if absent {
			plan.Children[0].(*corev1.ConfigMap).Data = map[string]string{"decided": "blindly"}
			plan.Absent = plan.Children[:1]
		}
		return plan
	}
	r, err := reconcile.New(kind, reconcile.Dependencies{Client: p.cached, Recorder: &events{}})
	if err != nil {
		t.Fatal(err)
	}
	p.untilReady(t, r, w)
	absent = true
	result, err := r.Reconcile(p.ctx, requestFor(w))
	if err != nil || result.RequeueAfter == 0 {
		t.Errorf("the pass is not made again: %v, %v", result, err)
	}
	child := &corev1.ConfigMap{ObjectMeta: w.ObjectMeta}
	if p.get(t, child); child.Data["a"] != "1" || child.Data["decided"] != "" {
		t.Errorf("it was changed: %v", child.Data)
	}
	absent = false
	p.untilReady(t, r, w)
}
