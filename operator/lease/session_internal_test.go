package lease

import (
	"context"
	"math/rand/v2"
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
		client: client, open: &leasev1.SessionOpen{}, fresh: make(chan struct{}), ready: make(chan struct{}), posted: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
		calls: map[uint64]call{}, leases: map[leaseKey]*kept{}, beats: map[uint64]core.Instant{},
		attaching: map[uint64]attaching{},
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

// A lease that the client gives up must not live on in the service: the heartbeat of a client that was stopped, and went on after its
// lease was over for it and before it was for the service, would renew it, and so would all that follow.
func TestWhatExpiresIsGivenBackBeforeTheNextHeartbeat(t *testing.T) {
	s := connectedSession(t, 20*time.Second)
	at := now()
	l := s.hold("n", 7, time.Minute, at)
	s.look(at.Add(30 * time.Second))
	require.NoError(t, l.Err())
	s.look(at.Add(55 * time.Second))
	require.ErrorIs(t, l.Err(), ErrExpired)
	require.Zero(t, s.Leases())
	require.Len(t, s.queue, 3)
	require.NotNil(t, s.queue[0].GetHeartbeat())
	require.Equal(t, "n", s.queue[1].GetRelease().GetName())
	require.Equal(t, int64(7), s.queue[1].GetRelease().GetToken())
	require.NotNil(t, s.queue[2].GetHeartbeat())
}

// A stream may be opened with leases that are over when the service takes them in.
func TestALeaseThatIsAttachedTooLateIsGivenBack(t *testing.T) {
	s := connectedSession(t, 20*time.Second)
	l := s.hold("n", 7, time.Minute, now())
	s.opening()
	attached := &leasev1.SessionResponse{Message: &leasev1.SessionResponse_Attached{Attached: &leasev1.SessionAttached{
		Name: "n", Token: 7, Ttl: durationpb.New(time.Minute), ExpiresIn: durationpb.New(time.Minute),
	}}}
	s.handle(now(), attached)
	require.Empty(t, s.queue)
	s.lose(leaseKey{"n", 7}, ErrExpired)
	s.handle(now(), attached)
	require.ErrorIs(t, l.Err(), ErrExpired)
	require.Equal(t, int64(7), s.queue[0].GetRelease().GetToken())
}

// A lease whose TTL is shorter than the session's is renewed in time from its first moment on, whatever the service says that did not
// know it yet.
func TestAShortLeaseHurriesItsSession(t *testing.T) {
	s := connectedSession(t, 20*time.Second)
	<-s.hurry
	at := now()
	s.look(at)
	beat := s.queue[0]
	s.hold("n", 7, 3*time.Second, at)
	select {
	case <-s.hurry:
	default:
		t.Fatal("it is not told to look sooner")
	}
	require.LessOrEqual(t, s.look(at), 125*time.Millisecond)
	s.handle(0, &leasev1.SessionResponse{Id: beat.GetId(), Message: &leasev1.SessionResponse_HeartbeatAck{HeartbeatAck: &leasev1.SessionHeartbeatAck{
		ExpiresIn: durationpb.New(time.Minute), HeartbeatInterval: durationpb.New(20 * time.Second),
	}}})
	require.LessOrEqual(t, s.look(at), 125*time.Millisecond)
	require.Len(t, s.queue, 1)
	s.broken()
	s.connected(aStream{}, &leasev1.SessionOpened{HeartbeatInterval: durationpb.New(20 * time.Second)}, func() {})
	require.LessOrEqual(t, s.look(at), 125*time.Millisecond, "on a new stream too")
	require.Empty(t, s.queue)
	s.look(at.Add(750 * time.Millisecond))
	require.Len(t, s.queue, 1)
	require.NotNil(t, s.queue[0].GetHeartbeat())
}

// Whatever the TTLs of a session's leases are, none is held for longer than nine tenths of its own.
func TestNoLeaseIsHeldPastItsMargin(t *testing.T) {
	for range 50 {
		s := connectedSession(t, time.Hour/3)
		began := now()
		for i := range rand.N(6) + 1 {
			s.hold("n", int64(i+1), time.Second+rand.N(time.Duration(1)<<rand.N(37)), began)
		}
		for at := began; s.Leases() > 0; at = at.Add(s.look(at)) {
			for _, k := range s.leases {
				require.NoError(t, k.lease.Err())
				require.LessOrEqual(t, at.Sub(began), k.lease.ttl-k.lease.ttl/10)
			}
		}
	}
}

// Leases that end one shortly after the other are not looked at anew for each of them.
func TestManyLeasesEndTogether(t *testing.T) {
	s := connectedSession(t, 20*time.Second)
	began := now()
	for i := range 1000 {
		s.hold("n", int64(i), time.Minute, began.Add(time.Duration(i)*10*time.Microsecond))
	}
	looks := 0
	for at := began.Add(50 * time.Second); s.Leases() > 0; at = at.Add(s.look(at)) {
		looks++
	}
	require.Less(t, looks, 20)
}

// A holder that knows of a revocation hears of the next one if that asks for more.
func TestARevocationThatChanges(t *testing.T) {
	s := connectedSession(t, 20*time.Second)
	l := s.hold("n", 7, time.Minute, now())
	ask := func(r *leasev1.Revocation) {
		s.handle(0, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_RevokeRequested{RevokeRequested: &leasev1.SessionRevokeRequested{
			Name: "n", Token: 7, Revocation: r,
		}}})
	}
	changed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	first := l.RevocationChanged()
	require.Nil(t, l.Revocation())
	ask(&leasev1.Revocation{Reason: "maintenance", RequestedBy: "ops", DeadlineIn: durationpb.New(time.Hour)})
	require.True(t, changed(first))
	require.True(t, changed(l.Revoked()))
	require.Equal(t, &Revocation{Reason: "maintenance", RequestedBy: "ops", Deadline: time.Hour}, l.Revocation())

	second := l.RevocationChanged()
	ask(&leasev1.Revocation{Reason: "maintenance", RequestedBy: "ops", DeadlineIn: durationpb.New(time.Hour)})
	require.False(t, changed(second), "it is the same")
	ask(&leasev1.Revocation{Reason: "maintenance", RequestedBy: "ops", DeadlineIn: durationpb.New(time.Minute), Force: true})
	require.True(t, changed(second))
	require.Equal(t, &Revocation{Reason: "maintenance", RequestedBy: "ops", Deadline: time.Minute, Force: true}, l.Revocation())
	require.True(t, changed(l.Revoked()))
	require.False(t, changed(l.RevocationChanged()))
}

