package release

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// observe notes how each application stands to its target revision, and how far each ring is.
func (p *pass) observe() {
	for i := range p.status.Rings {
		ring := &p.status.Rings[i]
		for _, app := range p.membersOf(ring.Name) {
			p.observeApplication(ring, app)
		}
		if p.active() && ring.HasRevision() {
			p.observeRing(ring)
		}
	}
}

func (p *pass) observeApplication(ring *v1alpha1.ReleaseRingStatus, app *v1alpha1.ReleaseApplicationStatus) {
	live := p.live[app.Name]
	app.Sync, app.Health, app.Commit = live.Sync.Status, live.Health, live.Sync.Commit
	given := p.active() && ring.HasRevision()
	done := p.status.Phase == v1alpha1.ReleaseComplete
	if given || done {
		app.TargetRevision = p.status.Release.Revision // also that of an application which came to the ring later
	}
	commit := ""
	if app.TargetRevision == p.status.Release.Revision {
		commit = p.commitOf(live.Repository)
	}
	how, state := assess(live, app.TargetRevision, commit, since(app))
	app.State = state
	if how == standGood && app.TargetRevision == p.status.Release.Revision {
		ring.InEffect++
		p.noteCommit(live)
		if done {
			app.LastGoodRevision = app.TargetRevision
		}
	}
	if !given {
		app.PendingSince, app.LastFailureTime, app.Failures = nil, nil, 0
		return
	}
	switch how {
	case standGood:
		app.PendingSince, app.LastFailureTime, app.Failures = nil, nil, 0
		return
	case standFailing:
		if app.LastFailureTime == nil || !p.now.Before(app.LastFailureTime.Add(seconds(p.spec.HealthIntervalSeconds))) {
			app.Failures++
			app.LastFailureTime = p.stamp()
		}
		p.due(app.LastFailureTime.Add(seconds(p.spec.HealthIntervalSeconds)))
	case standPending:
		app.LastFailureTime, app.Failures = nil, 0
	case standMoved:
	}
	if app.PendingSince == nil {
		app.PendingSince = p.stamp()
	}
	if ring.Phase != v1alpha1.RingProved {
		p.due(p.deadline(app))
	}
}

// since is when an application that is not in effect was given its revision, or ceased to be in effect.
func since(app *v1alpha1.ReleaseApplicationStatus) time.Time {
	if app.PendingSince == nil {
		return time.Time{}
	}
	return app.PendingSince.Time
}

// deadline is when an application that is pending has to be in effect.
func (p *pass) deadline(app *v1alpha1.ReleaseApplicationStatus) time.Time {
	return later(app.PendingSince.Time, p.status.RunningSince.Time).Add(seconds(p.spec.SyncTimeoutSeconds))
}

// noteCommit remembers what the revision was in the first application that it was in effect in.
func (p *pass) noteCommit(live *Application) {
	if !p.active() || live.Sync.Commit == "" || p.commitOf(live.Repository) != "" {
		return
	}
	p.status.Release.Commits = append(p.status.Release.Commits, v1alpha1.ReleaseCommit{Repository: live.Repository, Commit: live.Sync.Commit})
	slices.SortFunc(p.status.Release.Commits, func(a, b v1alpha1.ReleaseCommit) int { return strings.Compare(a.Repository, b.Repository) })
}

func (p *pass) observeRing(ring *v1alpha1.ReleaseRingStatus) {
	if !complete(ring) {
		ring.GoodSince = nil
		if ring.Phase == v1alpha1.RingSoaking {
			ring.Phase = v1alpha1.RingRolling
		}
		return
	}
	if ring.GoodSince == nil {
		ring.GoodSince = p.stamp()
	}
	if ring.SettledTime == nil {
		ring.SettledTime = p.stamp()
	}
	if ring.Phase == v1alpha1.RingRolling {
		ring.Phase = v1alpha1.RingSoaking
	}
}

// complete tells whether all applications of a ring are in effect. One without applications is not.
func complete(ring *v1alpha1.ReleaseRingStatus) bool {
	return ring.Applications > 0 && ring.InEffect == ring.Applications
}

// failure is why a release is taken back.
type failure struct {
	rings   []string
	reason  v1alpha1.ReleaseFailureReason
	message string
}

// judge takes the release back if some ring fails.
func (p *pass) judge() {
	found := p.applicationFailure()
	if found == nil {
		found = p.checkFailure()
	}
	if found == nil {
		return
	}
	p.status.Phase, p.status.Ring = v1alpha1.ReleaseRolledBack, found.rings[0]
	p.status.BadRevision = &v1alpha1.ReleaseFailure{
		Revision: p.status.Release.Revision, Ring: found.rings[0], Reason: found.reason, Message: found.message, Time: *p.stamp(),
	}
	for _, ring := range p.end(found.rings) {
		p.decided(ring.Name, "", v1alpha1.ReasonRolledBack, "%s: %s; %s", found.reason, found.message, p.returned(ring))
	}
	for i := range p.status.Applications {
		app := &p.status.Applications[i]
		_, app.State = assess(p.live[app.Name], app.TargetRevision, "", since(app))
	}
}

