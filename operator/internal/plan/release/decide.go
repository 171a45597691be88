package release

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// Verdict is what a decision came to.
type Verdict string

const (
	// Done: every ring is proved, and every application is kept where it should be.
	Done Verdict = "Done"
	// Waiting: the release goes on.
	Waiting Verdict = "Waiting"
	// Blocked: somebody must change something.
	Blocked Verdict = "Blocked"
	// Held: the guard is paused, and would do something.
	Held Verdict = "Held"
)

// Move sets the target revision of an application.
type Move struct {
	Application string
	From, To    string
}

// Outcome is a decision.
type Outcome struct {
	// Status is to be written. Conditions and observedGeneration are as they were.
	Status v1alpha1.ReleaseGuardStatus
	// Moves are to be made now: the status that was given asks for them already.
	Moves []Move
	// Terminate are applications whose running operation is of another revision, and is to be ended: Argo CD begins no
	// other one before.
	Terminate []string
	// Sync are applications for which a sync is to be asked, since Argo CD has given their revision up in an earlier attempt.
	Sync []string
	// Decisions are those that are new in Status.
	Decisions []v1alpha1.ReleaseDecision
	// Verdict, with a reason and a message that are equal for equal states.
	Verdict         Verdict
	Reason, Message string
	// Look is the time to the next decision if nothing happens. Zero: never.
	Look time.Duration
}

// pass is one decision in the making.
type pass struct {
	spec     *v1alpha1.ReleaseGuardSpec
	prior    *v1alpha1.ReleaseGuardStatus // as it is written; never changed
	status   *v1alpha1.ReleaseGuardStatus // as it is to be
	observed Observation
	now      time.Time
	live     map[string]*Application             // the members that can be moved, set by enroll
	problems []string                            // what is wrong with the rings, set by enroll
	away     []v1alpha1.ReleaseApplicationStatus // entries of applications that are no members now, set by enroll
	closing  *gate                               // why the next ring cannot go, set by advance
	made     []v1alpha1.ReleaseDecision
	look     time.Duration
}

// gate is why a ring cannot go, with the reason of the condition.
type gate struct{ reason, text string }

// Decide makes the next decision. It changes none of its arguments.
func Decide(spec *v1alpha1.ReleaseGuardSpec, status *v1alpha1.ReleaseGuardStatus, observed Observation, now time.Time) Outcome {
	spec = withDefaults(spec)
	if spec.Paused {
		return decidePaused(spec, status, observed, now)
	}
	return decide(spec, status, observed, now)
}

func decide(spec *v1alpha1.ReleaseGuardSpec, status *v1alpha1.ReleaseGuardStatus, observed Observation, now time.Time) Outcome {
	p := &pass{
		spec: spec, prior: status, status: status.DeepCopy(), observed: observed, now: now, live: map[string]*Application{},
	}
	if p.status.RunningSince == nil {
		p.status.RunningSince = p.stamp()
	}
	p.enroll()
	p.begin()
	p.observe()
	p.check()
	if p.active() {
		p.judge()
	}
	if p.active() {
		p.advance()
	}
	if p.active() {
		// Events tell of every change; this is for one that was lost.
		p.due(p.now.Add(seconds(p.spec.HealthIntervalSeconds)))
	}
	p.describe()
	p.putBack()
	return p.outcome()
}

// decidePaused stops the clocks, and says what would be done. Since when an application is pending stays, as it tells which of
// its syncs belong to this attempt.
func decidePaused(spec *v1alpha1.ReleaseGuardSpec, status *v1alpha1.ReleaseGuardStatus, observed Observation, now time.Time) Outcome {
	stopped := status.DeepCopy()
	stopped.RunningSince = nil
	for i := range stopped.Applications {
		app := &stopped.Applications[i]
		app.LastFailureTime, app.Failures = nil, 0
	}
	for i := range stopped.Rings {
		if stopped.Rings[i].Phase != v1alpha1.RingProved {
			stopped.Rings[i].GoodSince = nil
		}
	}
	for i := range stopped.Checks {
		stopped.Checks[i].Failures, stopped.Checks[i].LastFailureTime = 0, nil
	}
	would := decide(spec, stopped, observed, now)
	out := Outcome{Status: *stopped, Verdict: would.Verdict, Reason: would.Reason, Message: would.Message}
	switch {
	case len(would.Moves) > 0:
		out.Verdict, out.Message = Held, fmt.Sprintf("paused: would set the target revision of Application %s to %s", would.Moves[0].Application, would.Moves[0].To)
	case len(would.Terminate) > 0:
		out.Verdict, out.Message = Held, "paused: would end the running sync of Application "+would.Terminate[0]
	case len(would.Sync) > 0:
		out.Verdict, out.Message = Held, "paused: would sync Application "+would.Sync[0]
	case len(would.Decisions) > 0:
		out.Verdict, out.Message = Held, "paused: would decide "+would.Decisions[0].Decision+": "+would.Decisions[0].Message
	case would.Verdict == Waiting:
		out.Verdict, out.Message = Held, "paused: "+would.Message
	}
	return out
}

