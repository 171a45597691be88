package server_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/internal/lease/clock"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// peer stands for a replica that serves a name, and whose answers get lost.
type peer struct {
	leasev1.UnimplementedLeaseServiceServer
	leasev1.UnimplementedElectionServiceServer

	mu      sync.Mutex
	holders map[int64]string // by token
	next    int64
	lose    int   // so many answers get lost
	release int64 // the hold that is released after the name was read
	value   []byte
}

// done is the answer to a call that has happened, if it does not get lost.
func (p *peer) done() error {
	if p.lose == 0 {
		return nil
	}
	p.lose--
	return status.Error(codes.Unavailable, "the connection broke")
}

// end ends a hold, and lets another holder have the name.
func (p *peer) end(token int64, next string) error {
	if _, ok := p.holders[token]; !ok {
		st, err := status.New(codes.NotFound, "not held").WithDetails(&errdetails.ErrorInfo{Reason: "LEASE_NOT_HELD", Domain: "lease.dist.system"})
		if err != nil {
			return err
		}
		return st.Err()
	}
	delete(p.holders, token)
	p.next++
	p.holders[p.next] = next
	return nil
}

func (p *peer) Get(_ context.Context, req *leasev1.GetRequest) (*leasev1.GetResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := &leasev1.Lease{Name: req.GetName()}
	for token := range p.next + 1 {
		if holder, ok := p.holders[token]; ok {
			out.Holds = append(out.Holds, &leasev1.Hold{Token: token, Holder: holder, Mode: leasev1.LeaseMode_LEASE_MODE_SHARED})
		}
	}
	delete(p.holders, p.release)
	return &leasev1.GetResponse{Lease: out}, nil
}

func (p *peer) Revoke(_ context.Context, req *leasev1.RevokeRequest) (*leasev1.RevokeResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	token := req.GetToken()
	for held := range p.holders {
		if token == 0 {
			token = held
		}
	}
	if err := p.end(token, "next"); err != nil {
		return nil, err
	}
	return &leasev1.RevokeResponse{Holds: []*leasev1.Hold{{Token: token, Value: p.value}}, Ended: true, Revision: p.next}, p.done()
}

func (p *peer) Transfer(_ context.Context, req *leasev1.TransferRequest) (*leasev1.TransferResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.end(req.GetToken(), req.GetTo()); err != nil {
		return nil, err
	}
	return &leasev1.TransferResponse{Leader: &leasev1.Leader{Candidate: req.GetTo(), Token: p.next}}, p.done()
}

// forwarder starts a replica that passes every call on to a peer.
func forwarder(t *testing.T, p *peer) *grpc.ClientConn {
	t.Helper()
	here, there := listen(t), listen(t)
	srv := grpc.NewServer()
	leasev1.RegisterLeaseServiceServer(srv, p)
	leasev1.RegisterElectionServiceServer(srv, p)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(there) // it ends with the test
	}()
	t.Cleanup(func() {
		srv.Stop()
		<-done
	})
	cluster := clusterOf(2, here.Addr().String(), there.Addr().String())
	for shard := range cluster.Claims {
		cluster.Claims[shard].Session, cluster.Assigned[shard] = 2, 2
	}
	replica(t, here, 1, cluster, clock.Now, nil)
	return dial(t, here.Addr().String())
}

// A revocation of all holds that is repeated, because its answer was lost, does not touch who was granted the name since.
func TestARepeatedRevocationEndsNobodyElsesHold(t *testing.T) {
	p := &peer{holders: map[int64]string{5: "one"}, next: 5, lose: 1}
	got, err := leasev1.NewLeaseServiceClient(forwarder(t, p)).Revoke(within(t), &leasev1.RevokeRequest{Name: "n", Force: true})
	require.NoError(t, err)
	assert.True(t, got.GetEnded())
	assert.Equal(t, map[int64]string{6: "next"}, p.holders)
}

// A hold that is over when its revocation is repeated may have been ended by that or by its TTL: it is not held, and nothing else is said.
func TestARepeatedRevocationClaimsNothing(t *testing.T) {
	p := &peer{holders: map[int64]string{5: "one"}, next: 5, lose: 1}
	client := leasev1.NewLeaseServiceClient(forwarder(t, p))
	_, err := client.Revoke(within(t), &leasev1.RevokeRequest{Name: "n", Token: 5, Force: true})
	assert.Equal(t, codes.NotFound, status.Code(err))
	assert.Equal(t, map[int64]string{6: "next"}, p.holders)
}

// A revocation of very many holds is answered in one message nevertheless.
func TestTheAnswerToARevocationOfAllIsBounded(t *testing.T) {
	const holds = 100
	p := &peer{holders: map[int64]string{}, next: 2 * holds, value: make([]byte, 64<<10)}
	for token := range int64(holds) {
		p.holders[token+1] = "one"
	}
	got, err := leasev1.NewLeaseServiceClient(forwarder(t, p)).Revoke(within(t), &leasev1.RevokeRequest{Name: "n", Force: true})
	require.NoError(t, err)
	assert.Len(t, got.GetHolds(), holds)
	assert.NotEmpty(t, got.GetHolds()[0].GetValue())
	assert.Empty(t, got.GetHolds()[holds-1].GetValue())
}

// A hold that is released meanwhile is no reason to leave the others.
func TestARevocationOfAllGoesOnBesideAHoldThatIsOver(t *testing.T) {
	p := &peer{holders: map[int64]string{5: "one", 6: "two"}, next: 6, release: 5}
	client := leasev1.NewLeaseServiceClient(forwarder(t, p))
	got, err := client.Revoke(within(t), &leasev1.RevokeRequest{Name: "n", Force: true})
	require.NoError(t, err)
	require.Len(t, got.GetHolds(), 1)
	assert.Equal(t, int64(6), got.GetHolds()[0].GetToken())
	assert.NotContains(t, p.holders, int64(6))

	_, err = client.Revoke(within(t), &leasev1.RevokeRequest{Name: "n", Token: 6})
	assert.Equal(t, codes.NotFound, status.Code(err), "one that is named must be there")
	clear(p.holders)
	_, err = client.Revoke(within(t), &leasev1.RevokeRequest{Name: "n"})
	assert.Equal(t, codes.NotFound, status.Code(err), "as must one of all")
}

// The same goes for a transfer.
func TestARepeatedTransferClaimsNothing(t *testing.T) {
	p := &peer{holders: map[int64]string{5: "one"}, next: 5, lose: 1}
	_, err := leasev1.NewElectionServiceClient(forwarder(t, p)).Transfer(within(t), &leasev1.TransferRequest{Name: "n", Token: 5, To: "two"})
	assert.Equal(t, codes.NotFound, status.Code(err))
	assert.Equal(t, map[int64]string{6: "two"}, p.holders)
}
