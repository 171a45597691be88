package service_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// session is a test's end of a session stream.
type session struct {
	t      *testing.T
	stream grpc.BidiStreamingClient[leasev1.SessionRequest, leasev1.SessionResponse]
	id     uint64
}

func openSession(t *testing.T, client leasev1.LeaseServiceClient, open *leasev1.SessionOpen) *session {
	t.Helper()
	stream, err := client.Session(within(t, 60*time.Second))
	require.NoError(t, err)
	s := &session{t: t, stream: stream}
	s.send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Open{Open: open}})
	require.NotNil(t, s.next().GetOpened())
	return s
}

func (s *session) send(r *leasev1.SessionRequest) uint64 {
	s.t.Helper()
	s.id++
	r.Id = s.id
	require.NoError(s.t, s.stream.Send(r))
	return s.id
}

func (s *session) next() *leasev1.SessionResponse {
	s.t.Helper()
	got, err := s.stream.Recv()
	require.NoError(s.t, err)
	return got
}

// until reads on until a message fits.
func (s *session) until(fits func(*leasev1.SessionResponse) bool) *leasev1.SessionResponse {
	s.t.Helper()
	for {
		if got := s.next(); fits(got) {
			return got
		}
	}
}

func (s *session) acquire(name string, wait bool) uint64 {
	req := &leasev1.AcquireRequest{Name: name}
	if wait {
		req.Wait = &leasev1.Wait{}
	}
	return s.send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Acquire{Acquire: req}})
}

func (s *session) granted(id uint64) *leasev1.AcquireResponse {
	s.t.Helper()
	got := s.until(func(r *leasev1.SessionResponse) bool { return r.GetId() == id && r.GetQueued() == nil })
	require.NotNil(s.t, got.GetGranted(), "%v", got)
	return got.GetGranted()
}

func (s *session) heartbeat() *leasev1.SessionHeartbeatAck {
	s.t.Helper()
	id := s.send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Heartbeat{Heartbeat: &leasev1.SessionHeartbeat{}}})
	return s.until(func(r *leasev1.SessionResponse) bool { return r.GetId() == id }).GetHeartbeatAck()
}

