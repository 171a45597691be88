package lease

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// maxMessage is what the service takes as one message.
const maxMessage = 1 << 20

// reopened is a session whose leases fill more than two messages and whose stream was just opened anew. It returns what the first message
// attaches.
func reopened(t *testing.T, ttl time.Duration) (*Session, map[leaseKey]bool) {
	t.Helper()
	s := connectedSession(t, ttl/3)
	padding := strings.Repeat("x", 400)
	for i := range 5000 {
		s.hold(fmt.Sprint(i, padding), int64(i+1), ttl, now())
	}
	s.broken()
	open := s.opening()
	require.LessOrEqual(t, open.SizeVT(), maxMessage)
	first := map[leaseKey]bool{}
	for _, a := range open.GetOpen().GetAttach() {
		first[leaseKey{a.GetName(), a.GetToken()}] = true
	}
	require.Greater(t, open.SizeVT(), maxMessage/2)
	s.connected(aStream{}, &leasev1.SessionOpened{HeartbeatInterval: durationpb.New(ttl / 3)}, func() {})
	return s, first
}

// attachment returns the lease that a message asks to take in.
func attachment(r *leasev1.SessionRequest) leaseKey {
	return leaseKey{r.GetAttach().GetName(), r.GetAttach().GetToken()}
}

// refuse lets the service refuse a request.
func (s *Session) refuse(r *leasev1.SessionRequest, code codes.Code) {
	s.handle(0, &leasev1.SessionResponse{Id: r.GetId(), Message: &leasev1.SessionResponse_Refused{Refused: &leasev1.SessionRefused{Code: int32(code)}}})
}

// Each lease is attached once, by messages that the service takes, which let other messages go first.
func TestLeasesThatFillManyMessagesAreAttached(t *testing.T) {
	s, seen := reopened(t, time.Minute)
	s.look(now().Add(20 * time.Second))
	require.NotNil(t, s.due(aStream{})[0].GetHeartbeat())
	chunks := 0
	for queue := s.due(aStream{}); len(queue) > 0; queue = s.due(aStream{}) {
		chunks++
		require.Equal(t, len(queue), together(queue), "they go as one message")
		batch := &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Batch{Batch: &leasev1.SessionRequestBatch{Requests: queue}}}
		require.LessOrEqual(t, batch.SizeVT(), maxMessage)
		for _, r := range queue {
			require.False(t, seen[attachment(r)])
			require.NotNil(t, s.leases[attachment(r)])
			seen[attachment(r)] = true
		}
		s.tell(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Heartbeat{Heartbeat: &leasev1.SessionHeartbeat{}}})
		require.NotNil(t, s.due(aStream{})[0].GetHeartbeat())
	}
	require.Greater(t, chunks, 2)
	require.Len(t, seen, s.Leases())
}

// The leases that end first are asked for first.
func TestLeasesAreAttachedInTheOrderOfTheirEnds(t *testing.T) {
	s := connectedSession(t, 20*time.Second)
	began := now()
	const leases = 5000
	for i := range leases {
		s.hold(strings.Repeat("x", 400), int64(i+1), time.Minute, began.Add(-time.Duration(i)*time.Millisecond))
	}
	s.broken()
	next := int64(leases)
	inOrder := func(a *leasev1.SessionAttach) {
		require.Equal(t, next, a.GetToken())
		next--
	}
	for _, a := range s.opening().GetOpen().GetAttach() {
		inOrder(a)
	}
	s.connected(aStream{}, &leasev1.SessionOpened{HeartbeatInterval: durationpb.New(20 * time.Second)}, func() {})
	for queue := s.due(aStream{}); len(queue) > 0; queue = s.due(aStream{}) {
		for _, r := range queue {
			inOrder(r.GetAttach())
		}
	}
	require.Zero(t, next)
}

// Traffic that never lets up keeps no lease from being attached, and waits for one message with attaches at a time.
func TestLeasesAreAttachedBesideOtherMessages(t *testing.T) {
	s, seen := reopened(t, time.Minute)
	turns := 0
	for ; len(seen) < s.Leases() && turns < 100; turns++ {
		s.tell(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Get{Get: &leasev1.GetRequest{Name: "n"}}})
		queue := s.due(aStream{})
		if turns%2 == 0 {
			require.NotNil(t, queue[0].GetGet())
			continue
		}
		for _, r := range queue {
			require.NotNil(t, r.GetAttach())
			seen[attachment(r)] = true
		}
	}
	require.Less(t, turns, 20)
	require.Len(t, s.due(aStream{}), 1, "what came last")
}

