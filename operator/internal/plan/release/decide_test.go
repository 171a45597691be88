package release_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/plan/release"
)

func checkMin(name, least string, rings ...string) v1alpha1.ReleaseCheck {
	return v1alpha1.ReleaseCheck{Name: name, Query: "up", Min: new(resource.MustParse(least)), Rings: rings}
}

// released is a world in which v1 is in effect in a canary ring and in another one.
func released(t *testing.T, change ...func(*v1alpha1.ReleaseGuardSpec)) *world {
	t.Helper()
	spec := &v1alpha1.ReleaseGuardSpec{
		Revision: "v1", Rings: []v1alpha1.ReleaseRing{ring("canary", 30, "a"), ring("rest", 30, "b")},
	}
	for _, each := range change {
		each(spec)
	}
	w := newWorld(t, spec)
	w.settle(3 * time.Hour)
	require.Equal(t, release.Done, w.outcome.Verdict, w.outcome.Message)
	return w
}

// until makes passes, with Argo CD at work, until a condition holds.
func (w *world) until(what string, condition func() bool) {
	for range 400 {
		if condition() {
			return
		}
		w.pass(noCrash)
		for name := range w.apps {
			w.argo(name)
		}
		w.now = w.now.Add(time.Second)
	}
	require.Fail(w.t, "never: "+what, "%s\n%s", w.outcome.Message, w.written)
}

func (w *world) phase(ring string) v1alpha1.RingPhase {
	for _, each := range w.status().Rings {
		if each.Name == ring {
			return each.Phase
		}
	}
	return ""
}

func (w *world) decisions() []string {
	var out []string
	for _, d := range w.status().Decisions {
		out = append(out, strings.TrimSpace(d.Decision+" "+d.Ring))
	}
	return out
}

func TestReleaseGoesRingByRing(t *testing.T) {
	w := released(t)
	w.spec.Revision = "v2"
	w.settle(time.Hour)
	require.Equal(t, []string{"a to v2", "b to v2"}, w.moves)
	require.Equal(t, []string{
		"ReleaseStarted", "RingStarted canary", "RingProved canary", "RingStarted rest", "RingProved rest", "ReleaseComplete",
	}, w.decisions()[len(w.decisions())-6:])
	for _, app := range w.status().Applications {
		require.Equal(t, "v2", app.LastGoodRevision)
	}
	require.Equal(t, []v1alpha1.ReleaseCommit{{Repository: repository, Commit: commitOf("v2")}}, w.status().Release.Commits)
}

// A move is only made when a status asks for it that was written before.
func TestMovesAreWrittenAhead(t *testing.T) {
	w := released(t)
	w.spec.Revision = "v2"
	w.pass(beforeWrite)
	require.Empty(t, w.outcome.Moves)
	w.pass(noCrash)
	require.Empty(t, w.outcome.Moves)
	require.Equal(t, "v2", w.status().Applications[0].TargetRevision)
	w.pass(noCrash)
	require.Len(t, w.outcome.Moves, 1)
}

