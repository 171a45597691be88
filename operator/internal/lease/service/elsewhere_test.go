package service_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// pair starts two replicas that share the shards, and returns a client of the first and n names that the second serves.
func pair(t *testing.T, n int) (client leasev1.LeaseServiceClient, second *child, names []string) {
	t.Helper()
	etcd, _ := leasetest.Etcd(t)
	a, b := spawn(t, "a", etcd.Endpoint()), spawn(t, "b", etcd.Endpoint())
	leasetest.AwaitStatus(t, a.address, "two replicas share the shards", func(s *leasestatus.GetStatusResponse) bool {
		return len(s.GetReplicas()) == 2 && s.GetShards() == 8
	})
	client = leasev1.NewLeaseServiceClient(leasetest.Dial(t, a.address))
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprintf("n%d", i); ownerOf(t, client, name) == b.address {
			names = append(names, name)
		}
	}
	return client, b, names
}

// What happens to a hold that another replica serves is told at once, and not with the next heartbeat: here there is none.
func TestASessionHearsOfHoldsOfOtherReplicas(t *testing.T) {
	client, _, names := pair(t, 2)
	s := openSession(t, client, &leasev1.SessionOpen{})
	kept := s.granted(s.acquire(names[0], false)).GetToken()
	lost := s.granted(s.acquire(names[1], false)).GetToken()
	_, err := client.Revoke(t.Context(), &leasev1.RevokeRequest{Name: names[0], Reason: "maintenance", Deadline: durationpb.New(time.Minute)})
	require.NoError(t, err)
	asked := s.next().GetRevokeRequested()
	assert.Equal(t, kept, asked.GetToken())
	assert.Equal(t, "maintenance", asked.GetRevocation().GetReason())
	_, err = client.Revoke(t.Context(), &leasev1.RevokeRequest{Name: names[1], Reason: "now", Force: true})
	require.NoError(t, err)
	told := s.next().GetLost()
	assert.Equal(t, lost, told.GetToken())
	assert.Equal(t, leasev1.EndReason_END_REASON_REVOKED, told.GetReason())
	assert.Equal(t, "now", told.GetMessage())
}

// A replica that does not answer keeps no hold of others from being renewed: the answer names those that it has.
func TestAHeartbeatNamesWhatCouldNotBeRenewed(t *testing.T) {
	client, owner, names := pair(t, 1)
	here := ""
	for i := 0; here == ""; i++ {
		if name := fmt.Sprintf("n%d", i); ownerOf(t, client, name) == "" {
			here = name
		}
	}
	s := openSession(t, client, &leasev1.SessionOpen{Ttl: durationpb.New(2 * time.Second)})
	s.granted(s.acquire(here, false))
	token := s.granted(s.acquire(names[0], false)).GetToken()
	ack := s.heartbeat()
	require.True(t, ack.GetRenewed())
	require.Empty(t, ack.GetOthers())
	require.NoError(t, owner.Process.Signal(syscall.SIGSTOP))
	ack = s.heartbeat()
	require.True(t, ack.GetRenewed())
	require.Len(t, ack.GetOthers(), 1)
	assert.Equal(t, names[0], ack.GetOthers()[0].GetName())
	assert.Equal(t, token, ack.GetOthers()[0].GetToken())
	assert.LessOrEqual(t, ack.GetExpiresIn().AsDuration().Milliseconds(), ack.GetOthers()[0].GetExpiresInMillis()+1)
}

