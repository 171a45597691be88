package service_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

func (s *session) getMany(names ...string) *leasev1.SessionResponse {
	s.t.Helper()
	id := s.send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_GetMany{GetMany: &leasev1.SessionGetMany{Names: names}}})
	return s.until(func(r *leasev1.SessionResponse) bool { return r.GetId() == id })
}

// Many leases are read by one message, wherever they are served, and each is shown as the call Get shows it.
func TestASessionReadsManyLeasesAtATime(t *testing.T) {
	client, _, there := pair(t, 2)
	var here []string
	for i := 0; len(here) < 2; i++ {
		if name := fmt.Sprintf("m%d", i); ownerOf(t, client, name) != ownerOf(t, client, there[0]) {
			here = append(here, name)
		}
	}
	s := openSession(t, client, &leasev1.SessionOpen{Holder: "reader"})
	var names []string
	for i, name := range []string{here[0], there[0]} {
		mode := leasev1.LeaseMode_LEASE_MODE_SHARED
		acquire := func(holder string) {
			_, err := client.Acquire(within(t, 10*time.Second), &leasev1.AcquireRequest{
				Name: name, Mode: mode, Holder: fmt.Sprint(holder, i), Ttl: durationpb.New(time.Minute),
			})
			require.NoError(t, err)
		}
		acquire("first")
		acquire("second")
		names = append(names, name)
	}
	names = append(names, here[1], there[1])
	got := s.getMany(names...).GetGotMany().GetLeases()
	require.Len(t, got, 4)
	for i, name := range names {
		want, err := client.Get(within(t, 10*time.Second), &leasev1.GetRequest{Name: name})
		require.NoError(t, err)
		holds := want.GetLease().GetHolds()
		assert.Equal(t, int32(len(holds)), got[i].GetHolds(), name)
		assert.Equal(t, want.GetLease().GetRevision(), got[i].GetRevision(), name)
		assert.Equal(t, want.GetLease().GetMode(), got[i].GetMode(), name)
		assert.Nil(t, got[i].GetRefused())
		if i > 1 {
			assert.Zero(t, got[i].GetToken(), "%s is free", name)
			continue
		}
		require.Len(t, holds, 2)
		assert.Equal(t, holds[1].GetToken(), got[i].GetToken(), name)
		assert.Equal(t, fmt.Sprint("second", i), got[i].GetHolder(), name)
		left := time.Duration(got[i].GetExpiresInMillis()) * time.Millisecond
		assert.True(t, left > 30*time.Second && left <= time.Minute, "%s lives for %s", name, left)
	}
}

// A read that follows an acknowledged change shows it, whatever else is under way.
func TestManyReadsAreLinearizable(t *testing.T) {
	replica := leasetest.Start(t, leasetest.Options("alone"))
	client := leasev1.NewLeaseServiceClient(leasetest.Dial(t, replica.Address))
	s := openSession(t, client, &leasev1.SessionOpen{})
	for range 200 {
		s.send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Batch{Batch: &leasev1.SessionRequestBatch{Requests: []*leasev1.SessionRequest{
			{Id: s.id + 100, Message: &leasev1.SessionRequest_Acquire{Acquire: &leasev1.AcquireRequest{Name: "a"}}},
			{Id: s.id + 101, Message: &leasev1.SessionRequest_GetMany{GetMany: &leasev1.SessionGetMany{Names: []string{"a", "free"}}}},
		}}}})
		token := s.until(func(r *leasev1.SessionResponse) bool { return r.GetGranted() != nil }).GetGranted().GetToken()
		got := s.getMany("a", "free").GetGotMany().GetLeases()
		require.Equal(t, token, got[0].GetToken())
		require.Zero(t, got[1].GetToken())
		released := s.send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Release{Release: &leasev1.ReleaseRequest{Name: "a", Token: token}}})
		s.until(func(r *leasev1.SessionResponse) bool { return r.GetId() == released })
		require.Zero(t, s.getMany("a").GetGotMany().GetLeases()[0].GetToken())
	}
}

func TestReadsOfManyAreValidated(t *testing.T) {
	replica := leasetest.Start(t, leasetest.Options("alone"))
	s := openSession(t, leasev1.NewLeaseServiceClient(leasetest.Dial(t, replica.Address)), &leasev1.SessionOpen{})
	for what, names := range map[string][]string{
		`names[1] "../b" has`: {"a", "../b", ".."}, "at most 1000 are allowed": make([]string, 1001),
	} {
		refused := s.getMany(names...).GetRefused()
		assert.Equal(t, int32(codes.InvalidArgument), refused.GetCode())
		assert.Contains(t, refused.GetMessage(), what)
	}
	assert.Empty(t, s.getMany().GetGotMany().GetLeases(), "nothing was asked for")
}

// What the codec lets through that is no UTF-8, and could be shown to nobody, the service refuses.
func TestTextIsUTF8(t *testing.T) {
	replica := leasetest.Start(t, leasetest.Options("alone"))
	conn, err := grpc.NewClient(replica.Address, append(lease.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	client := leasev1.NewLeaseServiceClient(conn)
	const bad = "\xff"
	for _, req := range []*leasev1.AcquireRequest{
		{Name: "a", Holder: bad},
		{Name: "a", RequestId: bad},
		{Name: bad},
		{Name: "a", Metadata: map[string]string{bad: "v"}},
		{Name: "a", Metadata: map[string]string{"k": bad}},
	} {
		_, err := client.Acquire(within(t, 10*time.Second), req)
		require.Equal(t, codes.InvalidArgument, status.Code(err), "%v: %v", req, err)
		require.NotEmpty(t, status.Convert(err).Details())
	}
	_, err = client.Revoke(within(t, 10*time.Second), &leasev1.RevokeRequest{Name: "a", Reason: bad, RequestedBy: bad})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	_, err = leasev1.NewElectionServiceClient(conn).Campaign(within(t, 10*time.Second), &leasev1.CampaignRequest{Name: "a", Candidate: bad})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	stream, err := client.Session(within(t, 10*time.Second))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Open{Open: &leasev1.SessionOpen{Holder: bad}}}))
	_, err = stream.Recv()
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}
