package release_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/plan/release"
)

// fate is what becomes of an application at a revision.
type fate string

const (
	works       fate = "works"
	degrades    fate = "is Degraded"
	neverReady  fate = "is Progressing for ever"
	syncFails   fate = "fails to sync"
	noSuchThing fate = "is no revision that exists"
	crosses     fate = "is healthy, and the query crosses its bound"
)

const repository = "https://git.example.com/apps"

// world is Argo CD, Prometheus, and an operator with its API server, as far as the decision sees them.
type world struct {
	t        require.TestingT
	spec     *v1alpha1.ReleaseGuardSpec
	written  []byte // the status at the API server
	apps     map[string]*release.Application
	fates    map[string]fate // by application and revision; the rest works
	applied  map[string]string
	away     bool // Prometheus does not answer
	now      time.Time
	outcome  release.Outcome
	moves    []string
	syncs    []string
	returned map[string]bool // revisions that were rolled back since the spec was last changed
}

func newWorld(t require.TestingT, spec *v1alpha1.ReleaseGuardSpec) *world {
	w := &world{
		t: t, spec: spec, written: []byte("{}"), apps: map[string]*release.Application{}, fates: map[string]fate{}, applied: map[string]string{},
		now: time.Date(2026, 1, 1, 0, 0, 0, 250e6, time.UTC), returned: map[string]bool{},
	}
	for _, ring := range spec.Rings {
		for _, name := range ring.Applications {
			w.apps[name] = &release.Application{Name: name, Target: "v1", Repository: repository}
			w.argo(name)
			w.argo(name)
		}
	}
	return w
}

func key(app, revision string) string { return app + "@" + revision }

func (w *world) fateOf(app, revision string) fate {
	if f, ok := w.fates[key(app, revision)]; ok {
		return f
	}
	return works
}

func commitOf(revision string) string { return "commit-" + revision }

// argo lets Argo CD make one step with an application: compare, begin a sync, end it, look at health.
func (w *world) argo(name string) {
	app := w.apps[name]
	how := w.fateOf(name, app.Target)
	op := app.Operation
	switch {
	case app.Sync.Target != app.Target:
		if app.Fault = ""; how == noSuchThing {
			app.Fault = "ComparisonError: unable to resolve the revision"
			return
		}
		app.Sync = release.Sync{Status: "OutOfSync", Target: app.Target, Repository: repository, Commit: commitOf(app.Target)}
		if app.Reconciled = w.now; w.applied[name] == app.Target {
			app.Sync.Status = "Synced"
		}
	case app.Fault != "":
		app.Fault = ""
	case op != nil && op.Phase == "Terminating":
		op.Phase, op.Finished = "Failed", w.now
	case app.Sync.Status == "OutOfSync" && (op == nil || (op.Phase != "Running" && op.Target != app.Target)):
		app.Operation = &release.Operation{Phase: "Running", Target: app.Target}
	case op != nil && op.Phase == "Running" && w.fateOf(name, op.Target) == syncFails:
		op.Phase, op.Finished = "Failed", w.now
	case op != nil && op.Phase == "Running":
		op.Phase, op.Finished, w.applied[name] = "Succeeded", w.now, op.Target
	case w.applied[name] == app.Target:
		health := map[fate]string{degrades: "Degraded", neverReady: "Progressing"}[how]
		if health == "" {
			health = "Healthy"
		}
		if app.Sync.Status != "Synced" || app.Health != health || (op != nil && app.Reconciled.Before(op.Finished)) {
			app.Sync.Status, app.Health, app.Reconciled = "Synced", health, w.now
		}
	}
}

func (w *world) status() *v1alpha1.ReleaseGuardStatus {
	status := &v1alpha1.ReleaseGuardStatus{}
	require.NoError(w.t, json.Unmarshal(w.written, status))
	return status
}

// crash says after what an operator stops in the middle of a pass.
type crash int

const (
	noCrash     crash = iota
	beforeMoves       // nothing was done
	afterOne          // the first move was made, and no status written
	beforeWrite       // all moves were made, and no status written
)

// pass makes one pass of the operator, which remembers nothing of the one before.
func (w *world) pass(c crash) {
	status := w.status()
	observed := release.Observation{Samples: map[string]release.Sample{}}
	for _, name := range slices.Sorted(maps.Keys(w.apps)) {
		observed.Applications = append(observed.Applications, *w.apps[name])
	}
	for _, check := range release.Checks(w.spec, status) {
		observed.Samples[check.Name] = w.sample()
	}
	w.outcome = release.Decide(w.spec, status, observed, w.now)
	again := release.Decide(w.spec, status, observed, w.now)
	require.Equal(w.t, w.outcome, again, "the decision is not a function of its arguments")
	if c == beforeMoves {
		return
	}
	for _, move := range w.outcome.Moves {
		w.allowed(status, move)
		w.apps[move.Application].Target = move.To
		w.moves = append(w.moves, move.Application+" to "+move.To)
		if c == afterOne {
			return
		}
	}
	w.syncs = append(w.syncs, w.outcome.Sync...)
	for _, name := range w.outcome.Sync {
		w.apps[name].Operation = &release.Operation{Phase: "Running", Target: w.apps[name].Target}
	}
	for _, name := range w.outcome.Terminate {
		w.apps[name].Operation.Phase = "Terminating"
	}
	if c == beforeWrite {
		return
	}
	data, err := json.Marshal(w.outcome.Status)
	require.NoError(w.t, err)
	w.written = data
	for _, decision := range w.outcome.Decisions {
		if decision.Decision == v1alpha1.ReasonRolledBack {
			w.returned[w.outcome.Status.BadRevision.Revision] = true
		}
	}
}