// A lease that is yet to be attached is as it was: heartbeats do not renew it, and it is not lost before the service says so. What the service
// cannot take in at the moment is asked for again.
func TestLeasesThatAreNotAttachedYet(t *testing.T) {
	s, _ := reopened(t, time.Minute)
	queue := s.due(aStream{})
	there, gone, away := queue[0], queue[1], queue[2]
	lease := func(r *leasev1.SessionRequest) *Lease { return s.leases[attachment(r)].lease }
	ended := lease(gone)
	until := lease(there).until.Load()
	at := now().Add(20 * time.Second)
	id := s.beatAt(at)
	s.acknowledge(id, &leasev1.SessionHeartbeatAck{Renewed: true})
	require.Equal(t, until, lease(there).until.Load())

	s.handle(0, &leasev1.SessionResponse{Id: there.GetId(), Message: &leasev1.SessionResponse_Attached{Attached: &leasev1.SessionAttached{
		Name: there.GetAttach().GetName(), Token: there.GetAttach().GetToken(), Ttl: durationpb.New(time.Minute), ExpiresIn: durationpb.New(time.Minute),
	}}})
	require.Greater(t, lease(there).until.Load(), until)
	s.refuse(gone, codes.NotFound)
	require.ErrorIs(t, ended.Err(), ErrNotHeld)
	s.refuse(away, codes.Unavailable)
	require.NoError(t, lease(away).Err())
	require.Equal(t, 4999, s.Leases())

	for s.unattached != nil {
		s.due(aStream{})
	}
	s.look(at)
	again := s.due(aStream{})
	require.Len(t, again, 1)
	require.Equal(t, attachment(away), attachment(again[0]))
	require.Greater(t, again[0].GetId(), away.GetId())
}

// A lease that the service took in long after it was asked to is renewed before it ends; one heartbeat does for all that one message tells of.
func TestALeaseThatIsAttachedLateIsRenewedAtOnce(t *testing.T) {
	s := connectedSession(t, 20*time.Second)
	began := now().Add(-40 * time.Second)
	for i := range 3 {
		s.hold("n", int64(i+1), time.Minute, began)
	}
	s.opening()
	s.look(now())
	s.queue = nil
	<-s.hurry
	attached := func(opening core.Instant) (hurried bool) {
		batch := &leasev1.SessionResponseBatch{}
		for token := range int64(3) {
			batch.Responses = append(batch.Responses, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_Attached{
				Attached: &leasev1.SessionAttached{Name: "n", Token: token + 1, ExpiresIn: durationpb.New(time.Minute)},
			}})
		}
		s.receive(opening, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_Batch{Batch: batch}})
		select {
		case <-s.hurry:
			return true
		default:
			return false
		}
	}
	require.True(t, attached(began.Add(time.Second)))
	s.look(now())
	require.Len(t, s.queue, 1)
	require.NotNil(t, s.queue[0].GetHeartbeat())
	s.look(now())
	require.Len(t, s.queue, 1)
	require.False(t, attached(now()), "they live until the next")
	s.look(now())
	require.Len(t, s.queue, 1)
}

// An attach is repeated after any refusal that may be another's the next time.
func TestLeasesWhoseAttachIsRepeated(t *testing.T) {
	again := map[codes.Code]bool{
		codes.Canceled: true, codes.Unknown: true, codes.DeadlineExceeded: true, codes.ResourceExhausted: true, codes.Aborted: true,
		codes.Internal: true, codes.Unavailable: true, codes.DataLoss: true, codes.Unauthenticated: true,
		codes.InvalidArgument: false, codes.PermissionDenied: false, codes.Unimplemented: false, codes.NotFound: false,
	}
	for code, repeated := range again {
		s, _ := reopened(t, time.Minute)
		asked := s.due(aStream{})[0]
		s.unattached = nil
		s.refuse(asked, code)
		s.attachAgain(now().Add(retryMost))
		queue := s.due(aStream{})
		require.Equal(t, repeated, len(queue) == 1 && attachment(queue[0]) == attachment(asked), code)
	}
}

// The pauses after which attaches are repeated grow, to what a lease that is short has time for.
func TestAttachesAreRepeatedWithPauses(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, time.Minute} {
		s, _ := reopened(t, ttl)
		requests := s.due(aStream{})[:2]
		s.unattached = nil
		most := min(retryMost, ttl/3)
		for pause := retryFirst; pause < 4*most; pause *= 2 {
			before := now()
			for _, r := range requests {
				s.refuse(r, codes.Unavailable)
			}
			s.attachAgain(before.Add(min(pause, most) / 2))
			require.Empty(t, s.due(aStream{}))
			s.attachAgain(now().Add(min(pause, most)))
			requests = s.due(aStream{})
			require.Len(t, requests, 2)
		}
	}
}

// What a session has not attached it gives back when it is closed, and does not attach when it is over meanwhile.
func TestLeasesThatEndBeforeTheyAreAttached(t *testing.T) {
	s, kept := reopened(t, time.Minute)
	over := s.unattached[0]
	s.lose(over, ErrExpired)
	requests := s.due(aStream{})
	for _, r := range requests {
		require.NotEqual(t, over, attachment(r))
	}
	s.refuse(requests[0], codes.PermissionDenied)
	s.refuse(requests[1], codes.Unavailable)
	s.handle(0, &leasev1.SessionResponse{Id: requests[2].GetId(), Message: &leasev1.SessionResponse_Attached{Attached: &leasev1.SessionAttached{
		Name: requests[2].GetAttach().GetName(), Token: requests[2].GetAttach().GetToken(), ExpiresIn: durationpb.New(time.Minute),
	}}})
	kept[attachment(requests[2])] = true
	require.NotEmpty(t, s.unattached)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBackUnattached()
	require.Empty(t, s.attachNext())
	released := map[leaseKey]bool{}
	for _, r := range s.queue {
		released[leaseKey{r.GetRelease().GetName(), r.GetRelease().GetToken()}] = true
	}
	require.Len(t, s.queue, len(released), "once each")
	for key := range s.leases {
		require.NotEqual(t, kept[key], released[key], "the service releases what it has or was opened with")
	}
	require.Len(t, released, len(s.leases)-len(kept))
}