// What Argo CD says of an earlier revision lets no ring go.
func TestStaleHealthyIsNotInEffect(t *testing.T) {
	fresh := release.Application{
		Name: "a", Target: "v2", Repository: repository, Health: "Healthy",
		Sync:       release.Sync{Status: "Synced", Target: "v2", Repository: repository, Commit: "two"},
		Reconciled: time.Unix(100, 0), Operation: &release.Operation{Phase: "Succeeded", Target: "v2", Finished: time.Unix(99, 0)},
	}
	for _, each := range []struct {
		why    string
		change func(*release.Application)
		state  string
	}{
		{"as it should be", func(*release.Application) {}, "in effect"},
		{"nothing had to be synced", func(a *release.Application) { a.Operation.Target = "v1" }, "in effect"},
		{"never synced by an operation", func(a *release.Application) { a.Operation = nil }, "in effect"},
		{"the comparison is of the revision before", func(a *release.Application) { a.Sync.Target = "v1" }, "Argo CD has not compared it with the revision yet"},
		{"the comparison is of another repository", func(a *release.Application) { a.Sync.Repository = "other" }, "Argo CD has not compared it with the revision yet"},
		{"a sync is asked for", func(a *release.Application) { a.Requested = true }, "a sync is running"},
		{"a sync runs", func(a *release.Application) { a.Operation.Phase = "Running" }, "a sync is running"},
		{"the sync failed", func(a *release.Application) { a.Operation.Phase = "Failed" }, "the sync ended as Failed"},
		{"not synced", func(a *release.Application) { a.Sync.Status = "OutOfSync" }, "it is OutOfSync"},
		{"health is from before the sync ended", func(a *release.Application) { a.Reconciled = time.Unix(98, 0) }, "Argo CD has not looked at it since the sync"},
		{"degraded", func(a *release.Application) { a.Health = "Degraded" }, "it is Degraded"},
		{"no health yet", func(a *release.Application) { a.Health = "" }, "it is of no known state"},
		{"a workload lags", func(a *release.Application) {
			a.Lagging = []string{"LeaseService x/y has not been seen by its operator yet"}
		}, "LeaseService x/y has not been seen by its operator yet"},
		{"the revision does not exist", func(a *release.Application) { a.Fault = "ComparisonError" }, "ComparisonError"},
	} {
		t.Run(each.why, func(t *testing.T) {
			app, op := fresh, *fresh.Operation
			app.Operation = &op
			each.change(&app)
			spec := &v1alpha1.ReleaseGuardSpec{Revision: "v2", Rings: []v1alpha1.ReleaseRing{ring("canary", 30, "a")}}
			status := &v1alpha1.ReleaseGuardStatus{
				Phase: v1alpha1.ReleaseRolling, Release: &v1alpha1.ReleaseRecord{Revision: "v2"},
				Rings:        []v1alpha1.ReleaseRingStatus{{Name: "canary", Phase: v1alpha1.RingRolling}},
				Applications: []v1alpha1.ReleaseApplicationStatus{{Name: "a", Ring: "canary", TargetRevision: "v2", LastGoodRevision: "v1"}},
			}
			out := release.Decide(spec, status, release.Observation{Applications: []release.Application{app}}, time.Unix(101, 0))
			require.Equal(t, each.state, out.Status.Applications[0].State)
			require.Equal(t, each.state == "in effect", out.Status.Rings[0].Phase == v1alpha1.RingSoaking)
		})
	}
}

// A soak that is broken begins anew.
func TestSoakIsWithoutABreak(t *testing.T) {
	w := released(t)
	w.spec.Revision = "v2"
	w.until("soaking", func() bool { return w.phase("canary") == v1alpha1.RingSoaking })
	w.now = w.now.Add(25 * time.Second)
	w.pass(noCrash)
	w.apps["a"].Health = "Progressing"
	w.pass(noCrash)
	require.Equal(t, v1alpha1.RingRolling, w.phase("canary"))
	w.apps["a"].Health = "Healthy"
	w.pass(noCrash)
	w.now = w.now.Add(25 * time.Second)
	w.pass(noCrash)
	require.Equal(t, v1alpha1.RingSoaking, w.phase("canary"))
	w.now = w.now.Add(10 * time.Second)
	w.pass(noCrash)
	require.Equal(t, v1alpha1.RingProved, w.phase("canary"))
}