func withDefaults(spec *v1alpha1.ReleaseGuardSpec) *v1alpha1.ReleaseGuardSpec {
	spec = spec.DeepCopy()
	fill := func(value *int32, fallback int32) {
		if *value == 0 {
			*value = fallback
		}
	}
	fill(&spec.SyncTimeoutSeconds, v1alpha1.DefaultSyncTimeoutSeconds)
	fill(&spec.HealthFailureThreshold, v1alpha1.DefaultHealthFailureThreshold)
	fill(&spec.HealthIntervalSeconds, v1alpha1.DefaultHealthIntervalSeconds)
	for i := range spec.Checks {
		fill(&spec.Checks[i].IntervalSeconds, v1alpha1.DefaultCheckIntervalSeconds)
		fill(&spec.Checks[i].FailureThreshold, v1alpha1.DefaultCheckFailureThreshold)
	}
	for i := range spec.Rings {
		if spec.Rings[i].SoakSeconds == nil {
			spec.Rings[i].SoakSeconds = new(int32(v1alpha1.DefaultSoakSeconds))
		}
	}
	return spec
}

func (p *pass) active() bool { return p.status.Phase == v1alpha1.ReleaseRolling }

// stamp is now as a status can hold it.
func (p *pass) stamp() *metav1.Time { return new(metav1.NewTime(p.now.Truncate(time.Second))) }

