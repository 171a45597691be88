package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/internal/lease/clock"
	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// lookEvery is how often a lease looks at the clock at least: timers stand still while the machine sleeps.
const lookEvery = 500 * time.Millisecond

func now() core.Instant { return clock.Now() }

// Revocation is a request to let go of a lease.
type Revocation struct {
	// Reason is why, in words.
	Reason string
	// RequestedBy is who asks.
	RequestedBy string
	// Force says that the lease ends at the deadline in any case.
	Force bool
	// Deadline is how much time there is, from when the request was seen. 0: as much as the holder likes.
	Deadline time.Duration
}

// Lease is a held lease. It renews itself until it is released or lost. Its methods are safe for
// concurrent use.
type Lease struct {
	name  string
	token int64
	ttl   time.Duration
	// renewOnce renews it by a call of its own, and giveBack tells the service that it is over. Both try once.
	renewOnce func(ctx context.Context) error
	giveBack  func(ctx context.Context) error

	ctx    context.Context //nolint:containedctx // it is what Context offers
	cancel context.CancelCauseFunc
	// until is a core.Instant: the lease is certainly held before it.
	until atomic.Int64

	revokeMu   sync.Mutex
	revoked    chan struct{}
	changed    chan struct{} // nil if nobody waits for it
	revocation atomic.Pointer[wanting]
}

// wanting is a revocation as it is shown, and as it is compared with the next.
type wanting struct {
	Revocation
	asked core.Asked
}

func newLease(ctx context.Context, granted *leasev1.AcquireResponse, sent core.Instant) *Lease {
	l := &Lease{
		name: granted.GetName(), token: granted.GetToken(), ttl: granted.GetTtl().AsDuration(), revoked: make(chan struct{}),
	}
	l.extend(sent, granted.GetExpiresIn().AsDuration())
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	return l
}

// confirm renews a lease that was granted long after it was asked for, since its TTL is counted from the asking. It
// returns an error if the lease is over, or cannot be confirmed until the context ends.
func (l *Lease) confirm(ctx context.Context) error {
	for pause := retryFirst; l.ctx.Err() == nil && l.Remaining() < l.ttl/2; pause = min(2*pause, retryMost) {
		err := l.renew(ctx, l.ttl/3)
		if err != nil && (errors.Is(err, ErrNotHeld) || !sleep(ctx, jittered(pause))) {
			return err
		}
	}
	return nil
}

// extend takes note that the lease lives for a time from an instant on. A tenth is left for clocks that run at
// different rates. What is known already is never shortened.
func (l *Lease) extend(from core.Instant, expiresIn time.Duration) {
	until := int64(from.Add(expiresIn - expiresIn/10))
	for known := l.until.Load(); known < until; known = l.until.Load() {
		if l.until.CompareAndSwap(known, until) {
			return
		}
	}
}

// Name returns the name of the lease.
func (l *Lease) Name() string { return l.name }

// Token returns the fencing token: larger than that of every holder before.
func (l *Lease) Token() int64 { return l.token }

// TTL returns the TTL that was granted.
func (l *Lease) TTL() time.Duration { return l.ttl }

// Remaining returns for how long the lease is certainly held if it is not renewed again; not positive when it is
// not.
func (l *Lease) Remaining() time.Duration {
	if l.ctx.Err() != nil {
		return 0
	}
	return core.Instant(l.until.Load()).Sub(now())
}

// Done returns a channel that is closed when the lease is released or lost.
func (l *Lease) Done() <-chan struct{} { return l.ctx.Done() }

// Err returns why the lease is Done: ErrReleased, ErrExpired, ErrNotHeld or ErrClientClosed; nil while it is held.
func (l *Lease) Err() error { return context.Cause(l.ctx) }

// Context returns a context that ends with the lease. Its cause is Err.
func (l *Lease) Context() context.Context { return l.ctx }

// Revoked returns a channel that is closed when somebody wants the lease back; see Revocation.
func (l *Lease) Revoked() <-chan struct{} { return l.revoked }

// Revocation returns the latest request to let go; nil if there is none.
func (l *Lease) Revocation() *Revocation {
	if w := l.revocation.Load(); w != nil {
		return &w.Revocation
	}
	return nil
}

// RevocationChanged returns a channel that is closed when what Revocation returns changes the next time: by the first request to let go, or by
// another one, which may be forced, or give more or less time than the one before. Who takes the channel before it calls Revocation
// misses nothing.
func (l *Lease) RevocationChanged() <-chan struct{} {
	l.revokeMu.Lock()
	defer l.revokeMu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

// Release gives the lease back. From the moment it is called the lease is not held any more, whatever it
// returns. An error means that the service may not know that yet, in which case the lease expires after its TTL.
// It goes on trying until the context ends, and does nothing on a lease that is Done already.
func (l *Lease) Release(ctx context.Context) error {
	select {
	case <-l.ctx.Done():
		return nil
	default:
	}
	l.cancel(ErrReleased)
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		err := l.giveBack(ctx)
		if err == nil {
			return nil
		}
		if status.Code(err) != codes.Unavailable || !sleep(ctx, jittered(pause)) {
			return Typed(l.name, err)
		}
	}
}

// keep renews the lease every third of its TTL until it is Done.
func (l *Lease) keep() {
	every := l.ttl / 3
	next := now().Add(jittered(every))
	pause := retryFirst
	for {
		left := core.Instant(l.until.Load()).Sub(now())
		if left <= 0 {
			l.cancel(ErrExpired)
			return
		}
		if wait := min(next.Sub(now()), left, lookEvery); wait > 0 {
			if !sleep(l.ctx, wait) {
				return
			}
			continue
		}
		if err := l.renew(l.ctx, min(left, every)); err == nil {
			next, pause = now().Add(every), retryFirst
			continue
		} else if errors.Is(err, ErrNotHeld) {
			l.cancel(ErrNotHeld)
			return
		}
		next = now().Add(jittered(pause))
		pause = min(2*pause, retryMost, every)
	}
}

func (l *Lease) renew(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return l.renewOnce(ctx)
}

// wanted takes note that somebody wants the lease back; r may be nil, or what is known already.
func (l *Lease) wanted(r *leasev1.Revocation) {
	if r == nil {
		return
	}
	next := &wanting{asked: core.Asked{Reason: r.GetReason(), RequestedBy: r.GetRequestedBy(), Force: r.GetForce()}}
	next.Revocation = Revocation{
		Reason: r.GetReason(), RequestedBy: r.GetRequestedBy(), Force: r.GetForce(), Deadline: r.GetDeadlineIn().AsDuration(),
	}
	if in := r.GetDeadlineIn(); in != nil {
		next.asked.By = now().Add(in.AsDuration())
	}
	l.revokeMu.Lock()
	defer l.revokeMu.Unlock()
	known := l.revocation.Load()
	if known != nil && !known.asked.News(next.asked) {
		return
	}
	l.revocation.Store(next)
	if known == nil {
		close(l.revoked)
	}
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// jittered spreads what many clients would do at the same moment.
func jittered(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/4+1)
}

// sleep waits, and returns false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
