package reconcile_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/conditions"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit/widget"
)

// Steps of a rollout are written every three seconds, the first one three seconds after the first look; what somebody has to learn
// at once, at once.
func TestProgressIsWrittenNowAndThen(t *testing.T) {
	p := newPlace(t)
	w := p.widget(t)
	kind := widget.Kind()
	type plan = reconcile.Plan[*widget.Widget]
	var next plan
	kind.Gather = nil
	kind.Decide = func(*widget.Widget, widget.Observation, time.Time) plan { return next }
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
	r, err := reconcile.New(kind, reconcile.Dependencies{Client: p.direct, Recorder: &events{}, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	step := func(message string) plan {
		return plan{Progress: true, Unready: reconcile.Wait(0, "Moving", "%s", message)}
	}
	told := step("with an event")
	told.Events = []reconcile.Event{{Type: corev1.EventTypeNormal, Reason: "Told", Message: "something"}}
	for i, c := range []struct {
		after time.Duration
		plan  plan
		want  string
		wait  time.Duration
	}{
		{0, step("zero"), "", 3 * time.Second},
		{time.Second, step("nearly one"), "", 2 * time.Second},
		{2 * time.Second, step("one"), "one", 0},
		{500 * time.Millisecond, step("two"), "one", 2500 * time.Millisecond},
		{500 * time.Millisecond, step("three"), "one", 2 * time.Second},
		{2 * time.Second, step("four"), "four", 0},
		{time.Second, told, "with an event", 0},
		{time.Second, plan{Unready: reconcile.Wait(0, "Moving", "at once")}, "at once", 0},
		{0, step("five"), "five", 0},
		{0, plan{Progress: true, Message: "done"}, "done", 0},
		{0, step("again"), "again", 0}, // from Ready: that it is no longer so
		{0, plan{Progress: true, Unready: reconcile.Stalled("Stuck", "stuck")}, "stuck", 0},
	} {
		clock.SetTime(clock.Now().Add(c.after))
		next = c.plan
		result, err := r.Reconcile(p.ctx, requestFor(w))
		if err != nil {
			t.Fatal(err)
		}
		p.get(t, w)
		said := ""
		if ready := conditions.Get(w, "Ready"); ready != nil {
			said = ready.Message
		}
		got := fmt.Sprintf("%q after %s", said, result.RequeueAfter)
		if want := fmt.Sprintf("%q after %s", c.want, c.wait); got != want {
			t.Errorf("step %d: %s, want %s", i, got, want)
		}
	}
}

// What was done for a new object says that it is done; an object that becomes Ready later has an event for that.
func TestAnObjectThatIsReadyAtOnceHasNoSecondEvent(t *testing.T) {
	p := newPlace(t)
	type plan = reconcile.Plan[*widget.Widget]
	made := plan{Message: "done", Events: []reconcile.Event{{Type: corev1.EventTypeNormal, Reason: "Made", Message: "it was made"}}}
	waiting := plan{Unready: reconcile.Wait(0, "Moving", "not yet")}
	for _, c := range []struct {
		plans []plan
		want  string
	}{
		{[]plan{made}, "[Normal Made: it was made]"},
		{[]plan{{Message: "done"}}, "[Normal Ready: done]"},
		{[]plan{waiting, made}, "[Normal Moving: not yet Normal Made: it was made Normal Ready: done]"},
	} {
		w := p.widget(t)
		kind, recorder := widget.Kind(), &events{}
		var next plan
		kind.Gather = nil
		kind.Decide = func(*widget.Widget, widget.Observation, time.Time) plan { return next }
		r, err := reconcile.New(kind, reconcile.Dependencies{Client: p.direct, Recorder: recorder})
		if err != nil {
			t.Fatal(err)
		}
		for _, next = range c.plans {
			if _, err := r.Reconcile(p.ctx, requestFor(w)); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprint(recorder.told); got != c.want {
			t.Errorf("told %s, want %s", got, c.want)
		}
		if err := p.direct.Delete(p.ctx, w); err != nil {
			t.Fatal(err)
		}
	}
}
