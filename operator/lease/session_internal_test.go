package lease

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// aStream stands for a stream that is open.
type aStream struct{ stream }

// connectedSession is a session with an open stream and nothing that runs: what would be sent stays in its queue.
func connectedSession(t *testing.T, interval time.Duration) *Session {
	t.Helper()
	client := New(nil)
	t.Cleanup(func() { _ = client.Close() })
	s := &Session{
		client: client, fresh: make(chan struct{}), ready: make(chan struct{}), posted: make(chan struct{}, 1),
		calls: map[uint64]call{}, leases: map[leaseKey]*kept{}, beats: map[uint64]core.Instant{},
	}
	s.ctx, s.cancel = context.WithCancelCause(client.ctx)
	s.connected(aStream{}, &leasev1.SessionOpened{HeartbeatInterval: durationpb.New(interval)}, func() {})
	return s
}

// hold lets a session be granted a lease at an instant.
func (s *Session) hold(name string, token int64, ttl time.Duration, at core.Instant) *Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id++
	asked := call{answer: make(chan answer, 1), sent: at}
	s.calls[s.id] = asked
	s.granted(grantOf(s.id, name, token, ttl))
	a := <-asked.answer
	s.leases[leaseKey{name, token}].unsure = false
	return a.lease
}

func grantOf(id uint64, name string, token int64, ttl time.Duration) *leasev1.SessionResponse {
	return &leasev1.SessionResponse{Id: id, Message: &leasev1.SessionResponse_Granted{Granted: &leasev1.AcquireResponse{
		Name: name, Token: token, Ttl: durationpb.New(ttl), ExpiresIn: durationpb.New(ttl),
	}}}
}

// A grant that comes when whoever asked is just giving up has an owner in any case: either it is returned, or it is given back.
func TestAGrantAtTheLastMoment(t *testing.T) {
	s := connectedSession(t, time.Minute)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	asked := call{answer: make(chan answer, 1), sent: now()}
	s.calls[1] = asked
	s.handle(0, grantOf(1, "n", 7, time.Minute))
	got := s.giveUp(over, 1, asked)
	require.NotNil(t, got.lease)
	require.Equal(t, 1, s.Leases())

	late := call{answer: make(chan answer, 1), sent: now()}
	s.calls[2] = late
	require.ErrorIs(t, s.giveUp(over, 2, late).err, context.Canceled)
	s.handle(0, grantOf(2, "n", 8, time.Minute))
	last := s.queue[len(s.queue)-1].GetRelease()
	require.Equal(t, int64(8), last.GetToken())
	require.Equal(t, 1, s.Leases())
}

// A session that is being closed hands no more leases out: the service releases what it grants from then on.
func TestAGrantAfterClose(t *testing.T) {
	s := connectedSession(t, time.Minute)
	s.closing = true
	asked := call{answer: make(chan answer, 1), sent: now()}
	s.calls[1] = asked
	s.handle(0, grantOf(1, "n", 7, time.Minute))
	require.ErrorIs(t, (<-asked.answer).err, ErrSessionClosed)
	require.Zero(t, s.Leases())
}