func TestSession(t *testing.T) {
	replica := leasetest.Start(t, leasetest.Options("alone"))
	client := leasev1.NewLeaseServiceClient(leasetest.Dial(t, replica.Address))
	second := durationpb.New(time.Second)

	t.Run("one heartbeat keeps all holds", func(t *testing.T) {
		s := openSession(t, client, &leasev1.SessionOpen{Holder: "s", Ttl: second})
		tokens := map[string]int64{}
		for i := range 20 {
			name := fmt.Sprintf("many/%d", i)
			tokens[name] = s.granted(s.acquire(name, false)).GetToken()
		}
		for start := time.Now(); time.Since(start) < 2500*time.Millisecond; {
			ack := s.heartbeat()
			require.Greater(t, ack.GetExpiresIn().AsDuration(), 800*time.Millisecond)
			select {
			case <-time.After(200 * time.Millisecond):
			case <-t.Context().Done():
			}
		}
		for name, token := range tokens {
			got, err := client.CheckToken(t.Context(), &leasev1.CheckTokenRequest{Name: name, Token: token})
			require.NoError(t, err)
			assert.Equal(t, leasev1.CheckTokenResponse_VERDICT_CURRENT, got.GetVerdict())
		}
		s.send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Close{Close: &leasev1.SessionClose{}}})
		for range tokens {
			assert.True(t, s.next().GetReleased().GetReleased())
		}
		got, err := client.List(t.Context(), &leasev1.ListRequest{Prefix: "many/"})
		require.NoError(t, err)
		assert.Empty(t, got.GetLeases(), "closing releases")
	})
	t.Run("without heartbeats it warns, then tells the loss", func(t *testing.T) {
		s := openSession(t, client, &leasev1.SessionOpen{Ttl: second})
		token := s.granted(s.acquire("quiet", false)).GetToken()
		warned := s.next().GetExpiring()
		assert.Equal(t, token, warned.GetToken())
		lost := s.next().GetLost()
		assert.Equal(t, token, lost.GetToken())
		assert.Equal(t, leasev1.EndReason_END_REASON_EXPIRED, lost.GetReason())
	})
	t.Run("a waiter hears its place, and can give up", func(t *testing.T) {
		holder := openSession(t, client, &leasev1.SessionOpen{Holder: "holder"})
		holder.granted(holder.acquire("place", false))
		s := openSession(t, client, &leasev1.SessionOpen{Holder: "waiter"})
		id := s.acquire("place", true)
		queued := s.next()
		assert.Equal(t, id, queued.GetId())
		assert.Equal(t, int32(1), queued.GetQueued().GetQueuePosition())
		assert.Equal(t, "holder", queued.GetQueued().GetHolds()[0].GetHolder())
		s.send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Cancel{Cancel: &leasev1.SessionCancel{Request: id}}})
		refused := s.until(func(r *leasev1.SessionResponse) bool { return r.GetRefused() != nil })
		assert.Equal(t, id, refused.GetId())
		assert.Equal(t, int32(1), refused.GetRefused().GetCode(), "CANCELLED")
	})
	t.Run("many waiters for one name hear their places", func(t *testing.T) {
		open := &leasev1.SessionOpen{Ttl: durationpb.New(time.Minute)}
		holder := openSession(t, client, open)
		token := holder.granted(holder.acquire("long", false)).GetToken()
		s := openSession(t, client, open)
		const many = 200
		first := s.acquire("long", true)
		for range many - 1 {
			s.acquire("long", true)
		}
		places := map[uint64]int32{}
		for len(places) < many {
			queued := s.next()
			places[queued.GetId()] = queued.GetQueued().GetQueuePosition()
		}
		for id, place := range places {
			require.Equal(t, int32(id-first)+1, place)
		}
		_, err := client.Release(t.Context(), &leasev1.ReleaseRequest{Name: "long", Token: token})
		require.NoError(t, err)
		s.granted(first)
		for moved := 1; moved < many; moved++ {
			queued := s.until(func(r *leasev1.SessionResponse) bool { return r.GetQueued() != nil })
			require.Equal(t, int32(queued.GetId()-first), queued.GetQueued().GetQueuePosition())
		}
	})
	t.Run("a revocation is asked for, then made true", func(t *testing.T) {
		s := openSession(t, client, &leasev1.SessionOpen{})
		token := s.granted(s.acquire("wanted", false)).GetToken()
		s.heartbeat()
		_, err := client.Revoke(t.Context(), &leasev1.RevokeRequest{
			Name: "wanted", Reason: "maintenance", Deadline: durationpb.New(300 * time.Millisecond), Force: true,
		})
		require.NoError(t, err)
		asked := s.next().GetRevokeRequested()
		assert.Equal(t, token, asked.GetToken())
		assert.Equal(t, "maintenance", asked.GetRevocation().GetReason())
		assert.Equal(t, 300*time.Millisecond, asked.GetRevocation().GetDeadlineIn().AsDuration())
		lost := s.next().GetLost()
		assert.Equal(t, leasev1.EndReason_END_REASON_REVOKED, lost.GetReason())
	})
	t.Run("a broken session is taken up again", func(t *testing.T) {
		s := openSession(t, client, &leasev1.SessionOpen{})
		token := s.granted(s.acquire("resumed", false)).GetToken()
		require.NoError(t, s.stream.CloseSend())
		again := openSession(t, client, &leasev1.SessionOpen{Attach: []*leasev1.SessionAttach{
			{Name: "resumed", Token: token}, {Name: "resumed", Token: token + 1},
		}})
		var attached, lost int64
		for range 2 {
			got := again.next()
			attached += got.GetAttached().GetToken()
			lost += got.GetLost().GetToken()
		}
		assert.Equal(t, token, attached)
		assert.Equal(t, token+1, lost)
	})
	t.Run("holds are attached by requests of their own, and released with the others", func(t *testing.T) {
		s := openSession(t, client, &leasev1.SessionOpen{})
		const many = 1000
		attaches := make([]*leasev1.SessionRequest, many)
		for i := range attaches {
			name := fmt.Sprintf("apart/%d", i)
			attaches[i] = &leasev1.SessionRequest{Id: uint64(i + 1000), Message: &leasev1.SessionRequest_Attach{
				Attach: &leasev1.SessionAttach{Name: name, Token: s.granted(s.acquire(name, false)).GetToken()},
			}}
		}
		require.NoError(t, s.stream.CloseSend())
		again := openSession(t, client, &leasev1.SessionOpen{})
		together := func(requests ...*leasev1.SessionRequest) {
			again.send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Batch{Batch: &leasev1.SessionRequestBatch{Requests: requests}}})
		}
		attaches[0].GetAttach().Token++
		together(attaches[:many/2]...)
		answered := map[uint64]*leasev1.SessionResponse{}
		for range many / 2 {
			got := again.next()
			answered[got.GetId()] = got
		}
		assert.Equal(t, int32(5), answered[1000].GetRefused().GetCode(), "NOT_FOUND")
		for i, a := range attaches[1 : many/2] {
			require.Equal(t, a.GetAttach().GetToken(), answered[uint64(i+1001)].GetAttached().GetToken())
		}
		together(append(attaches[many/2:], &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Close{Close: &leasev1.SessionClose{}}})...)
		for {
			if _, err := again.stream.Recv(); err != nil {
				require.ErrorIs(t, err, io.EOF)
				break
			}
		}
		got, err := client.List(t.Context(), &leasev1.ListRequest{Prefix: "apart/"})
		require.NoError(t, err)
		require.Len(t, got.GetLeases(), 1, "all but the one that was not attached")
		assert.Equal(t, "apart/0", got.GetLeases()[0].GetName())
	})
}

