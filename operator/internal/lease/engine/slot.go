package engine

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
)

// slot is the place of one shard in a replica, served or not.
type slot struct {
	index int
	// givenUp is the claim that was to be removed last. Only reconcile uses it.
	givenUp store.Claim
	// claimed is a core.Instant: since when whoever serves the shard has done so, as far as is known. seen is the claim that was found then;
	// only watch uses it.
	claimed atomic.Int64
	seen    store.Claim

	mu sync.Mutex
	// shard is nil while this replica does not serve it. claim and session are those it was claimed with.
	shard   *core.Shard
	claim   store.Claim
	session *session
	// drained is made by freeze and closed once nothing is in flight.
	drained chan struct{}
	calls   map[core.Ticket]*Call
	last    core.Ticket
	// follow has the followers of each hold, as a list.
	follow map[holdKey]*Follower
	out    core.Output
	// ticking says that what is put out was decided by the time, not by a call: nobody waits for an end.
	ticking bool
	// holds, waiters, owned and promised are what this slot adds to the engine's sums.
	holds, waiters, owned, promised int64
}

// count keeps the engine's sums current. The lock is held.
func (s *slot) count(e *Engine) {
	var holds, waiters, owned, promised int64
	if s.shard != nil {
		holds, waiters, owned, promised = int64(s.shard.Holds()), int64(s.shard.Waiters()), 1, int64(s.shard.Promised())
	}
	shift(&e.holds, &s.holds, holds)
	shift(&e.waiters, &s.waiters, waiters)
	shift(&e.owned, &s.owned, owned)
	shift(&e.promised, &s.promised, promised)
}

// shift changes a part of a sum. Most calls change none, and leave the sum to the other processors.
func shift(sum *atomic.Int64, part *int64, to int64) {
	if *part != to {
		sum.Add(to - *part)
		*part = to
	}
}

// serving returns the claim under which the slot serves its shard; false: it does not.
func (s *slot) serving() (store.Claim, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claim, s.shard != nil
}

// open says whether the slot takes calls. The lock is held.
func (s *slot) open() bool { return s.shard != nil && s.drained == nil }

func (s *slot) take(e *Engine, session *session, claim store.Claim, shard *core.Shard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shard, s.claim, s.session = shard, claim, session
	shard.Admit(e.admitTo(s))
	s.claimed.Store(int64(e.opts.Clock()))
	s.calls = map[core.Ticket]*Call{}
	s.follow = map[holdKey]*Follower{}
	s.count(e)
}

// freeze makes the slot refuse calls and start nothing new.
func (s *slot) freeze() (store.Claim, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shard == nil {
		drained := make(chan struct{})
		close(drained)
		return s.claim, drained
	}
	if s.drained == nil {
		s.drained = make(chan struct{})
		s.shard.Freeze()
		if s.shard.InFlight() == 0 {
			close(s.drained)
		}
	}
	return s.claim, s.drained
}

// drop stops serving the shard. Whoever waits for something there is told to look for its new owner.
func (s *slot) drop(e *Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, call := range s.calls {
		if wake := call.to.Receive(call, core.Reply{Err: &NotOwnerError{Shard: s.index}}); wake != nil {
			wake()
		}
	}
	for _, f := range s.follow {
		for ; f != nil; f = f.next {
			f.hear(Notice{Notice: core.Notice{Name: f.key.name, Token: f.key.token}, Moved: true})
		}
	}
	if s.drained != nil && s.shard != nil && s.shard.InFlight() > 0 {
		close(s.drained)
	}
	s.shard, s.session, s.calls, s.follow, s.drained, s.claim = nil, nil, nil, nil, nil, store.Claim{}
	s.count(e)
}

func (s *slot) extend(now core.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shard != nil {
		s.shard.Extend(now)
	}
}

func (s *slot) tick(e *Engine, now core.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open() || !s.session.certain(now) {
		return
	}
	if next, ok := s.shard.Next(); ok && next <= now {
		s.shard.Tick(now, &s.out)
		s.ticking = true
		s.deliver(e)
		s.ticking = false
	}
}

// committed takes note of a committed op. It adds to wakes what is to be called when the whole batch has been.
func (s *slot) committed(e *Engine, op *store.BatchOp, now core.Instant, revision int64, wakes []func()) []func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shard == nil || s.claim != op.Claim {
		return wakes
	}
	s.shard.Committed(now, op.Op.Name, revision, &s.out)
	wakes = s.reply(wakes)
	s.landed(e)
	return wakes
}

// refused takes note of an op that the store will never take.
func (s *slot) refused(e *Engine, op *store.BatchOp, now core.Instant, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shard == nil || s.claim != op.Claim {
		return
	}
	s.shard.Refused(now, op.Op.Name, err, &s.out)
	s.landed(e)
}

// landed delivers what follows from an op that is not in flight any more. The lock is held.
func (s *slot) landed(e *Engine) {
	s.deliver(e)
	if s.drained != nil && s.shard.InFlight() == 0 {
		close(s.drained)
	}
}

// reply passes on the replies, and adds to wakes what is to be called afterwards. The lock is held.
func (s *slot) reply(wakes []func()) []func() {
	for _, r := range s.out.Replies {
		if call, ok := s.calls[r.Ticket]; ok {
			delete(s.calls, r.Ticket)
			if wake := call.to.Receive(call, r); wake != nil {
				wakes = append(wakes, wake)
			}
		}
	}
	clear(s.out.Replies)
	s.out.Replies = s.out.Replies[:0]
	return wakes
}

// deliver passes on what the shard put out. The lock is held.
func (s *slot) deliver(e *Engine) {
	for _, wake := range s.reply(nil) {
		wake()
	}
	for _, op := range s.out.Ops {
		later := s.ticking && !slices.ContainsFunc(op.Writes, func(w core.Write) bool { return w.Hold != nil })
		s.session.committer.add(later, store.BatchOp{Shard: s.index, Claim: s.claim, Op: op})
	}
	for _, n := range s.out.Notices {
		if n.Ended != 0 {
			e.metrics.ended.WithLabelValues(reasonLabel(n.Ended)).Inc()
		}
		for f := s.follow[holdKey{n.Name, n.Token}]; f != nil; f = f.next {
			f.hear(Notice{Notice: n})
		}
	}
	s.out.Reset()
	s.count(e)
}

func reasonLabel(r core.EndReason) string {
	switch r {
	case core.Expired:
		return "expired"
	case core.Revoked:
		return "revoked"
	case core.Transferred:
		return "transferred"
	case core.Abandoned:
		return "abandoned"
	case core.Released:
		return "released"
	}
	return "unknown"
}
