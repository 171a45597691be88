package engine

import "time"

const (
	// gatherLeast is how many callers a batch must have had for gathering to be worth while.
	gatherLeast = 4
	// gatherMost bounds how long is waited after a batch, which is as long as that took: as long as waiting for everybody takes less than a
	// batch does, one batch of all is faster than two of one half each in turns.
	gatherMost = 4 * time.Millisecond
	// gatherWorth is which share of a batch's callers must have been back in time, on an average, for the next to be waited for. Every
	// gatherProbe-th batch it is tried all the same.
	gatherWorth = 0.25
	gatherProbe = 16
)

// gatherer decides how long the next batch waits for more. While a batch is under way everybody else's ops queue up, and would make the next
// one at once, without those whose ops were just committed. Many of these have another op in a moment, most of all those who share a session. A
// short wait for them makes one large batch of what would be two small ones, which cost as much each and take turns. The zero value is ready.
type gatherer struct {
	// size is how many callers the last batch had, before how many ops were queued when it was committed, and until up to when the next one may wait.
	size, before int
	until        time.Time
	// back is an average of the shares of callers that were back in time.
	back    float64
	batches int
}

// committed takes note of a batch, with how many of its ops somebody waited for.
func (g *gatherer) committed(size, queued int, began, ended time.Time) {
	g.size, g.before, g.until = size, queued, ended.Add(min(ended.Sub(began), gatherMost))
	g.batches++
}

// plan says how many ops to wait for, and how long at most. As many as are queued: not at all.
func (g *gatherer) plan(queued int, now time.Time) (enough int, wait time.Duration) {
	if queued == 0 || g.size < gatherLeast || (g.back < gatherWorth && g.batches%gatherProbe != 0) {
		return queued, 0
	}
	if wait = g.until.Sub(now); wait <= 0 {
		return queued, 0
	}
	return max(queued, g.before+g.size), wait
}

// gathered takes note of how many were queued in the end.
func (g *gatherer) gathered(queued int) {
	share := min(1, float64(queued-g.before)/float64(g.size))
	g.back += (share - g.back) / 4
	g.size = 0 // once a batch
}