// Who waits for a lease keeps its place in line when another replica takes the lease over.
func TestTheLineMovesWithTheLease(t *testing.T) {
	client, owner, names := pair(t, 1)
	name := names[0]
	acquire(t, client, name, "holder", time.Minute)
	var want []string
	line := func() []string {
		got, err := client.Get(within(t, 10*time.Second), &leasev1.GetRequest{Name: name, IncludeQueue: true})
		require.NoError(t, err)
		var holders []string
		for _, w := range got.GetLease().GetQueue() {
			holders = append(holders, w.GetHolder())
		}
		return holders
	}
	s := openSession(t, client, &leasev1.SessionOpen{Holder: "session"})
	for i := range 6 {
		holder := fmt.Sprint("waiter-", i)
		if i == 3 {
			holder = "session"
			s.acquire(name, true)
		} else {
			go func() {
				// It waits until the test is over.
				_, _ = client.Acquire(within(t, time.Minute), &leasev1.AcquireRequest{Name: name, Holder: holder, Wait: &leasev1.Wait{}})
			}()
		}
		want = append(want, holder)
		require.Eventually(t, func() bool { return len(line()) == i+1 }, 10*time.Second, time.Millisecond)
	}
	require.Equal(t, want, line())
	require.NoError(t, owner.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool {
		return ownerOf(t, client, name) != owner.address && len(line()) == len(want)
	}, 30*time.Second, 10*time.Millisecond)
	assert.Equal(t, want, line())
}

// Messages that are sent together are handled in order, and their answers may come together.
func TestSessionBatches(t *testing.T) {
	client, _, names := pair(t, 2) // served elsewhere
	names = append(names, "here-or-there")
	stream, err := client.Session(within(t, time.Minute))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&leasev1.SessionRequest{Id: 1, Message: &leasev1.SessionRequest_Open{Open: &leasev1.SessionOpen{Batches: true}}}))
	opened, err := stream.Recv()
	require.NoError(t, err)
	require.True(t, opened.GetOpened().GetBatches())
	answers := map[uint64]*leasev1.SessionResponse{}
	ask := func(requests ...*leasev1.SessionRequest) {
		t.Helper()
		require.NoError(t, stream.Send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Batch{
			Batch: &leasev1.SessionRequestBatch{Requests: requests},
		}}))
		for missing := len(requests); missing > 0; {
			got, err := stream.Recv()
			require.NoError(t, err)
			all := []*leasev1.SessionResponse{got}
			if batch := got.GetBatch(); batch != nil {
				all = batch.GetResponses()
			}
			for _, r := range all {
				answers[r.GetId()] = r
				missing--
			}
		}
	}
	var requests []*leasev1.SessionRequest
	id := uint64(100)
	const many = 600 // more than are read at a time, and than go into one message
	for i := range many {
		id++
		name := names[i%len(names)]
		if i < len(names) {
			requests = append(requests, &leasev1.SessionRequest{Id: id, Message: &leasev1.SessionRequest_Acquire{Acquire: &leasev1.AcquireRequest{Name: name}}})
			continue
		}
		requests = append(requests, &leasev1.SessionRequest{Id: id, Message: &leasev1.SessionRequest_Get{Get: &leasev1.GetRequest{Name: name}}})
	}
	ask(requests[:len(names)]...)
	ask(requests[len(names):]...)
	require.Len(t, answers, many)
	for i, r := range requests {
		got := answers[r.GetId()]
		if i < len(names) {
			require.Positive(t, got.GetGranted().GetToken(), "%v", got)
			continue
		}
		token := answers[requests[i%len(names)].GetId()].GetGranted().GetToken()
		require.Equal(t, token, got.GetGot().GetLease().GetHolds()[0].GetToken(), "%v", got)
	}
	ask(&leasev1.SessionRequest{Id: 9000, Message: &leasev1.SessionRequest_Get{Get: &leasev1.GetRequest{Name: "../x"}}},
		&leasev1.SessionRequest{Id: 9001, Message: &leasev1.SessionRequest_Batch{}},
		&leasev1.SessionRequest{Id: 9002, Message: &leasev1.SessionRequest_Heartbeat{Heartbeat: &leasev1.SessionHeartbeat{}}})
	assert.Equal(t, int32(3), answers[9000].GetRefused().GetCode(), "INVALID_ARGUMENT")
	assert.Equal(t, int32(3), answers[9001].GetRefused().GetCode(), "a batch in a batch")
	assert.Positive(t, answers[9002].GetHeartbeatAck().GetExpiresIn().AsDuration())
}
