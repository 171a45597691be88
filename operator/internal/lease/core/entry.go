package core

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

const (
	// maxOpEnds and maxOpChanges bound how many holds one op ends, and how many records it rewrites.
	maxOpEnds    = 50
	maxOpChanges = 8
	// maxOpBytes bounds how much those take together in the store, unless there is but one of them: a record may carry a value of
	// 64 KiB, and the store refuses what is too large.
	maxOpBytes = 256 << 10
)

// entry is what a shard knows of one name. At most one op of a name is in flight, so that its changes
// reach the store in the order in which they were decided.
type entry struct {
	name     string
	holds    []*hold // by token; add and remove keep what is known of them
	queue    []*waiter
	flight   *flight
	reads    []read // wait for the flight
	revision int64
	many     *many // nil while there are few holds
}

type hold struct {
	Hold
	entry    *entry
	deadline Instant
	// revokeAt is when the present revocation's period ends.
	revokeAt Instant
	// ending is set once the end is decided. The hold still excludes others until that is committed.
	ending EndReason
	enders []ender
	// moving says that its holder has asked to transfer it, maybe to more than one.
	moving bool
	// next is a change that waits for the flight before it; flying is one that is being committed.
	next, flying *Hold
	changers     []changer
	// sharers counts the callers that were told of the grant (repetitions of one request).
	sharers int
	timer   timer
}

// ender waits for the end of a hold: its releaser, or who revoked it.
type ender struct {
	ticket  Ticket
	revoker bool
}

type changer struct {
	ticket Ticket
	flying bool
}

type waiter struct {
	req      AcquireRequest
	entry    *entry
	tickets  []Ticket
	since    Instant
	deadline Instant // 0: none
	// takeover is the hold whose holder transfers it to this waiter.
	takeover *hold
	movers   []Ticket
	timer    timer
}

// flight is an op that is being committed.
type flight struct {
	ends    []*hold
	grant   *waiter
	granted *hold
	changes []*hold
}

type read struct {
	ticket Ticket
	// token is set for a check, 0 for a view.
	token int64
	queue bool
}

func (e *entry) empty() bool {
	return len(e.holds) == 0 && len(e.queue) == 0 && e.flight == nil && len(e.reads) == 0
}

func (e *entry) byToken(token int64) *hold {
	if i, ok := e.place(token); ok {
		return e.holds[i]
	}
	return nil
}

// place is where the hold with a token is, or would be.
func (e *entry) place(token int64) (int, bool) {
	return slices.BinarySearchFunc(e.holds, token, func(h *hold, token int64) int { return cmp.Compare(h.Token, token) })
}

func (e *entry) byRequest(id string) *hold {
	if e.many != nil {
		return e.many.requests[id]
	}
	for _, h := range e.holds {
		if h.RequestID == id {
			return h
		}
	}
	return nil
}

func (e *entry) waiting(id string) *waiter {
	if e.flight != nil && e.flight.grant != nil && e.flight.grant.req.RequestID == id {
		return e.flight.grant
	}
	for _, w := range e.queue {
		if w.req.RequestID == id {
			return w
		}
	}
	return nil
}

// conflict says why a request can never share the name with what is there, whatever it waits for. Those that wait never conflict with
// each other, and neither do holds whose end is not decided, so one of each is enough to look at.
func (e *entry) conflict(req *AcquireRequest) error {
	check := func(mode Mode, total int32) error {
		if (mode == Permits) == (req.Mode == Permits) && total == req.PermitsTotal {
			return nil
		}
		return &ModeConflictError{Name: e.name, Have: describe(mode, total), Want: describe(req.Mode, req.PermitsTotal)}
	}
	if h := e.lasting(); h != nil {
		if err := check(h.Mode, h.PermitsTotal); err != nil {
			return err
		}
	}
	if e.flight != nil && e.flight.grant != nil {
		w := e.flight.grant
		if err := check(w.req.Mode, w.req.PermitsTotal); err != nil {
			return err
		}
	}
	if len(e.queue) > 0 {
		return check(e.queue[0].req.Mode, e.queue[0].req.PermitsTotal)
	}
	return nil
}

// lasting is a hold whose end is not decided; nil: there is none.
func (e *entry) lasting() *hold {
	if e.many != nil && len(e.many.ending) == len(e.holds) {
		return nil
	}
	for _, h := range slices.Backward(e.holds) {
		if h.ending == 0 {
			return h
		}
	}
	return nil
}

func describe(mode Mode, total int32) string {
	if mode == Permits {
		return fmt.Sprintf("%d permits", total)
	}
	return "an exclusive or shared lease"
}