func (w *world) sample() release.Sample {
	out := release.Sample{Time: w.now, Values: []float64{1}}
	for name, app := range w.apps {
		if app.Operation != nil && w.fateOf(name, app.Operation.Target) == crosses && app.Operation.Phase == "Succeeded" {
			out.Values = []float64{0.5}
		}
	}
	if w.away {
		out = release.Sample{Time: w.now, Err: "Prometheus did not answer in time"}
	}
	return out
}

// allowed holds a move to the rules.
func (w *world) allowed(status *v1alpha1.ReleaseGuardStatus, move release.Move) {
	if move.To != w.spec.Revision || move.To == "v1" {
		return
	}
	require.False(w.t, w.returned[move.To], "%s was rolled back, and is given to %s again", move.To, move.Application)
	ring := slices.IndexFunc(w.spec.Rings, func(r v1alpha1.ReleaseRing) bool { return slices.Contains(r.Applications, move.Application) })
	if ring < 0 {
		return // it is in its ring by a label, and that ring is proved
	}
	for _, earlier := range status.Rings[:ring] {
		require.Equal(w.t, v1alpha1.RingProved, earlier.Phase, "%s gets %s while ring %s is not proved", move.Application, move.To, earlier.Name)
	}
	for _, earlier := range w.spec.Rings[:ring] {
		for _, name := range earlier.Applications {
			require.Equal(w.t, works, w.fateOf(name, move.To), "%s gets %s, which fails in %s", move.Application, move.To, name)
		}
	}
}

// settle runs everything without faults until nothing is asked for any more, or for at most a time.
func (w *world) settle(limit time.Duration) {
	for end := w.now.Add(limit); w.now.Before(end); {
		before := string(w.written)
		w.pass(noCrash)
		still := true
		for _, name := range slices.Sorted(maps.Keys(w.apps)) {
			seen := fmt.Sprintf("%+v %+v", *w.apps[name], w.apps[name].Operation)
			w.argo(name)
			still = still && seen == fmt.Sprintf("%+v %+v", *w.apps[name], w.apps[name].Operation)
		}
		step := time.Second
		if still && before == string(w.written) {
			if w.outcome.Look == 0 && w.outcome.Verdict != release.Waiting {
				return
			}
			step = max(w.outcome.Look, step)
		}
		w.now = w.now.Add(step)
	}
}

// end is what must be the same by every path.
func (w *world) end() map[string]string {
	status := w.status()
	out := map[string]string{"phase": string(status.Phase), "verdict": string(w.outcome.Verdict)}
	for _, ring := range status.Rings {
		out["ring "+ring.Name] = string(ring.Phase)
	}
	for _, app := range status.Applications {
		out[app.Name] = fmt.Sprintf("at %s, good %s, %s", w.apps[app.Name].Target, app.LastGoodRevision, app.State)
	}
	return out
}

func ring(name string, soak int32, apps ...string) v1alpha1.ReleaseRing {
	return v1alpha1.ReleaseRing{Name: name, Applications: apps, SoakSeconds: &soak}
}

// drawn is a random release of v2 over v1, which fails in some ring or in none.
func drawn(t *rapid.T) (*v1alpha1.ReleaseGuardSpec, map[string]fate, int) {
	spec := &v1alpha1.ReleaseGuardSpec{Revision: "v1", SyncTimeoutSeconds: 120}
	for i := range rapid.IntRange(1, 4).Draw(t, "rings") {
		one := ring(fmt.Sprintf("ring-%d", i), int32(rapid.IntRange(0, 60).Draw(t, "soak")))
		for j := range rapid.IntRange(1, 3).Draw(t, "applications") {
			one.Applications = append(one.Applications, fmt.Sprintf("app-%d-%d", i, j))
		}
		spec.Rings = append(spec.Rings, one)
	}
	if rapid.Bool().Draw(t, "a check") {
		spec.Checks = []v1alpha1.ReleaseCheck{checkMin("availability", "0.9")}
	}
	failing := rapid.IntRange(0, len(spec.Rings)).Draw(t, "ring that fails")
	fates := map[string]fate{}
	if failing < len(spec.Rings) {
		kinds := []fate{degrades, neverReady, syncFails, noSuchThing}
		if len(spec.Checks) > 0 {
			kinds = append(kinds, crosses)
		}
		name := rapid.SampledFrom(spec.Rings[failing].Applications).Draw(t, "application that fails")
		fates[key(name, "v2")] = rapid.SampledFrom(kinds).Draw(t, "fate")
	}
	return spec, fates, failing
}

