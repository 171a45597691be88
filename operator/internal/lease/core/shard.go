package core

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// contentionHolds is how many holds a HeldError lists.
const contentionHolds = 16

// Shard is the state of one shard. Make it with NewShard.
type Shard struct {
	epoch      time.Time
	entries    map[string]*entry
	timers     timers
	recent     recent
	graceUntil Instant
	holds      int
	waiters    int
	inFlight   int
	// reserved is how many of those in flight will make the holds more.
	reserved int
	admit    func() error
	frozen   bool
}

// Record is a hold as it is loaded from the store.
type Record struct {
	Name string
	Hold Hold
	// Revision is that of the record's last change.
	Revision int64
}

// NewShard makes a shard of what the store holds. Every hold gets its full TTL from now on: the owner
// before may have acknowledged a keepalive up to the moment it lost the shard, and nothing in the store
// says when. The wall time of epoch is that of the instant 0; it only dates grants, for people to read.
func NewShard(now Instant, epoch time.Time, records []Record) *Shard {
	s := &Shard{epoch: epoch, entries: make(map[string]*entry, len(records))}
	for i := range records {
		r := &records[i]
		e := s.entry(r.Name)
		h := &hold{Hold: r.Hold, entry: e, deadline: now.Add(r.Hold.TTL), sharers: 1}
		h.timer = timer{hold: h, index: -1}
		if r.Hold.Revocation != nil {
			h.revokeAt = now.Add(r.Hold.Revocation.Period)
		}
		e.holds = append(e.holds, h)
		e.revision = max(e.revision, r.Revision)
		s.holds++
		s.timers.set(&h.timer, h.due())
		s.graceUntil = max(s.graceUntil, h.deadline)
	}
	for _, e := range s.entries {
		slices.SortFunc(e.holds, func(a, b *hold) int { return cmp.Compare(a.Token, b.Token) })
		e.look()
	}
	return s
}

// Admit lets a function decide on each grant that makes the holds more, just before it is committed. When it returns an error, that is the
// answer to the request, whether it waited or not; otherwise the grant counts in Promised from then on.
func (s *Shard) Admit(admit func() error) { s.admit = admit }

// Promised returns how many holds there are, and how many more there will be when what is in flight is committed.
func (s *Shard) Promised() int { return s.holds + s.reserved }

func (s *Shard) entry(name string) *entry {
	e := s.entries[name]
	if e == nil {
		e = &entry{name: name}
		s.entries[name] = e
	}
	return e
}

func (s *Shard) wall(now Instant) time.Time { return s.epoch.Add(time.Duration(now)) }

func (s *Shard) grace(now Instant) time.Duration { return max(0, s.graceUntil.Sub(now)) }

// Holds returns how many holds there are.
func (s *Shard) Holds() int { return s.holds }

// Waiters returns how many requests wait in line.
func (s *Shard) Waiters() int { return s.waiters }

// InFlight returns how many ops wait to be committed.
func (s *Shard) InFlight() int { return s.inFlight }

// Freeze stops new ops: what is in flight can still be committed, and nothing follows it.
func (s *Shard) Freeze() { s.frozen = true }

// Extend gives every hold its full TTL anew: the owner could not answer keepalives for a while.
func (s *Shard) Extend(now Instant) {
	for _, e := range s.entries {
		for _, h := range e.holds {
			h.deadline = max(h.deadline, now.Add(h.TTL))
			s.graceUntil = max(s.graceUntil, h.deadline)
		}
	}
}

// Next returns when Tick has something to do at the earliest; false: never, as things are.
func (s *Shard) Next() (Instant, bool) {
	if len(s.timers) == 0 {
		return 0, false
	}
	return s.timers[0].at, true
}