// Failures count when they come in a row, and not more often than the interval.
func TestFailuresInARow(t *testing.T) {
	w := released(t)
	w.spec.Revision = "v2"
	w.until("soaking", func() bool { return w.phase("canary") == v1alpha1.RingSoaking })
	observe := func(health string, after time.Duration) int32 {
		w.apps["a"].Health = health
		w.now = w.now.Add(after)
		w.pass(noCrash)
		return w.status().Applications[0].Failures
	}
	require.EqualValues(t, 1, observe("Degraded", time.Second))
	require.EqualValues(t, 1, observe("Degraded", time.Second), "an event is no observation of its own")
	require.EqualValues(t, 2, observe("Degraded", 10*time.Second))
	require.EqualValues(t, 0, observe("Healthy", time.Second), "no longer in a row")
	require.EqualValues(t, 1, observe("Degraded", time.Second))
	require.EqualValues(t, 2, observe("Degraded", 11*time.Second))
	require.Equal(t, v1alpha1.ReleaseRolling, w.status().Phase)
	observe("Degraded", 11*time.Second)
	require.Equal(t, v1alpha1.FailureHealth, w.status().BadRevision.Reason)
	require.Contains(t, w.status().BadRevision.Message, "3 times in a row")
}

// A proved ring that fails takes the release back everywhere: its proof was premature.
func TestProvedRingThatFails(t *testing.T) {
	w := released(t, func(s *v1alpha1.ReleaseGuardSpec) { s.Rings[1].SoakSeconds = new(int32(3600)) })
	w.spec.Revision = "v2"
	w.until("the second ring soaks", func() bool { return w.phase("rest") == v1alpha1.RingSoaking })
	w.fates[key("a", "v2")] = degrades
	w.until("rolled back", func() bool { return w.status().Phase == v1alpha1.ReleaseRolledBack })
	w.settle(time.Hour)
	require.Equal(t, "v1", w.apps["a"].Target)
	require.Equal(t, "v1", w.apps["b"].Target)
	require.Equal(t, "canary", w.status().BadRevision.Ring)
}

// A ring that fails leaves alone what an earlier ring proved.
func TestEarlierRingKeepsWhatItProved(t *testing.T) {
	w := released(t)
	w.fates[key("b", "v2")] = degrades
	w.spec.Revision = "v2"
	w.settle(time.Hour)
	require.Equal(t, v1alpha1.ReleaseRolledBack, w.status().Phase)
	require.Equal(t, "v2", w.apps["a"].Target)
	require.Equal(t, "v1", w.apps["b"].Target)
	require.Equal(t, "v2", w.status().Applications[0].LastGoodRevision)
}

// A tag that names another commit in a later ring was never proved.
func TestMovedRevisionIsTakenBack(t *testing.T) {
	w := released(t)
	w.spec.Revision = "v2"
	w.until("the second ring is in effect", func() bool { return w.apps["b"].Sync.Target == "v2" })
	w.apps["b"].Sync.Commit = "another"
	w.pass(noCrash)
	require.Equal(t, v1alpha1.FailureMoved, w.status().BadRevision.Reason)
	require.Equal(t, "v1", w.status().Applications[1].TargetRevision)
	require.Equal(t, "v2", w.status().Applications[0].TargetRevision)
}

func TestNewRevisionSupersedes(t *testing.T) {
	w := released(t)
	w.fates[key("b", "v2")] = neverReady
	w.spec.Revision = "v2"
	w.until("the second ring rolls", func() bool { return w.apps["b"].Target == "v2" })
	w.spec.Revision = "v3"
	w.pass(noCrash)
	require.Contains(t, w.decisions(), "ReleaseSuperseded")
	status := w.status()
	require.Equal(t, "v3", status.Applications[0].TargetRevision)
	require.Equal(t, "v2", status.Applications[0].LastGoodRevision, "the canary proved it")
	require.Equal(t, "v1", status.Applications[1].TargetRevision, "the other ring did not, and waits for its turn")
	w.settle(time.Hour)
	require.Equal(t, v1alpha1.ReleaseComplete, w.status().Phase)
	require.Equal(t, "v3", w.apps["b"].Target)
}

