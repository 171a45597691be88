package core

import "slices"

// Acquire asks for a hold. The ticket is answered with a Grant, once it is committed.
//
// A request id that holds, waits or is being granted already shares that one's fate.
func (s *Shard) Acquire(now Instant, req AcquireRequest, ticket Ticket, out *Output) {
	e := s.entry(req.Name)
	if s.repeated(now, e, &req, ticket, out) {
		return
	}
	if s.recent.has(req.Name, req.RequestID) {
		out.fail(ticket, &RequestEndedError{Name: req.Name, RequestID: req.RequestID})
		s.advance(now, e, out)
		return
	}
	if err := e.conflict(&req); err != nil {
		out.fail(ticket, err)
		return
	}
	w := &waiter{req: req, entry: e, tickets: []Ticket{ticket}, since: now.Add(-req.Waited)}
	w.timer = timer{waiter: w, index: -1}
	if req.Wait && req.WaitFor > 0 {
		w.deadline = now.Add(req.WaitFor)
		s.timers.set(&w.timer, w.deadline)
	}
	e.enqueue(w)
	s.waiters++
	s.advance(now, e, out)
}

// enqueue puts a waiter in line, behind all that have waited for as long. The one to whom a hold is being transferred stays in front.
func (e *entry) enqueue(w *waiter) {
	i := len(e.queue)
	for i > 0 && e.queue[i-1].since > w.since && e.queue[i-1].takeover == nil {
		i--
	}
	e.queue = slices.Insert(e.queue, i, w)
}

func (s *Shard) repeated(now Instant, e *entry, req *AcquireRequest, ticket Ticket, out *Output) bool {
	if h := e.byRequest(req.RequestID); h != nil && h.ending != Abandoned {
		switch {
		case h.Holder != req.Holder || h.Identity != req.Identity || h.Mode != req.Mode || h.PermitsHeld != req.Permits:
			out.fail(ticket, &RequestMismatchError{Name: req.Name, RequestID: req.RequestID})
		case h.ending != 0:
			out.fail(ticket, &RequestEndedError{Name: req.Name, RequestID: req.RequestID})
		default:
			h.sharers++
			out.reply(ticket, Grant{Hold: h.view(now), Revision: e.revision, GraceFor: s.grace(now)})
		}
		return true
	}
	w := e.waiting(req.RequestID)
	if w == nil {
		return false
	}
	if w.req.Holder != req.Holder || w.req.Identity != req.Identity || w.req.Mode != req.Mode || w.req.Permits != req.Permits {
		out.fail(ticket, &RequestMismatchError{Name: req.Name, RequestID: req.RequestID})
		return true
	}
	w.tickets = append(w.tickets, ticket)
	return true
}

// Cancel takes back an acquire whose caller is gone. A ticket that was answered already is not known any
// more; then see Abandon.
func (s *Shard) Cancel(now Instant, name string, ticket Ticket, out *Output) {
	e := s.entries[name]
	if e == nil {
		return
	}
	if e.flight != nil && e.flight.grant != nil {
		w := e.flight.grant
		w.tickets = slices.DeleteFunc(w.tickets, func(t Ticket) bool { return t == ticket })
	}
	for _, w := range e.queue {
		i := slices.Index(w.tickets, ticket)
		if i < 0 {
			continue
		}
		if w.tickets = slices.Delete(w.tickets, i, i+1); len(w.tickets) == 0 {
			s.refuse(w, nil, out)
		}
		break
	}
	s.advance(now, e, out)
}

// Abandon gives back a hold whose grant could not be delivered to one of the callers that shared it; it
// ends when none of them got it.
func (s *Shard) Abandon(now Instant, name string, token int64, out *Output) {
	h := s.hold(name, token)
	if h == nil {
		return
	}
	if h.sharers--; h.sharers <= 0 {
		s.end(now, h, Abandoned, ender{}, out)
	}
}

func (s *Shard) hold(name string, token int64) *hold {
	e := s.entries[name]
	if e == nil {
		return nil
	}
	return e.byToken(token)
}

// Held shows the hold with the token, as it was committed last. The zero value is none: it is over for good, or never was.
func (s *Shard) Held(now Instant, name string, token int64) HoldView {
	h := s.hold(name, token)
	if h == nil {
		return HoldView{}
	}
	return h.view(now)
}

// Release ends the hold with the token. The ticket is answered with a ReleaseResult.
func (s *Shard) Release(now Instant, name string, token int64, ticket Ticket, out *Output) {
	h := s.hold(name, token)
	if h == nil {
		out.reply(ticket, ReleaseResult{})
		return
	}
	s.end(now, h, Released, ender{ticket: ticket}, out)
}

// KeepAlive gives the hold with the token its full TTL anew, and fails with *NotHeldError when it is over,
// or its end is decided.
//
// A hold past its deadline that no Tick has ended yet is revived: it excluded everybody else all along.
func (s *Shard) KeepAlive(now Instant, name string, token int64) (KeepAliveResult, error) {
	h := s.hold(name, token)
	if h == nil || h.ending != 0 {
		return KeepAliveResult{}, &NotHeldError{Name: name, Token: token}
	}
	h.deadline = now.Add(h.TTL)
	return KeepAliveResult{Hold: h.view(now), GraceFor: s.grace(now)}, nil
}

