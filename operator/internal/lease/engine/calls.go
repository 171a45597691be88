package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
)

// ErrUncertain says that the session with the store may be over, so that nothing can be promised.
var ErrUncertain = errors.New("the session with the store is not certain")

// StoreError says that the store does not take writes at the moment, and why.
type StoreError struct{ Reason string }

func (e *StoreError) Error() string { return "the store takes no writes at the moment: " + e.Reason }

// RefusedError says that the store will never take what a call asks for, and why. Nothing of the call has happened.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return "this cannot be stored: " + e.Reason }

// NotOwnerError says that this replica does not serve a shard (any more). A call that got it may have
// happened or not; with a request id or a token it can be repeated at the owner.
type NotOwnerError struct{ Shard int }

func (e *NotOwnerError) Error() string {
	return fmt.Sprintf("shard %d is not served by this replica", e.Shard)
}

// command is what a call does to its shard, under the shard's lock. It fails only if it did nothing.
type command func(shard *core.Shard, now core.Instant, ticket core.Ticket, out *core.Output) error

// Receiver gets the replies to calls.
type Receiver interface {
	// Receive gets the one reply to a call. It is called with a lock held, maybe before the function that started the
	// call returns, and must neither wait nor call the engine. Whoever acts on
	// the reply gives it to Call.Checked first, or to Call.GiveBack.
	//
	// What it returns, if not nil, is called once all replies that come together have been passed on, so that whoever gets many of them
	// is woken up once. It must not wait either.
	Receive(call *Call, reply core.Reply) (wake func())
}

// Call is a command that a shard was given.
type Call struct {
	engine  *Engine
	slot    *slot
	shard   *core.Shard
	session *session
	ticket  core.Ticket
	name    string
	to      Receiver
}

