package server

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

const (
	// placeTick is how soon an acquire that waits in line is told its place, and placeEvery how often that is looked at again.
	placeTick  = 250 * time.Millisecond
	placeEvery = time.Second
	// placeReads is how many lines are read at a time.
	placeReads = 8
)

// tellPlaces tells the acquires that wait in line their places whenever they have changed. Many may wait for one name, and each line
// is as long as they are many, so it reads the line of each name once for all of them.
func (ss *sessionStream) tellPlaces() {
	ticker := time.NewTicker(placeTick)
	defer ticker.Stop()
	for tick := 0; ; tick++ {
		select {
		case <-ticker.C:
		case <-ss.ctx.Done():
			return
		}
		if !ss.out.full() { // who does not read has no need of news
			ss.tellRound(tick%int(placeEvery/placeTick) == 0)
		}
	}
}

// tellRound reads the lines that acquires of the session wait in: all of them, or only those of acquires that know no place.
// Names that nobody serves must not hold up the others for longer than until the next round.
func (ss *sessionStream) tellRound(all bool) {
	ctx, cancel := context.WithTimeout(ss.ctx, placeEvery)
	defer cancel()
	var reads errgroup.Group
	reads.SetLimit(placeReads)
	for name, calls := range ss.inLine(all) {
		reads.Go(func() error {
			got, err := ss.server.getFor(ctx, &leasev1.GetRequest{Name: name, IncludeQueue: true}, ss.caller)
			if err == nil {
				ss.tell(calls, got.GetLease())
			}
			return nil // the next round tries again
		})
	}
	_ = reads.Wait()
}

// inLine returns the acquires that wait, by their names; unless all, without those that know their place.
func (ss *sessionStream) inLine(all bool) map[string][]*sessionCall {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	lines := map[string][]*sessionCall{}
	for _, c := range ss.pending {
		if c.acquire.GetWait() != nil && (all || c.place == 0) {
			lines[c.name] = append(lines[c.name], c)
		}
	}
	return lines
}

// tell tells those their places in the line of a lease whose places are not those that they know.
func (ss *sessionStream) tell(calls []*sessionCall, lease *leasev1.Lease) {
	places := make(map[string]int32, len(lease.GetQueue()))
	for i, w := range lease.GetQueue() {
		places[w.GetRequestId()] = int32(i + 1)
	}
	holds := lease.GetHolds()
	holds = holds[:min(len(holds), 16)]
	for _, h := range holds {
		brief(h)
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, c := range calls {
		place := places[c.acquire.GetRequestId()]
		if place == 0 || place == c.place || ss.pending[c.id] != c {
			continue
		}
		c.place = place
		ss.send(c.id, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_Queued{Queued: &leasev1.SessionQueued{
			QueuePosition: place, Holds: holds,
		}}})
	}
}