// Whatever happens between and in the passes: no ring is given a revision before the earlier ones are proved, one that was
// rolled back is not given to anybody again, and the end is that of an undisturbed run.
func TestSimulationWithCrashesAndLateEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec, fates, failing := drawn(t)
		calm := newWorld(t, spec)
		w := newWorld(t, spec.DeepCopy())
		for _, each := range []*world{calm, w} {
			each.settle(time.Hour)
			require.Equal(t, release.Done, each.outcome.Verdict, each.outcome.Message)
			each.fates = fates
			each.spec.Revision = "v2"
		}
		names := slices.Sorted(maps.Keys(w.apps))
		for range rapid.IntRange(0, 150).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				w.pass(rapid.SampledFrom([]crash{beforeMoves, afterOne, beforeWrite}).Draw(t, "crash"))
			case 1:
				w.pass(noCrash)
			case 2:
				w.now = w.now.Add(time.Duration(rapid.IntRange(0, 15000).Draw(t, "ms")) * time.Millisecond)
			default:
				w.argo(rapid.SampledFrom(names).Draw(t, "application"))
			}
		}
		calm.settle(3 * time.Hour)
		w.settle(3 * time.Hour)
		if failing < len(spec.Rings) {
			require.Equal(t, release.Blocked, calm.outcome.Verdict)
		} else {
			require.Equal(t, release.Done, calm.outcome.Verdict)
		}
		if late(w, failing) {
			return // Argo CD was so late that a ring which would have worked timed out
		}
		require.Equal(t, calm.end(), w.end())

		// It stays so, through a restart and a day of passes.
		written, moves := string(w.written), len(w.moves)
		for range 20 {
			w.now = w.now.Add(time.Hour)
			w.pass(noCrash)
			for _, name := range names {
				w.argo(name)
			}
		}
		require.Equal(t, written, string(w.written), "at rest the status was written")
		require.Len(t, w.moves, moves, "at rest an application was moved")
	})
}

// late tells whether a ring failed in a run that does not fail of itself.
func late(w *world, failing int) bool {
	bad := w.status().BadRevision
	if bad == nil {
		return false
	}
	at := slices.IndexFunc(w.spec.Rings, func(r v1alpha1.ReleaseRing) bool { return r.Name == bad.Ring })
	return at != failing && bad.Reason == v1alpha1.FailureSyncTimeout
}

// A release that fails is taken back in bounded time, whatever its fault is, and the applications run what they ran before.
func TestRollbackIsBounded(t *testing.T) {
	for _, how := range []fate{degrades, neverReady, syncFails, noSuchThing, crosses} {
		t.Run(string(how), func(t *testing.T) {
			spec := &v1alpha1.ReleaseGuardSpec{
				Revision: "v1", Rings: []v1alpha1.ReleaseRing{ring("canary", 60, "a"), ring("rest", 60, "b", "c")},
				Checks: []v1alpha1.ReleaseCheck{checkMin("availability", "0.9")},
			}
			w := newWorld(t, spec)
			w.settle(time.Hour)
			spec.Revision = "v2"
			w.fates[key("a", "v2")] = how
			began := w.now
			w.settle(time.Hour)
			status := w.status()
			require.Equal(t, v1alpha1.ReleaseRolledBack, status.Phase)
			require.NotNil(t, status.BadRevision)
			bounds := map[fate]time.Duration{degrades: 40 * time.Second, syncFails: 40 * time.Second, crosses: 45 * time.Second}
			bound, ok := bounds[how]
			if !ok {
				bound = 185 * time.Second
			}
			require.LessOrEqual(t, status.BadRevision.Time.Sub(began), bound, "%+v", status.Decisions)
			require.Equal(t, []string{"a to v2", "a to v1"}, w.moves[len(w.moves)-2:])
			require.Equal(t, "in effect", status.Applications[0].State)
			require.NotContains(t, w.moves, "b to v2")
			require.NotContains(t, w.moves, "c to v2")

			// Another try is made when it is asked for, and only then.
			w.fates = map[string]fate{}
			w.returned = map[string]bool{}
			w.settle(time.Hour)
			require.Equal(t, v1alpha1.ReleaseRolledBack, w.status().Phase)
			spec.Attempt = 1
			w.settle(time.Hour)
			require.Equal(t, v1alpha1.ReleaseComplete, w.status().Phase)
			for _, app := range w.apps {
				require.Equal(t, "v2", app.Target)
			}
		})
	}
}
