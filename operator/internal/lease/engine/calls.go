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

// NotOwnerError says that this replica does not serve a shard (any more). A call that got it may have
// happened or not; with a request id or a token it can be repeated at the owner.
type NotOwnerError struct{ Shard int }

func (e *NotOwnerError) Error() string {
	return fmt.Sprintf("shard %d is not served by this replica", e.Shard)
}

type command func(shard *core.Shard, now core.Instant, ticket core.Ticket, out *core.Output)

// call gives a command to the shard of a name and waits for its reply. When the context ends first, cancel
// is called with the ticket, and undo with a reply that came too late.
func (e *Engine) call(ctx context.Context, name string, do command, cancel command, undo func(*core.Shard, core.Instant, core.Reply, *core.Output)) (core.Reply, error) {
	s, err := e.at(name)
	if err != nil {
		return core.Reply{}, err
	}
	s.mu.Lock()
	if !s.open() {
		s.mu.Unlock()
		return core.Reply{}, &NotOwnerError{Shard: s.index}
	}
	session := s.session
	now := e.opts.Clock()
	if !session.certain(now) {
		s.mu.Unlock()
		return core.Reply{}, ErrUncertain
	}
	s.last++
	ticket, reply := s.last, make(chan core.Reply, 1)
	s.calls[ticket] = reply
	do(s.shard, now, ticket, &s.out)
	s.deliver(e)
	shard := s.shard
	s.mu.Unlock()

	select {
	case r := <-reply:
		return e.checked(session, r)
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shard != shard {
		return core.Reply{}, ctx.Err()
	}
	delete(s.calls, ticket)
	select {
	case r := <-reply:
		if undo != nil {
			undo(s.shard, e.opts.Clock(), r, &s.out)
		}
	default:
		if cancel != nil {
			cancel(s.shard, e.opts.Clock(), ticket, &s.out)
		}
	}
	s.deliver(e)
	return core.Reply{}, ctx.Err()
}

// checked lets a reply pass that was read from memory only if the session was still certain after it was
// read. What a transaction just made true needs no such proof.
func (e *Engine) checked(session *session, r core.Reply) (core.Reply, error) {
	var moved *NotOwnerError
	if errors.As(r.Err, &moved) {
		return core.Reply{}, r.Err
	}
	if !r.Committed && !session.certain(e.opts.Clock()) {
		return core.Reply{}, ErrUncertain
	}
	return r, r.Err
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
	if err := e.admit(&req); err != nil {
		return core.Grant{}, err
	}
	if s := e.session.Load(); s != nil {
		if why := s.committer.trouble.Load(); why != nil {
			return core.Grant{}, &StoreError{Reason: *why}
		}
	}
	do := func(s *core.Shard, now core.Instant, t core.Ticket, out *core.Output) { s.Acquire(now, req, t, out) }
	cancel := func(s *core.Shard, now core.Instant, t core.Ticket, out *core.Output) {
		s.Cancel(now, req.Name, t, out)
	}
	undo := func(s *core.Shard, now core.Instant, r core.Reply, out *core.Output) {
		if grant, ok := r.Result.(core.Grant); ok {
			s.Abandon(now, req.Name, grant.Hold.Token, out)
		}
	}
	return result[core.Grant](e.call(ctx, req.Name, do, cancel, undo))
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
		return core.KeepAliveResult{}, ErrUncertain
	}
	return result, err
}

// Release ends a hold.
func (e *Engine) Release(ctx context.Context, name string, token int64) (core.ReleaseResult, error) {
	return result[core.ReleaseResult](e.call(ctx, name, func(s *core.Shard, now core.Instant, t core.Ticket, out *core.Output) {
		s.Release(now, name, token, t, out)
	}, nil, nil))
}

// Get shows a name.
func (e *Engine) Get(ctx context.Context, name string, queue bool) (core.LeaseView, error) {
	return result[core.LeaseView](e.call(ctx, name, func(s *core.Shard, now core.Instant, t core.Ticket, out *core.Output) {
		s.Get(now, name, queue, t, out)
	}, nil, nil))
}

// Check says whether a token is current.
func (e *Engine) Check(ctx context.Context, name string, token int64) (core.CheckResult, error) {
	return result[core.CheckResult](e.call(ctx, name, func(s *core.Shard, now core.Instant, t core.Ticket, out *core.Output) {
		s.Check(now, name, token, t, out)
	}, nil, nil))
}

// Change sets the value of a hold.
func (e *Engine) Change(ctx context.Context, name string, token int64, value []byte) (core.ChangeResult, error) {
	return result[core.ChangeResult](e.call(ctx, name, func(s *core.Shard, now core.Instant, t core.Ticket, out *core.Output) {
		s.Change(now, name, token, value, t, out)
	}, nil, nil))
}

// Revoke asks a holder to let go, or ends its hold.
func (e *Engine) Revoke(ctx context.Context, name string, token int64, revocation core.Revocation) (core.ChangeResult, error) {
	return result[core.ChangeResult](e.call(ctx, name, func(s *core.Shard, now core.Instant, t core.Ticket, out *core.Output) {
		s.Revoke(now, name, token, revocation, t, out)
	}, nil, nil))
}

// Transfer hands a hold to a waiter.
func (e *Engine) Transfer(ctx context.Context, name string, token int64, to string) (core.ChangeResult, error) {
	return result[core.ChangeResult](e.call(ctx, name, func(s *core.Shard, now core.Instant, t core.Ticket, out *core.Output) {
		s.Transfer(now, name, token, to, t, out)
	}, nil, nil))
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
		return nil, ErrUncertain
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

// Follow lets a function hear what happens to a hold that is served here, until Unfollow.
func (e *Engine) Follow(name string, token int64, hear func(Notice)) (*Follower, error) {
	s, err := e.at(name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open() {
		return nil, &NotOwnerError{Shard: s.index}
	}
	f := &Follower{key: holdKey{name, token}, hear: hear}
	if s.follow[f.key] == nil {
		s.follow[f.key] = map[*Follower]struct{}{}
	}
	s.follow[f.key][f] = struct{}{}
	return f, nil
}

// Unfollow ends what Follow began.
func (e *Engine) Unfollow(f *Follower) {
	s, err := e.at(f.key.name)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.follow[f.key], f)
	if len(s.follow[f.key]) == 0 {
		delete(s.follow, f.key)
	}
}