// start gives a command to the shard of a name. The receiver gets the reply, unless start fails. The instant may be some time ago, as
// that is when many calls came together: what is read from memory is looked at once more in Checked, and what is written the store checks.
func (e *Engine) start(now core.Instant, name string, to Receiver, do command) (*Call, error) {
	s, err := e.at(name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open() {
		return nil, &NotOwnerError{Shard: s.index}
	}
	if !s.session.certain(now) {
		return nil, e.uncertain()
	}
	s.last++
	c := &Call{engine: e, slot: s, shard: s.shard, session: s.session, ticket: s.last, name: name, to: to}
	s.calls[c.ticket] = c
	if err := do(s.shard, now, c.ticket, &s.out); err != nil {
		delete(s.calls, c.ticket)
		return nil, err
	}
	s.deliver(e)
	return c, nil
}

// Cancel takes an acquire back, and returns true if its receiver has got no reply and will not get one.
func (c *Call) Cancel() bool {
	c.slot.mu.Lock()
	defer c.slot.mu.Unlock()
	if c.slot.shard != c.shard || c.slot.calls[c.ticket] != c {
		return false
	}
	delete(c.slot.calls, c.ticket)
	c.shard.Cancel(c.engine.opts.Clock(), c.name, c.ticket, &c.slot.out)
	c.slot.deliver(c.engine)
	return true
}

// GiveBack ends the hold of a reply that nobody heard of, if it is a grant.
func (c *Call) GiveBack(r core.Reply) {
	grant, ok := r.Result.(core.Grant)
	if !ok {
		return
	}
	c.slot.mu.Lock()
	defer c.slot.mu.Unlock()
	if c.slot.shard == c.shard {
		c.shard.Abandon(c.engine.opts.Clock(), c.name, grant.Hold.Token, &c.slot.out)
		c.slot.deliver(c.engine)
	}
}

// Checked lets a reply pass that was read from memory only if the session was still certain after it was
// read. What a transaction just made true needs no such proof.
func (c *Call) Checked(r core.Reply) (core.Reply, error) {
	if !r.Committed {
		var moved *NotOwnerError
		if errors.As(r.Err, &moved) || errors.Is(r.Err, ErrUncertain) {
			return core.Reply{}, r.Err
		}
		if !c.session.certain(c.engine.opts.Clock()) {
			return core.Reply{}, c.engine.uncertain()
		}
	}
	return r, r.Err
}

// replies is the receiver of a caller who waits.
type replies chan core.Reply

// Receive implements Receiver. There is room for the one reply.
func (r replies) Receive(_ *Call, reply core.Reply) func() {
	r <- reply
	return nil
}

// call gives a command to the shard of a name and waits for its reply.
func (e *Engine) call(ctx context.Context, name string, do command) (core.Reply, error) {
	to := make(replies, 1)
	c, err := e.start(e.opts.Clock(), name, to, do)
	if err != nil {
		return core.Reply{}, err
	}
	select {
	case r := <-to:
		return c.Checked(r)
	case <-ctx.Done():
		c.forget()
		return core.Reply{}, ctx.Err()
	}
}

// forget gives up waiting for a reply, but lets the command have its effect.
func (c *Call) forget() {
	c.slot.mu.Lock()
	defer c.slot.mu.Unlock()
	if c.slot.shard == c.shard {
		delete(c.slot.calls, c.ticket)
	}
}

func result[T any](r core.Reply, err error) (T, error) {
	var zero T
	if err != nil {
		return zero, err
	}
	return r.Result.(T), nil
}

// Acquire asks for a hold. When the context ends before the reply, the request is taken back, or the hold
// given back.
//
// It fails with *QuotaError when a limit is reached, and with *StoreError at once while the store takes no writes.
func (e *Engine) Acquire(ctx context.Context, req core.AcquireRequest) (core.Grant, error) {
	to := make(replies, 1)
	c, err := e.StartAcquire(e.opts.Clock(), req, to)
	if err != nil {
		return core.Grant{}, err
	}
	select {
	case r := <-to:
		return result[core.Grant](c.Checked(r))
	case <-ctx.Done():
	}
	if !c.Cancel() {
		c.GiveBack(<-to)
	}
	return core.Grant{}, ctx.Err()
}

// StartAcquire is Acquire without the waiting: the receiver gets a core.Grant. It can be taken back by Call.Cancel. It came at the instant.
func (e *Engine) StartAcquire(now core.Instant, req core.AcquireRequest, to Receiver) (*Call, error) {
	return e.start(now, req.Name, to, func(s *core.Shard, now core.Instant, t core.Ticket, out *core.Output) error {
		if session := e.session.Load(); session != nil {
			if why := session.committer.trouble.Load(); why != nil {
				return &StoreError{Reason: *why}
			}
		}
		if err := e.admit(s, now, &req); err != nil {
			return err
		}
		s.Acquire(now, req, t, out)
		return nil
	})
}

// KeepAlive gives a hold its full TTL anew.
func (e *Engine) KeepAlive(name string, token int64) (core.KeepAliveResult, error) {
	s, err := e.at(name)
	if err != nil {
		return core.KeepAliveResult{}, err
	}
	s.mu.Lock()
	if !s.open() {
		s.mu.Unlock()
		return core.KeepAliveResult{}, &NotOwnerError{Shard: s.index}
	}
	session := s.session
	result, err := s.shard.KeepAlive(e.opts.Clock(), name, token)
	s.mu.Unlock()
	// The promise counts from the instant above. If the session was still certain later than that, a new
	// owner, who gives full TTLs, can only come after it.
	if !session.certain(e.opts.Clock()) {
		return core.KeepAliveResult{}, e.uncertain()
	}
	return result, err
}

// Release ends a hold.
func (e *Engine) Release(ctx context.Context, name string, token int64) (core.ReleaseResult, error) {
	return result[core.ReleaseResult](e.call(ctx, name, release(name, token)))
}

// StartRelease is Release without the waiting: the receiver gets a core.ReleaseResult. It came at the instant.
func (e *Engine) StartRelease(now core.Instant, name string, token int64, to Receiver) (*Call, error) {
	return e.start(now, name, to, release(name, token))
}

func release(name string, token int64) command {
	return func(s *core.Shard, now core.Instant, t core.Ticket, out *core.Output) error {
		s.Release(now, name, token, t, out)
		return nil
	}
}

// Get shows a name.
func (e *Engine) Get(ctx context.Context, name string, queue bool) (core.LeaseView, error) {
	if view, ok, err := e.Peek(name, queue); ok || err != nil {
		return view, err
	}
	return result[core.LeaseView](e.call(ctx, name, get(name, queue)))
}

// Peek is Get for what can be answered at once, which is most of all reads; false: a change of the name is being committed.
func (e *Engine) Peek(name string, queue bool) (core.LeaseView, bool, error) {
	s, err := e.at(name)
	if err != nil {
		return core.LeaseView{}, false, err
	}
	s.mu.Lock()
	if !s.open() {
		s.mu.Unlock()
		return core.LeaseView{}, false, &NotOwnerError{Shard: s.index}
	}
	session := s.session
	view, ok := s.shard.Peek(e.opts.Clock(), name, queue)
	s.mu.Unlock()
	// What was read is true if the session was still certain after that.
	if !session.certain(e.opts.Clock()) {
		return core.LeaseView{}, false, e.uncertain()
	}
	return view, ok, nil
}

// StartGet is Get without the waiting: the receiver gets a core.LeaseView.
func (e *Engine) StartGet(name string, queue bool, to Receiver) (*Call, error) {
	return e.start(e.opts.Clock(), name, to, get(name, queue))
}

func get(name string, queue bool) command {
	return func(s *core.Shard, now core.Instant, t core.Ticket, out *core.Output) error {
		s.Get(now, name, queue, t, out)
		return nil
	}
}

// Check says whether a token is current.
func (e *Engine) Check(ctx context.Context, name string, token int64) (core.CheckResult, error) {
	return result[core.CheckResult](e.call(ctx, name, func(s *core.Shard, now core.Instant, t core.Ticket, out *core.Output) error {
		s.Check(now, name, token, t, out)
		return nil
	}))
}

// Change sets the value of a hold.
func (e *Engine) Change(ctx context.Context, name string, token int64, value []byte) (core.ChangeResult, error) {
	return result[core.ChangeResult](e.call(ctx, name, func(s *core.Shard, now core.Instant, t core.Ticket, out *core.Output) error {
		s.Change(now, name, token, value, t, out)
		return nil
	}))
}

// Revoke asks a holder to let go, or ends its hold.
func (e *Engine) Revoke(ctx context.Context, name string, token int64, revocation core.Revocation) (core.ChangeResult, error) {
	return result[core.ChangeResult](e.call(ctx, name, func(s *core.Shard, now core.Instant, t core.Ticket, out *core.Output) error {
		s.Revoke(now, name, token, revocation, t, out)
		return nil
	}))
}

// Transfer hands a hold to a waiter.
func (e *Engine) Transfer(ctx context.Context, name string, token int64, to string) (core.ChangeResult, error) {
	return result[core.ChangeResult](e.call(ctx, name, func(s *core.Shard, now core.Instant, t core.Ticket, out *core.Output) error {
		s.Transfer(now, name, token, to, t, out)
		return nil
	}))
}

// List returns up to limit held leases of the given shards whose names begin with prefix and sort after
// the name after, by name. It fails with *NotOwnerError if one of the shards is not served here.
func (e *Engine) List(shards []int, prefix, after string, limit int) ([]core.LeaseView, error) {
	slots := e.table()
	var leases []core.LeaseView
	for _, shard := range shards {
		if shard < 0 || shard >= len(slots) {
			return nil, &NotOwnerError{Shard: shard}
		}
		views, err := slots[shard].list(e, prefix, after, limit)
		if err != nil {
			return nil, err
		}
		leases = append(leases, views...)
	}
	slices.SortFunc(leases, func(a, b core.LeaseView) int { return strings.Compare(a.Name, b.Name) })
	return leases[:min(limit, len(leases))], nil
}

func (s *slot) list(e *Engine, prefix, after string, limit int) ([]core.LeaseView, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open() {
		return nil, &NotOwnerError{Shard: s.index}
	}
	now := e.opts.Clock()
	var views []core.LeaseView
	for _, name := range s.shard.Names(prefix, after, limit) {
		if view, ok := s.shard.View(now, name); ok {
			views = append(views, view)
		}
	}
	if !s.session.certain(e.opts.Clock()) {
		return nil, e.uncertain()
	}
	return views, nil
}

// Serves says whether this replica serves a name now.
func (e *Engine) Serves(name string) bool {
	s, err := e.at(name)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open()
}