// Get shows a name. The ticket is answered with a LeaseView: at once, or when the op in flight is
// committed, so that nobody who saw that op's effect in the store can be shown an older state.
func (s *Shard) Get(now Instant, name string, queue bool, ticket Ticket, out *Output) {
	s.read(now, name, read{ticket: ticket, queue: queue}, out)
}

// Check says whether a token is current. The ticket is answered with a CheckResult, when Get's would be.
func (s *Shard) Check(now Instant, name string, token int64, ticket Ticket, out *Output) {
	s.read(now, name, read{ticket: ticket, token: token}, out)
}

func (s *Shard) read(now Instant, name string, r read, out *Output) {
	e := s.entries[name]
	if e == nil {
		e = &entry{name: name}
	}
	if e.flight != nil {
		e.reads = append(e.reads, r)
		return
	}
	s.answer(now, e, r, out)
}

func (s *Shard) answer(now Instant, e *entry, r read, out *Output) {
	if r.token != 0 {
		out.reply(r.ticket, e.check(now, r.token))
		return
	}
	out.reply(r.ticket, e.lease(now, r.queue, s.grace(now)))
}

// Peek is Get for what can be answered at once; false: it cannot, because an op is in flight.
func (s *Shard) Peek(now Instant, name string, queue bool) (LeaseView, bool) {
	e := s.entries[name]
	switch {
	case e == nil:
		return LeaseView{Name: name, GraceFor: s.grace(now)}, true
	case e.flight != nil:
		return LeaseView{}, false
	}
	return e.lease(now, queue, s.grace(now)), true
}

// Summarize is Peek in short; false: it cannot be answered at once, because an op is in flight.
func (s *Shard) Summarize(now Instant, name string) (Summary, bool) {
	e := s.entries[name]
	switch {
	case e == nil:
		return Summary{}, true
	case e.flight != nil:
		return Summary{}, false
	}
	sum := Summary{Holds: len(e.holds), Waiters: len(e.queue), Revision: e.revision}
	if n := len(e.holds); n > 0 {
		h := e.holds[n-1] // they are in the order of their tokens
		sum.Token, sum.Holder, sum.Mode, sum.ExpiresIn = h.Token, h.Holder, h.Mode, max(0, h.deadline.Sub(now))
	}
	return sum, true
}

// View shows a name as it was last committed, without waiting for the op in flight; false: not held.
func (s *Shard) View(now Instant, name string) (LeaseView, bool) {
	e := s.entries[name]
	if e == nil || len(e.holds) == 0 {
		return LeaseView{}, false
	}
	return e.lease(now, false, s.grace(now)), true
}

// Change sets the value of the hold with the token. The ticket is answered with a ChangeResult.
func (s *Shard) Change(now Instant, name string, token int64, value []byte, ticket Ticket, out *Output) {
	h := s.hold(name, token)
	if h == nil || h.ending != 0 {
		out.fail(ticket, &NotHeldError{Name: name, Token: token})
		return
	}
	next := h.latest()
	next.Value = value
	h.entry.change(h, &next)
	h.changers = append(h.changers, changer{ticket: ticket})
	s.advance(now, h.entry, out)
}

// Revoke asks the holder with the token to let go; with force and no period it ends the hold. The ticket is
// answered with a ChangeResult.
func (s *Shard) Revoke(now Instant, name string, token int64, revocation Revocation, ticket Ticket, out *Output) {
	h := s.hold(name, token)
	if h == nil || h.ending != 0 {
		out.fail(ticket, &NotHeldError{Name: name, Token: token})
		return
	}
	if revocation.Force && revocation.Period <= 0 {
		h.Revocation = &revocation
		s.end(now, h, Revoked, ender{ticket: ticket, revoker: true}, out)
		return
	}
	next := h.latest()
	next.Revocation = &revocation
	h.entry.change(h, &next)
	h.changers = append(h.changers, changer{ticket: ticket})
	s.advance(now, h.entry, out)
}

// Transfer hands the exclusive hold with the token to the first waiter with the given holder name, in one
// step. The ticket is answered with a ChangeResult that has the new hold.
func (s *Shard) Transfer(now Instant, name string, token int64, to string, ticket Ticket, out *Output) {
	h := s.hold(name, token)
	if h == nil || h.ending != 0 {
		out.fail(ticket, &NotHeldError{Name: name, Token: token})
		return
	}
	if h.Mode != Exclusive {
		out.fail(ticket, &ModeConflictError{Name: name, Have: describe(h.Mode, h.PermitsTotal), Want: "an election"})
		return
	}
	e := h.entry
	i := slices.IndexFunc(e.queue, func(w *waiter) bool { return w.req.Holder == to })
	if i < 0 {
		out.fail(ticket, &NoSuchCandidateError{Name: name, Candidate: to})
		return
	}
	w := e.queue[i]
	w.takeover, h.moving = h, true
	w.movers = append(w.movers, ticket)
	e.queue = slices.Insert(slices.Delete(e.queue, i, i+1), 0, w)
	s.advance(now, e, out)
}

// Line is what is known of a name before a request is made.
type Line struct {
	// Holds and Waiters are how many there are.
	Holds, Waiters int
	// Known says that the request holds the name or waits for it already.
	Known bool
}

// Line returns what is known of a name before a request of this id is made.
func (s *Shard) Line(name, requestID string) Line {
	e := s.entries[name]
	if e == nil {
		return Line{}
	}
	return Line{
		Holds: len(e.holds), Waiters: len(e.queue), Known: e.byRequest(requestID) != nil || e.waiting(requestID) != nil,
	}
}