// Argo CD begins no sync while another one runs, so one of a revision that was taken back is ended.
func TestRunningSyncOfAnotherRevisionIsEnded(t *testing.T) {
	w := released(t)
	w.spec.Revision = "v2"
	w.until("a sync runs", func() bool { op := w.apps["a"].Operation; return op.Target == "v2" && op.Phase == "Running" })
	w.pass(noCrash)
	require.Empty(t, w.outcome.Terminate, "it is the sync that is wanted")
	w.now = w.now.Add(181 * time.Second)
	w.pass(noCrash)
	require.Equal(t, v1alpha1.FailureSyncTimeout, w.status().BadRevision.Reason)
	w.pass(noCrash)
	require.Len(t, w.outcome.Moves, 1)
	w.pass(noCrash)
	require.Equal(t, []string{"a"}, w.outcome.Terminate)
}

// No answer is no crossing, and lets no ring go.
func TestQueryWithoutAnswer(t *testing.T) {
	w := released(t, func(s *v1alpha1.ReleaseGuardSpec) {
		s.Checks = []v1alpha1.ReleaseCheck{checkMin("availability", "0.9")}
	})
	w.spec.Revision = "v2"
	w.away = true
	w.until("the gate is closed", func() bool { return w.outcome.Reason == v1alpha1.ReasonCheckUnknown })
	for range 50 {
		w.now = w.now.Add(30 * time.Second)
		w.pass(noCrash)
	}
	status := w.status()
	require.Equal(t, v1alpha1.ReleaseRolling, status.Phase)
	require.Equal(t, v1alpha1.CheckUnknown, status.Checks[0].Result)
	require.Zero(t, status.Checks[0].Failures)
	require.Equal(t, "v1", w.apps["b"].Target)
	w.away = false
	w.settle(time.Hour)
	require.Equal(t, v1alpha1.ReleaseComplete, w.status().Phase)
}

func TestBounds(t *testing.T) {
	most := v1alpha1.ReleaseCheck{Name: "errors", Query: "x", Max: new(resource.MustParse("0.05")), FailureThreshold: 2}
	w := released(t)
	w.spec.Revision, w.spec.Checks = "v2", []v1alpha1.ReleaseCheck{most}
	w.until("soaking", func() bool { return w.phase("canary") == v1alpha1.RingSoaking })
	status := w.status()
	ask := func(values ...float64) *v1alpha1.ReleaseGuardStatus {
		w.now = w.now.Add(30 * time.Second)
		observed := release.Observation{Samples: map[string]release.Sample{"errors": {Time: w.now, Values: values}}}
		for _, app := range w.apps {
			observed.Applications = append(observed.Applications, *app)
		}
		out := release.Decide(w.spec, status, observed, w.now)
		status = &out.Status
		return status
	}
	require.Equal(t, v1alpha1.CheckCrossed, ask(0.01, 0.06).Checks[0].Result, "every series is held to the bounds")
	require.Equal(t, "0.06 is above the maximum 0.05", status.Checks[0].Message)
	require.Equal(t, v1alpha1.RingSoaking, status.Rings[0].Phase, "a ring is not proved while a check is out of bounds")
	require.Equal(t, v1alpha1.ReleaseRolling, status.Phase, "one crossing of two")
	ask(0.2)
	require.Equal(t, v1alpha1.FailureCheck, status.BadRevision.Reason)
	require.Equal(t, "check errors: 0.2 is above the maximum 0.05, 2 times in a row", status.BadRevision.Message)
}

// A ring that needs an approval waits for one of this very revision.
func TestRingThatNeedsApproval(t *testing.T) {
	w := released(t)
	w.spec.Rings[1].NeedsApproval = true
	w.spec.Approvals = []v1alpha1.ReleaseApproval{{Ring: "rest", Revision: "v1"}, {Ring: "canary", Revision: "v2"}}
	w.spec.Revision = "v2"
	w.until("it waits", func() bool { return w.outcome.Reason == v1alpha1.ReasonAwaitingApproval })
	require.Equal(t, "ring rest has to wait: spec.approvals does not have it with revision v2", w.outcome.Message)
	for range 20 {
		w.now = w.now.Add(time.Hour)
		w.pass(noCrash)
	}
	require.Equal(t, v1alpha1.RingProved, w.phase("canary"))
	require.Equal(t, "v1", w.apps["b"].Target)
	w.spec.Approvals = []v1alpha1.ReleaseApproval{{Ring: "rest", Revision: "v2"}}
	w.settle(time.Hour)
	require.Equal(t, v1alpha1.ReleaseComplete, w.status().Phase)
}