// beatAt sends a heartbeat at an instant, and returns its id.
func (s *Session) beatAt(at core.Instant) uint64 {
	s.last = 0
	s.look(at)
	return s.id
}

func (s *Session) acknowledge(id uint64, ack *leasev1.SessionHeartbeatAck) {
	ack.HeartbeatInterval = durationpb.New(20 * time.Second)
	s.handle(0, &leasev1.SessionResponse{Id: id, Message: &leasev1.SessionResponse_HeartbeatAck{HeartbeatAck: ack}})
}

// Leases that cannot be renewed keep no others from it, and each is renewed for its own TTL.
func TestAHeartbeatRenewsEachLeaseByItself(t *testing.T) {
	s := connectedSession(t, 20*time.Second)
	at := now()
	for i, ttl := range []time.Duration{time.Minute, 10 * time.Minute, time.Minute, time.Minute} {
		s.hold("n", int64(i), ttl, at)
	}
	// left is for how long each lease is certain after an instant.
	left := func(after core.Instant) []time.Duration {
		var all []time.Duration
		for token := range int64(len(s.leases)) {
			all = append(all, core.Instant(s.leases[leaseKey{"n", token}].lease.until.Load()).Sub(after))
		}
		return all
	}
	require.Equal(t, []time.Duration{54 * time.Second, 9 * time.Minute, 54 * time.Second, 54 * time.Second}, left(at))

	at = at.Add(15 * time.Second)
	id := s.beatAt(at)
	s.hold("n", 4, time.Minute, at.Add(-5*time.Second)) // whose grant the heartbeat crossed
	s.acknowledge(id, &leasev1.SessionHeartbeatAck{
		ExpiresIn: durationpb.New(5 * time.Second), Renewed: true, More: true,
		Others: []*leasev1.SessionHeartbeatOther{{Name: "n", Token: 2, ExpiresInMillis: 50_000}, {Name: "gone", Token: 2, ExpiresInMillis: 1}},
	})
	require.Equal(t, 39*time.Second, left(at)[0], "more is to come")
	s.acknowledge(id, &leasev1.SessionHeartbeatAck{
		ExpiresIn: durationpb.New(5 * time.Second), Renewed: true, Others: []*leasev1.SessionHeartbeatOther{{Name: "n", Token: 3}},
	})
	require.Equal(t, []time.Duration{54 * time.Second, 9 * time.Minute, 45 * time.Second, 39 * time.Second, 49 * time.Second}, left(at))

	// A service that does not tell them apart means all of them.
	at = at.Add(16 * time.Second)
	id = s.beatAt(at)
	s.acknowledge(id, &leasev1.SessionHeartbeatAck{ExpiresIn: durationpb.New(50 * time.Second)})
	require.Equal(t, []time.Duration{45 * time.Second, 9*time.Minute - 16*time.Second, 45 * time.Second, 45 * time.Second, 45 * time.Second}, left(at))
}