// plan decides the next op of the name: which holds end, which change, and who is granted. It returns nil
// when there is nothing to do. It is the only place where a grant is decided.
//
// Only the first waiter is ever considered, which makes the line first come, first served in every mode.
// One grant an op, because the token is the revision of the op's transaction, and tokens tell holds apart.
//
// A grant that takes the place of no hold that ends must be admitted. When it is not, plan has done nothing but to say why.
func (e *entry) plan(wall time.Time, admit func() error) (*flight, Op, error) {
	f := &flight{}
	var first *waiter
	if len(e.queue) > 0 {
		first = e.queue[0]
		if h := first.takeover; h != nil && h.ending == 0 {
			e.decide(h, Transferred)
		}
	}
	var room room
	f.ends = e.takeEnding(&room)
	op := Op{Name: e.name}
	slot := int32(-1)
	if first != nil && e.rest(f.ends).fits(&first.req) {
		if admit != nil && f.adds() {
			if err := admit(); err != nil {
				return nil, Op{}, err
			}
		}
		slot = e.freeSlot(f.ends)
		f.grant, f.granted = first, first.hold(slot, wall)
		op.Writes = append(op.Writes, Write{Slot: slot, Hold: &f.granted.Hold})
	}
	for _, h := range f.ends {
		op.Ends = append(op.Ends, End{Slot: h.Slot, Reason: h.ending, Hold: h.Hold})
		if h.Slot != slot {
			op.Writes = append(op.Writes, Write{Slot: h.Slot})
		}
	}
	f.changes = e.takeChanging(&room)
	for _, h := range f.changes {
		h.flying, h.next = h.next, nil
		for i := range h.changers {
			h.changers[i].flying = true
		}
		op.Writes = append(op.Writes, Write{Slot: h.Slot, Hold: h.flying})
	}
	if len(op.Writes) == 0 {
		return nil, Op{}, nil
	}
	return f, op, nil
}

// adds says whether a grant makes the holds more.
func (f *flight) adds() bool { return len(f.ends) == 0 }

// hold makes the hold a waiter is going to get.
func (w *waiter) hold(slot int32, wall time.Time) *hold {
	h := &hold{entry: w.entry, Hold: Hold{
		Slot: slot, Holder: w.req.Holder, Identity: w.req.Identity, RequestID: w.req.RequestID, Mode: w.req.Mode,
		PermitsHeld: w.req.Permits, PermitsTotal: w.req.PermitsTotal, TTL: w.req.TTL, AcquiredAt: wall,
		Metadata: w.req.Metadata, Value: w.req.Value,
	}}
	h.timer = timer{hold: h, index: -1}
	return h
}

// latest is the hold as the last accepted change leaves it.
func (h *hold) latest() Hold {
	switch {
	case h.next != nil:
		return *h.next
	case h.flying != nil:
		return *h.flying
	}
	return h.Hold
}

// due is when the hold must be looked at again: when it expires, or when its revocation ends it.
func (h *hold) due() Instant {
	if h.Revocation != nil && h.Revocation.Force && h.Revocation.Period > 0 {
		return min(h.deadline, h.revokeAt)
	}
	return h.deadline
}

func (h *hold) view(now Instant) HoldView {
	v := HoldView{Hold: h.Hold, ExpiresIn: max(0, h.deadline.Sub(now))}
	if h.Revocation != nil {
		v.RevokeIn = h.revokeAt.Sub(now)
	}
	return v
}

func (e *entry) views(now Instant, limit int) []HoldView {
	n := len(e.holds)
	if limit > 0 {
		n = min(n, limit)
	}
	views := make([]HoldView, 0, n)
	for _, h := range e.holds[:n] {
		views = append(views, h.view(now))
	}
	return views
}

func (e *entry) lease(now Instant, queue bool, grace time.Duration) LeaseView {
	v := LeaseView{
		Name: e.name, Holds: e.views(now, 0), Waiters: len(e.queue), Revision: e.revision, GraceFor: grace,
	}
	if queue {
		for _, w := range e.queue {
			v.Queue = append(v.Queue, WaiterView{
				Holder: w.req.Holder, Identity: w.req.Identity, RequestID: w.req.RequestID,
				Mode: w.req.Mode, Permits: w.req.Permits, Waited: now.Sub(w.since),
			})
		}
	}
	return v
}

func (e *entry) check(now Instant, token int64) CheckResult {
	var result CheckResult
	if n := len(e.holds); n > 0 {
		result.Newest = e.holds[n-1].Token
	}
	if h := e.byToken(token); h != nil {
		result.Current, result.ExpiresIn = true, max(0, h.deadline.Sub(now))
	}
	return result
}
