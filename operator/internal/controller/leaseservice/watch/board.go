package watch

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// board is what is known of the pods of one object, and what of it was published. It decides when to publish:
//
//   - who leads, who serves, who is heard: at once;
//   - numbers alone: at most once an interval. A busy service changes them with every call, and each publication
//     ends in a write to the API server; a number that is a few seconds old misleads nobody.
//
// Readers see what was published, never more: whatever else makes the controller look, a number that is not due
// leads to no write. It does no I/O and reads no clock. It is not safe for concurrent use.
type board struct {
	grace    time.Duration
	interval time.Duration

	rows          map[types.UID]*row
	published     map[string]Report
	lastPublished time.Time
}

// row is what is known of one pod.
type row struct {
	pod     string
	report  Report
	heard   bool      // the pod has said something
	open    bool      // its stream is open
	since   time.Time // when the row was made, or the stream ended
	problem string    // why the last attempt to listen failed
}

func newBoard(grace, interval time.Duration) *board {
	return &board{grace: grace, interval: interval, rows: map[types.UID]*row{}, published: map[string]Report{}}
}

func (b *board) add(target Target, now time.Time) {
	b.rows[target.UID] = &row{pod: target.Pod, since: now, problem: "it has not answered the operator yet"}
}

// remove forgets a pod, and what was published of it, at once: a pod that is gone leads nobody.
func (b *board) remove(uid types.UID) {
	gone, ok := b.rows[uid]
	if !ok {
		return
	}
	delete(b.rows, uid)
	delete(b.published, gone.pod)
}

// hear takes in what a pod says.
func (b *board) hear(uid types.UID, report Report, now time.Time) {
	r, ok := b.rows[uid]
	if !ok {
		return
	}
	report.ClaimedAt, report.ClaimSeen = time.Time{}, false
	switch {
	case report.Leader && r.report.Leader:
		report.ClaimedAt, report.ClaimSeen = r.report.ClaimedAt, r.report.ClaimSeen
	case report.Leader:
		// A stream that was interrupted in between has not seen the election either.
		report.ClaimedAt, report.ClaimSeen = now, r.heard && r.open
	}
	r.report, r.heard, r.open, r.problem = report, true, true, ""
}

// lose takes in that nothing is heard from a pod any more, or that an attempt to listen failed.
func (b *board) lose(uid types.UID, problem string, now time.Time) {
	r, ok := b.rows[uid]
	if !ok {
		return
	}
	if r.open {
		r.open, r.since = false, now
	}
	r.problem = problem
}

// view returns what holds now, and when that changes without anything being heard (zero: never).
func (b *board) view(now time.Time) (map[string]Report, time.Time) {
	out := make(map[string]Report, len(b.rows))
	var wake time.Time
	for _, r := range b.rows {
		report := r.report
		switch deadline := r.since.Add(b.grace); {
		case r.open:
			report.State = Live
		case !now.Before(deadline):
			report = Report{State: Lost, Problem: r.problem}
		case r.heard:
			report.State = Broken
			wake = earlier(wake, deadline)
		default:
			report = Report{State: Pending}
			wake = earlier(wake, deadline)
		}
		out[r.pod] = report
	}
	return out, wake
}

// publish publishes what is due. It tells whether that changed what readers see, and when to be called again even
// though nothing was heard (zero: never).
func (b *board) publish(now time.Time) (changed bool, wake time.Time) {
	view, wake := b.view(now)
	if maps.Equal(view, b.published) {
		return false, wake
	}
	due := b.lastPublished.Add(b.interval)
	if maps.EqualFunc(view, b.published, sameButCounts) && now.Before(due) {
		return false, earlier(wake, due)
	}
	b.published, b.lastPublished = view, now
	return true, wake
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