// What somebody else sets is set back, and told of.
func TestTargetRevisionIsPutBack(t *testing.T) {
	w := released(t)
	w.fates[key("a", "v2")] = degrades
	w.spec.Revision = "v2"
	w.settle(time.Hour)
	for _, name := range []string{"a", "b"} {
		w.apps[name].Target = "v2"
	}
	w.settle(time.Hour)
	require.Equal(t, "v1", w.apps["a"].Target, "what was rolled back stays so")
	require.Equal(t, "v1", w.apps["b"].Target)
	require.Contains(t, w.decisions(), "PutBack canary")
	require.Contains(t, w.decisions(), "PutBack rest")
}

func TestRingsThatCannotWork(t *testing.T) {
	for _, each := range []struct {
		why    string
		change func(*world, *release.Observation)
		want   string
	}{
		{"a name that is not there", func(w *world, _ *release.Observation) { w.spec.Rings[1].Applications = []string{"b", "x"} }, "ring rest: there is no Application x"},
		{"a selector that finds nothing", func(w *world, _ *release.Observation) {
			w.spec.Rings[1] = v1alpha1.ReleaseRing{Name: "rest", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "none"}}}
		}, "ring rest has no application of its own"},
		{"another guard's", func(_ *world, o *release.Observation) { o.Taken = map[string]string{"b": "older"} }, "ring rest: Application b is in a ring of ReleaseGuard older"},
		{"more than one source", func(_ *world, o *release.Observation) {
			for i := range o.Applications {
				if o.Applications[i].Name == "b" {
					o.Applications[i].Unsupported = "has several sources"
				}
			}
		}, "ring rest: Application b has several sources"},
	} {
		t.Run(each.why, func(t *testing.T) {
			w := released(t)
			w.spec.Revision = "v2"
			observed := release.Observation{Applications: []release.Application{*w.apps["a"], *w.apps["b"]}}
			each.change(w, &observed)
			out := release.Decide(w.spec, w.status(), observed, w.now)
			require.Equal(t, release.Blocked, out.Verdict)
			require.Equal(t, each.want, out.Message)
			require.Equal(t, v1alpha1.RingWaiting, out.Status.Rings[0].Phase, "nothing is begun")
		})
	}
}

// The first ring that names an application has it, so "all the rest" is an empty selector.
func TestFirstRingHasAnApplication(t *testing.T) {
	spec := &v1alpha1.ReleaseGuardSpec{Rings: []v1alpha1.ReleaseRing{
		ring("canary", 0, "a"), {Name: "rest", Selector: &metav1.LabelSelector{}},
	}}
	members, problems := release.Members(spec, []release.Application{{Name: "a"}, {Name: "b"}, {Name: "c", Deleting: true}})
	require.Empty(t, problems)
	require.Equal(t, map[string]string{"a": "canary", "b": "rest"}, members)
}

// An application that comes to a ring gets what the ring has.
func TestNewApplicationGetsWhatItsRingHas(t *testing.T) {
	w := released(t, func(s *v1alpha1.ReleaseGuardSpec) { s.Rings[1].Selector = &metav1.LabelSelector{} })
	w.spec.Revision = "v2"
	w.settle(time.Hour)
	w.apps["late"] = &release.Application{Name: "late", Target: "v1", Repository: repository}
	w.settle(time.Hour)
	require.Equal(t, "v2", w.apps["late"].Target)
	require.Equal(t, release.Done, w.outcome.Verdict)
}