// A session through a replica that serves none of the names: everything is forwarded, and goes on when the owner dies.
func TestSessionSurvivesFailover(t *testing.T) {
	etcd, _ := leasetest.Etcd(t)
	a, b := spawn(t, "a", etcd.Endpoint()), spawn(t, "b", etcd.Endpoint())
	leasetest.AwaitStatus(t, a.address, "two replicas share the shards", func(s *leasestatus.GetStatusResponse) bool {
		return len(s.GetReplicas()) == 2 && s.GetShards() == 8
	})
	client := leasev1.NewLeaseServiceClient(leasetest.Dial(t, a.address))
	s := openSession(t, client, &leasev1.SessionOpen{Ttl: durationpb.New(8 * time.Second)})
	tokens := map[string]int64{}
	for i := range 20 {
		name := fmt.Sprintf("n%d", i)
		tokens[name] = s.granted(s.acquire(name, false)).GetToken()
	}
	require.NoError(t, b.Process.Kill())
	for start := time.Now(); time.Since(start) < 10*time.Second; {
		ack := s.heartbeat()
		require.Positive(t, ack.GetExpiresIn().AsDuration())
		if a := ack.GetExpiresIn().AsDuration(); a > 7*time.Second && time.Since(start) > 5*time.Second {
			break
		}
	}
	for name, token := range tokens {
		got, err := client.CheckToken(t.Context(), &leasev1.CheckTokenRequest{Name: name, Token: token})
		require.NoError(t, err)
		assert.Equal(t, leasev1.CheckTokenResponse_VERDICT_CURRENT, got.GetVerdict(), name)
	}
}

func TestElection(t *testing.T) {
	replica := leasetest.Start(t, leasetest.Options("alone"))
	conn := leasetest.Dial(t, replica.Address)
	elections := leasev1.NewElectionServiceClient(conn)
	observed, err := elections.Observe(within(t, 60*time.Second), &leasev1.ObserveRequest{Name: "e"})
	require.NoError(t, err)
	leader := func() *leasev1.ObserveResponse {
		t.Helper()
		got, err := observed.Recv()
		require.NoError(t, err)
		return got
	}
	assert.Nil(t, leader().GetLeader())
	first, err := elections.Campaign(t.Context(), &leasev1.CampaignRequest{Name: "e", Candidate: "a", Value: []byte("1")})
	require.NoError(t, err)
	assert.Equal(t, "a", leader().GetLeader().GetCandidate())
	_, err = elections.Proclaim(t.Context(), &leasev1.ProclaimRequest{Name: "e", Token: first.GetLeader().GetToken(), Value: []byte("2")})
	require.NoError(t, err)
	assert.Equal(t, []byte("2"), leader().GetLeader().GetValue())

	_, err = elections.Transfer(t.Context(), &leasev1.TransferRequest{Name: "e", Token: first.GetLeader().GetToken(), To: "c"})
	assert.Equal(t, "NO_SUCH_CANDIDATE", reason(err))
	elected := make(chan string, 2)
	for i, candidate := range []string{"b", "c"} {
		go func() {
			if _, err := elections.Campaign(within(t, 60*time.Second), &leasev1.CampaignRequest{Name: "e", Candidate: candidate}); err == nil {
				elected <- candidate
			}
		}()
		require.Eventually(t, func() bool {
			got, err := leasev1.NewLeaseServiceClient(conn).Get(t.Context(), &leasev1.GetRequest{Name: "e"})
			return err == nil && got.GetLease().GetWaiters() == int32(i+1)
		}, 5*time.Second, 5*time.Millisecond)
	}
	moved, err := elections.Transfer(t.Context(), &leasev1.TransferRequest{Name: "e", Token: first.GetLeader().GetToken(), To: "c"})
	require.NoError(t, err)
	assert.Equal(t, "c", <-elected)
	got := leader()
	assert.Equal(t, "c", got.GetLeader().GetCandidate(), "no moment without a leader")
	assert.Equal(t, leasev1.EndReason_END_REASON_TRANSFERRED, got.GetFormerEnded())
	_, err = elections.Resign(t.Context(), &leasev1.ResignRequest{Name: "e", Token: moved.GetLeader().GetToken()})
	require.NoError(t, err)
	assert.Equal(t, "b", <-elected)
}