// returned says what the applications of a ring return to.
func (p *pass) returned(ring *v1alpha1.ReleaseRingStatus) string {
	to := map[string][]*v1alpha1.ReleaseApplicationStatus{}
	var order []string
	for _, app := range p.membersOf(ring.Name) {
		if to[app.TargetRevision] == nil {
			order = append(order, app.TargetRevision)
		}
		to[app.TargetRevision] = append(to[app.TargetRevision], app)
	}
	parts := make([]string, 0, len(order))
	for _, revision := range order {
		verb := "return to"
		if revision == p.status.Release.Revision {
			verb = "have no earlier revision on record, and stay at"
		}
		parts = append(parts, fmt.Sprintf("%s %s %s", names(to[revision]), verb, short(revision)))
	}
	return strings.Join(parts, "; ")
}

func (p *pass) applicationFailure() *failure {
	for i := range p.status.Rings {
		ring := &p.status.Rings[i]
		if !ring.HasRevision() {
			continue
		}
		for _, app := range p.membersOf(ring.Name) {
			if found := p.failureOf(ring, app); found != nil {
				return found
			}
		}
	}
	return nil
}

// failureOf tells why an application fails. One of a ring that is proved may take as long as it likes to be in effect
// again, since what moved it was not the release; it holds up the next ring meanwhile.
func (p *pass) failureOf(ring *v1alpha1.ReleaseRingStatus, app *v1alpha1.ReleaseApplicationStatus) *failure {
	revision := p.status.Release.Revision
	out := &failure{rings: []string{ring.Name}}
	how, state := assess(p.live[app.Name], revision, p.commitOf(p.live[app.Name].Repository), since(app))
	switch {
	case how == standMoved:
		out.reason = v1alpha1.FailureMoved
		out.message = fmt.Sprintf("Application %s: the revision moved: %s", app.Name, state)
	case app.Failures >= p.spec.HealthFailureThreshold:
		out.reason = v1alpha1.FailureHealth
		out.message = fmt.Sprintf("Application %s failed %d times in a row at %s: %s", app.Name, app.Failures, revision, state)
	case ring.Phase != v1alpha1.RingProved && app.PendingSince != nil && !p.now.Before(p.deadline(app)):
		out.reason = v1alpha1.FailureSyncTimeout
		out.message = fmt.Sprintf("Application %s was not in effect at %s within %d s: %s", app.Name, revision, p.spec.SyncTimeoutSeconds, state)
	default:
		return nil
	}
	return out
}

// advance proves rings, and gives the next one the revision.
func (p *pass) advance() {
	for i := range p.status.Rings {
		ring := &p.status.Rings[i]
		switch ring.Phase {
		case v1alpha1.RingWaiting:
			p.start(i)
			return
		case v1alpha1.RingProved:
			continue
		default:
			if !p.proved(ring, p.spec.Rings[i]) {
				return
			}
			ring.Phase = v1alpha1.RingProved
			p.decided(ring.Name, "", v1alpha1.ReasonRingProved, "%d of %d applications stayed in effect at %s for %d s%s",
				ring.InEffect, ring.Applications, p.status.Release.Revision, *p.spec.Rings[i].SoakSeconds, p.passed(ring.Name))
		}
	}
	p.status.Phase = v1alpha1.ReleaseComplete
	p.end(nil)
	p.decided("", "", v1alpha1.ReasonReleaseComplete, "%s is in effect in %d rings, %d applications",
		attempt(p.spec.Revision, p.spec.Attempt), len(p.status.Rings), len(p.status.Applications))
}

// proved tells whether a ring has shown what it must.
func (p *pass) proved(ring *v1alpha1.ReleaseRingStatus, spec v1alpha1.ReleaseRing) bool {
	if !complete(ring) || len(p.problems) > 0 {
		return false
	}
	until := ring.GoodSince.Add(seconds(*spec.SoakSeconds))
	if p.now.Before(until) {
		p.due(until)
		return false
	}
	p.closing = p.closed(ring)
	return p.closing == nil
}

// start gives the ring at an index the revision, if nothing speaks against it.
func (p *pass) start(index int) {
	if len(p.problems) > 0 {
		return
	}
	for i := range index {
		earlier := &p.status.Rings[i]
		if !complete(earlier) {
			p.closing = &gate{v1alpha1.ReasonProgressing, fmt.Sprintf("ring %s was proved, but %d of its %d applications are not in effect now",
				earlier.Name, earlier.Applications-earlier.InEffect, earlier.Applications)}
			return
		}
		if p.closing = p.closed(earlier); p.closing != nil {
			return
		}
	}
	ring := &p.status.Rings[index]
	approval := v1alpha1.ReleaseApproval{Ring: ring.Name, Revision: p.spec.Revision}
	if p.spec.Rings[index].NeedsApproval && !slices.Contains(p.spec.Approvals, approval) {
		p.closing = &gate{v1alpha1.ReasonAwaitingApproval, "spec.approvals does not have it with revision " + p.spec.Revision}
		return
	}
	ring.Phase, ring.StartedTime, ring.InEffect = v1alpha1.RingRolling, p.stamp(), 0
	members := p.membersOf(ring.Name)
	from := []string{}
	for _, app := range members {
		if !slices.Contains(from, short(app.TargetRevision)) {
			from = append(from, short(app.TargetRevision))
		}
		app.TargetRevision, app.PendingSince = p.status.Release.Revision, p.stamp()
		_, app.State = assess(p.live[app.Name], app.TargetRevision, p.commitOf(p.live[app.Name].Repository), since(app))
	}
	p.due(p.now.Add(time.Second))
	p.decided(ring.Name, "", v1alpha1.ReasonRingStarted, "%s go from %s to %s", names(members), strings.Join(from, ", "), p.status.Release.Revision)
}