// due asks for a decision at a time, or soon when that has passed.
func (p *pass) due(at time.Time) {
	wait := max(at.Sub(p.now), time.Second)
	if p.look == 0 || wait < p.look {
		p.look = wait
	}
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func (p *pass) decided(ring, application, decision, format string, args ...any) {
	p.made = append(p.made, v1alpha1.ReleaseDecision{
		Time: *p.stamp(), Ring: ring, Application: application, Decision: decision, Message: fmt.Sprintf(format, args...),
	})
}

// begin starts a release when another revision or attempt is wanted than the one on record.
func (p *pass) begin() {
	old := p.status.Release
	if old != nil && old.Revision == p.spec.Revision && old.Attempt == p.spec.Attempt {
		return
	}
	if old != nil && p.active() {
		p.decided("", "", v1alpha1.ReasonReleaseSuperseded, "%s is no longer wanted: %s is", attempt(old.Revision, old.Attempt), attempt(p.spec.Revision, p.spec.Attempt))
		p.end(nil)
	}
	p.status.Phase, p.status.BadRevision, p.status.Checks = v1alpha1.ReleaseRolling, nil, nil
	p.status.Release = &v1alpha1.ReleaseRecord{Revision: p.spec.Revision, Attempt: p.spec.Attempt, StartedTime: *p.stamp()}
	for i := range p.status.Rings {
		ring := &p.status.Rings[i]
		*ring = v1alpha1.ReleaseRingStatus{Name: ring.Name, Phase: v1alpha1.RingWaiting, Applications: ring.Applications}
	}
	p.decided("", "", v1alpha1.ReasonReleaseStarted, "%s is wanted: %d rings, %d applications",
		attempt(p.spec.Revision, p.spec.Attempt), len(p.status.Rings), len(p.status.Applications))
}

func attempt(revision string, number int32) string {
	if number == 0 {
		return revision
	}
	return fmt.Sprintf("%s (attempt %d)", revision, number)
}

// end closes the release on record. A ring that was proved keeps the revision, which is its last good one from now on;
// every other one that has it, and those in failed, return to what they had. It returns the rings that do.
func (p *pass) end(failed []string) []*v1alpha1.ReleaseRingStatus {
	var returned []*v1alpha1.ReleaseRingStatus
	for i := range p.status.Rings {
		ring := &p.status.Rings[i]
		back := ring.HasRevision() && (ring.Phase != v1alpha1.RingProved || slices.Contains(failed, ring.Name))
		p.endAway(ring, back)
		for _, app := range p.membersOf(ring.Name) {
			app.PendingSince, app.LastFailureTime, app.Failures = nil, nil, 0
			switch {
			case back && !p.isRelease(app):
				app.TargetRevision = app.LastGoodRevision
			case !back && ring.Phase == v1alpha1.RingProved:
				app.LastGoodRevision = p.status.Release.Revision
			}
		}
		if back {
			ring.Phase, ring.GoodSince, ring.InEffect = v1alpha1.RingRolledBack, nil, 0
			returned = append(returned, ring)
		}
	}
	return returned
}

// endAway lets those that are away come back to what the members of their ring have.
func (p *pass) endAway(ring *v1alpha1.ReleaseRingStatus, back bool) {
	for i := range p.away {
		switch app := &p.away[i]; {
		case app.Ring != ring.Name:
		case back:
			app.TargetRevision = app.LastGoodRevision
		case ring.Phase == v1alpha1.RingProved:
			app.TargetRevision, app.LastGoodRevision = p.status.Release.Revision, p.status.Release.Revision
		}
	}
}

// isRelease tells whether the last good revision of an application is that of the release under another name, so that there
// is nothing to return to.
func (p *pass) isRelease(app *v1alpha1.ReleaseApplicationStatus) bool {
	commit := p.commitOf(p.live[app.Name].Repository)
	return app.LastGoodRevision == p.status.Release.Revision || (commit != "" && app.LastGoodRevision == commit)
}

func (p *pass) commitOf(repository string) string {
	for _, known := range p.status.Release.Commits {
		if known.Repository == repository {
			return known.Commit
		}
	}
	return ""
}

// putBack notices target revisions that somebody else changed. That they are set again follows from the status.
func (p *pass) putBack() {
	wanted := map[string]string{}
	for _, app := range p.status.Applications {
		wanted[app.Name] = app.TargetRevision
	}
	for _, before := range p.prior.Applications {
		live := p.live[before.Name]
		if live == nil || live.Target == before.TargetRevision || wanted[before.Name] != before.TargetRevision || before.State == notSet || before.State == notThere {
			continue
		}
		message := fmt.Sprintf("somebody set the target revision of Application %s to %s: it is set back to %s", before.Name, live.Target, before.TargetRevision)
		last := len(p.prior.Decisions) - 1
		if last >= 0 && p.prior.Decisions[last].Decision == v1alpha1.ReasonPutBack && p.prior.Decisions[last].Message == message {
			continue // two who fight are told of once
		}
		p.decided(before.Ring, before.Name, v1alpha1.ReasonPutBack, "%s", message)
	}
}

// outcome compares what is to be with what is there.
func (p *pass) outcome() Outcome {
	p.status.Decisions = append(p.status.Decisions, p.made...)
	if n := len(p.status.Decisions); n > v1alpha1.MaxReleaseDecisions {
		p.status.Decisions = slices.Clone(p.status.Decisions[n-v1alpha1.MaxReleaseDecisions:])
	}
	out := Outcome{Decisions: p.made}
	written := map[string]string{}
	for _, app := range p.prior.Applications {
		written[app.Name] = app.TargetRevision
	}
	late := ""
	for _, app := range p.status.Applications {
		live := p.live[app.Name]
		asked := written[app.Name] == app.TargetRevision
		switch {
		case live.Target != app.TargetRevision && asked:
			out.Moves = append(out.Moves, Move{Application: app.Name, From: live.Target, To: app.TargetRevision})
			late = app.Name
		case live.Target != app.TargetRevision:
			late = app.Name
		case asked && live.Operation.running() && live.Operation.Phase == phaseRunning && live.Operation.Target != "" && live.Operation.Target != app.TargetRevision:
			out.Terminate = append(out.Terminate, app.Name)
		case asked && p.active() && !live.Requested && live.givenUp(app.TargetRevision, since(&app)) && live.Sync.Target == app.TargetRevision && live.Sync.Status == syncOutOfSync:
			out.Sync = append(out.Sync, app.Name)
		}
	}
	if late != "" {
		p.due(p.now)
	}
	out.Verdict, out.Reason, out.Message = p.verdict(late)
	out.Look = p.look
	p.keepAway()
	out.Status = *p.status
	return out
}