// Tick ends what is over by now: holds whose TTL or revocation passed, and waits that timed out.
func (s *Shard) Tick(now Instant, out *Output) {
	for len(s.timers) > 0 && s.timers[0].at <= now {
		t := s.timers[0]
		if w := t.waiter; w != nil {
			s.timeOut(now, w, out)
			continue
		}
		h := t.hold
		if due := h.due(); due > now {
			s.timers.set(t, due)
			continue
		}
		reason := Expired
		if h.deadline > now {
			reason = Revoked
		}
		s.end(now, h, reason, ender{}, out)
	}
}

func (s *Shard) timeOut(now Instant, w *waiter, out *Output) {
	s.timers.stop(&w.timer)
	position := slices.Index(w.entry.queue, w) + 1
	if position == 0 {
		return // its grant is in flight
	}
	s.refuse(w, w.entry.held(now, position, true), out)
	s.advance(now, w.entry, out)
}

func (e *entry) held(now Instant, position int, timedOut bool) *HeldError {
	return &HeldError{
		Name: e.name, Holds: e.views(now, contentionHolds), Position: position, Waiters: len(e.queue), TimedOut: timedOut,
	}
}

// refuse answers a waiter with an error. Whoever wanted to transfer a hold to it keeps the hold.
func (s *Shard) refuse(w *waiter, err error, out *Output) {
	s.drop(w)
	for _, t := range w.tickets {
		out.fail(t, err)
	}
	for _, t := range w.movers {
		out.fail(t, &NoSuchCandidateError{Name: w.req.Name, Candidate: w.req.Holder})
	}
}

// drop takes a waiter out of the line.
func (s *Shard) drop(w *waiter) {
	s.timers.stop(&w.timer)
	if i := slices.Index(w.entry.queue, w); i >= 0 {
		w.entry.queue = slices.Delete(w.entry.queue, i, i+1)
		s.waiters--
	}
}

// end decides the end of a hold; it is over once that is committed.
func (s *Shard) end(now Instant, h *hold, reason EndReason, by ender, out *Output) {
	if by.ticket != 0 {
		h.enders = append(h.enders, by)
	}
	if h.ending == 0 {
		h.entry.decide(h, reason)
		s.timers.stop(&h.timer)
	}
	s.advance(now, h.entry, out)
}

// advance starts the next op of a name, if there is one to start and none in flight.
func (s *Shard) advance(now Instant, e *entry, out *Output) {
	if e.flight != nil || s.frozen {
		return
	}
	f, op, err := e.plan(s.wall(now), s.admit)
	for err != nil {
		s.refuse(e.queue[0], err, out)
		f, op, err = e.plan(s.wall(now), s.admit)
	}
	if f == nil {
		s.refuseTries(now, e, out)
		if e.empty() {
			delete(s.entries, e.name)
		}
		return
	}
	e.flight = f
	s.inFlight++
	for _, h := range f.ends { // a transfer is decided only now
		s.timers.stop(&h.timer)
	}
	if f.grant != nil {
		s.drop(f.grant)
		if f.adds() {
			s.reserved++
		}
	}
	out.Ops = append(out.Ops, op)
}

// refuseTries answers the requests that did not want to wait, now that they would have to.
func (s *Shard) refuseTries(now Instant, e *entry, out *Output) {
	for i := 0; i < len(e.queue); {
		w := e.queue[i]
		if w.req.Wait {
			i++
			continue
		}
		s.refuse(w, e.held(now, 0, false), out)
	}
}

// Committed reports that the op in flight of a name was committed at a revision.
func (s *Shard) Committed(now Instant, name string, revision int64, out *Output) {
	e := s.entries[name]
	if e == nil || e.flight == nil {
		return
	}
	f := s.landed(e)
	e.revision = revision
	for _, h := range f.ends {
		s.ended(now, h, revision, out)
	}
	for _, h := range f.changes {
		s.changed(now, h, revision, out)
	}
	if f.grant != nil {
		s.granted(now, e, f, revision, out)
	}
	s.goOn(now, e, out)
}

// landed takes note that the op of a name is not in flight any more.
func (s *Shard) landed(e *entry) *flight {
	f := e.flight
	e.flight = nil
	s.inFlight--
	if f.grant != nil && f.adds() {
		s.reserved--
	}
	return f
}

