package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

type leaseKey struct {
	name  string
	token int64
}

// kept is a lease of the session. Heartbeats with larger ids than since cover it; after a new stream was opened none does until
// the service has confirmed that it took the lease in.
type kept struct {
	lease *Lease
	since uint64
	// opened says that the first message of the stream asked to take it in.
	opened bool
	// apart is the last heartbeat whose answer named it.
	apart uint64
	// unsure says that the lease was granted a moment ago, maybe so long after it was asked for that its time seems over. Nobody
	// uses it before that is settled.
	unsure bool
}

const notCovered = math.MaxUint64

// call waits for the answer to a message that was posted at an instant.
type call struct {
	answer chan answer
	sent   core.Instant
}

// answer is what became of a call.
type answer struct {
	response *leasev1.SessionResponse
	lease    *Lease // of Granted
	err      error
}

// granted takes a lease in for the call that asked for it. That is one step with reading the message: what the service says of the lease next, that it is
// lost or wanted back, must find it. The lock is held.
func (s *Session) granted(r *leasev1.SessionResponse) {
	key := leaseKey{r.GetGranted().GetName(), r.GetGranted().GetToken()}
	asked, waiting := s.calls[r.GetId()]
	delete(s.calls, r.GetId())
	switch {
	case !waiting:
		s.say(releaseOf(key)) // whoever asked has given up
	case s.closing:
		asked.answer <- answer{err: ErrSessionClosed} // the service releases what it has
	default:
		l := s.client.unary(newLease(s.ctx, r.GetGranted(), asked.sent))
		l.giveBack = func(ctx context.Context) error { return s.release(ctx, key) }
		s.leases[key] = &kept{lease: l, since: s.id, unsure: true}
		s.pace(l.ttl)
		asked.answer <- answer{response: r, lease: l}
	}
}

// adopt returns a granted lease once it is certain for a good while.
func (s *Session) adopt(ctx context.Context, l *Lease) (*Lease, error) {
	// One that waited in line is confirmed by a call of its own, since until then its time may count as over.
	if err := l.confirm(ctx); err != nil {
		tell, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryMost)
		defer cancel()
		return nil, errors.Join(err, l.Release(tell))
	}
	if err := s.settle(l); err != nil {
		return nil, fmt.Errorf("lease %q: %w", l.name, err)
	}
	return l, nil
}

// settle leaves a lease to its holder, unless it was lost meanwhile.
func (s *Session) settle(l *Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.leases[leaseKey{l.name, l.token}]; k != nil && k.lease == l {
		k.unsure = false
	} else if s.closing {
		return ErrSessionClosed
	}
	return l.Err()
}

// lose ends a lease. The lock is held.
func (s *Session) lose(key leaseKey, cause error) {
	if k := s.leases[key]; k != nil {
		delete(s.leases, key)
		k.lease.cancel(cause)
	}
}

// attached takes note that a new stream keeps a lease, which lives for a time from the opening on. One that was lost or released meanwhile is
// given back, since the service would renew it for as long as the stream lives. The lock is held.
func (s *Session) attached(opening core.Instant, key leaseKey, expiresIn time.Duration) {
	k := s.leases[key]
	if k == nil {
		s.say(releaseOf(key))
		return
	}
	k.since = s.id
	k.lease.extend(opening, expiresIn)
	if until := core.Instant(k.lease.until.Load()); s.attachedUntil == 0 || until < s.attachedUntil {
		s.attachedUntil = until
	}
}

// expire gives a lease up whose time is over. The service may still renew it, with the next heartbeat at the latest, if the session was
// stopped for a while; so it is told. The lock is held.
func (s *Session) expire(key leaseKey) {
	s.lose(key, ErrExpired)
	s.say(releaseOf(key))
}

// release gives a lease back through the stream.
func (s *Session) release(ctx context.Context, key leaseKey) error {
	s.mu.Lock()
	delete(s.leases, key)
	s.mu.Unlock()
	got, err := s.ask(ctx, releaseOf(key))
	if err != nil {
		return err
	}
	if got.response.GetReleased() == nil {
		return refusal(got.response)
	}
	return nil
}

func releaseOf(key leaseKey) *leasev1.SessionRequest {
	return &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Release{
		Release: &leasev1.ReleaseRequest{Name: key.name, Token: key.token},
	}}
}

// Leases returns how many leases the session keeps.
func (s *Session) Leases() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.leases)
}