// goOn answers what waited for the op that was in flight, and starts the next.
func (s *Shard) goOn(now Instant, e *entry, out *Output) {
	for _, r := range e.reads {
		s.answer(now, e, r, out)
	}
	e.reads = nil
	s.advance(now, e, out)
}

func (s *Shard) ended(now Instant, h *hold, revision int64, out *Output) {
	e := h.entry
	e.remove(h)
	s.holds--
	s.timers.stop(&h.timer)
	if h.ending != Abandoned {
		s.recent.add(e.name, h.RequestID)
	}
	for _, by := range h.enders {
		if by.revoker {
			out.commit(by.ticket, ChangeResult{Holds: []HoldView{h.view(now)}, Revision: revision, Ended: true})
			continue
		}
		out.commit(by.ticket, ReleaseResult{Released: h.ending == Released, Revision: revision})
	}
	for _, c := range h.changers {
		out.fail(c.ticket, &NotHeldError{Name: e.name, Token: h.Token})
	}
	if h.moving {
		h.stay(out)
	}
	if h.ending != Released {
		out.Notices = append(out.Notices, Notice{Name: e.name, Token: h.Token, Ended: h.ending, Revocation: h.Revocation})
	}
}

// stay fails the transfers of a hold that is over to those who still wait, since it went to another. They are put back where they were in line:
// what they get in their turn is nothing that was transferred.
func (h *hold) stay(out *Output) {
	e := h.entry
	for _, w := range slices.Clone(e.queue) {
		if w.takeover != h {
			continue
		}
		for _, t := range w.movers {
			out.fail(t, &NotHeldError{Name: e.name, Token: h.Token})
		}
		w.takeover, w.movers = nil, nil
		e.queue = slices.DeleteFunc(e.queue, func(other *waiter) bool { return other == w })
		e.enqueue(w)
	}
}

func (s *Shard) changed(now Instant, h *hold, revision int64, out *Output) {
	asked := h.flying.Revocation != h.Revocation
	h.Hold, h.flying = *h.flying, nil
	if asked {
		h.revokeAt = now.Add(h.Revocation.Period)
		out.Notices = append(out.Notices, Notice{Name: h.entry.name, Token: h.Token, Revocation: h.Revocation})
	}
	if h.ending == 0 && h.due() < h.timer.at {
		s.timers.set(&h.timer, h.due())
	}
	rest := h.changers[:0]
	for _, c := range h.changers {
		if !c.flying {
			rest = append(rest, c)
			continue
		}
		out.commit(c.ticket, ChangeResult{Holds: []HoldView{h.view(now)}, Revision: revision})
	}
	h.changers = rest
}

// granted makes a committed grant true. Its TTL runs from now: the client counts from when it asked,
// which was earlier.
func (s *Shard) granted(now Instant, e *entry, f *flight, revision int64, out *Output) {
	h, w := f.granted, f.grant
	h.Token = revision
	h.deadline = now.Add(h.TTL)
	h.sharers = len(w.tickets)
	e.add(h)
	s.holds++
	s.timers.set(&h.timer, h.due())
	grant := Grant{Hold: h.view(now), Revision: revision, Waited: now.Sub(w.since), GraceFor: s.grace(now)}
	for _, t := range w.tickets {
		out.commit(t, grant)
	}
	for _, t := range w.movers {
		out.commit(t, ChangeResult{Holds: []HoldView{grant.Hold}, Revision: revision})
	}
	if h.sharers == 0 {
		e.decide(h, Abandoned)
		s.timers.stop(&h.timer)
	}
}

// Names returns up to limit names with holds that begin with prefix and sort after the name after, in
// order.
func (s *Shard) Names(prefix, after string, limit int) []string {
	var names []string
	for name, e := range s.entries {
		if len(e.holds) > 0 && name > after && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names[:min(limit, len(names))]
}
