package lease_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

func TestElection(t *testing.T) {
	client := dial(t, leasetest.Start(t, leasetest.Options("alone")).Address)
	ctx, cancel := context.WithCancel(within(t, 60*time.Second))
	leaders := make(chan lease.Leader, 10)
	observed := make(chan error, 1)
	go func() {
		for leader, err := range client.Observe(ctx, "e") {
			if err != nil {
				observed <- err
				return
			}
			leaders <- leader
		}
	}()
	require.Empty(t, (<-leaders).Candidate)
	first, err := client.Campaign(ctx, "e", "a", lease.WithValue([]byte("1")))
	require.NoError(t, err)
	require.Equal(t, "a", (<-leaders).Candidate)
	require.NoError(t, first.Proclaim(ctx, []byte("2")))
	require.Equal(t, []byte("2"), (<-leaders).Value)
	require.Error(t, first.Transfer(ctx, "b"))
	require.NoError(t, first.Err(), "with nobody to take over, it goes on")

	next := make(chan *lease.Leadership, 1)
	go func() {
		l, err := client.Campaign(ctx, "e", "b")
		if err == nil {
			next <- l
		}
	}()
	require.Eventually(t, func() bool {
		got, err := client.Service().Get(ctx, &leasev1.GetRequest{Name: "e"})
		return err == nil && got.GetLease().GetWaiters() == 1
	}, 5*time.Second, 5*time.Millisecond)
	require.NoError(t, first.Transfer(ctx, "b"))
	require.ErrorIs(t, first.Err(), lease.ErrReleased)
	second := <-next
	require.Equal(t, "b", (<-leaders).Candidate)
	require.ErrorIs(t, first.Proclaim(ctx, nil), lease.ErrNotHeld)
	require.NoError(t, second.Release(ctx))
	require.Empty(t, (<-leaders).Candidate)
	cancel()
	require.Equal(t, codes.Canceled, status.Code(<-observed))
}

// The guarded server stands for any gRPC service whose writes need a live lease.
func TestGuardRefusesFormerHolders(t *testing.T) {
	client := dial(t, leasetest.Start(t, leasetest.Options("alone")).Address)
	guard := lease.NewGuard(client)
	server := grpc.NewServer(grpc.UnaryInterceptor(guard.Unary("writer")))
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	write := func(ctx context.Context) error {
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	}
	ctx := within(t, 30*time.Second)
	require.Equal(t, codes.FailedPrecondition, status.Code(write(ctx)), "without a lease")
	first, err := client.Acquire(ctx, "writer")
	require.NoError(t, err)
	require.NoError(t, write(first.Fenced(ctx)))
	require.NoError(t, first.Release(ctx))
	require.Equal(t, codes.FailedPrecondition, status.Code(write(first.Fenced(ctx))), "after the release")
	second, err := client.Acquire(ctx, "writer")
	require.NoError(t, err)
	require.NoError(t, write(second.Fenced(ctx)))
	require.Equal(t, codes.FailedPrecondition, status.Code(write(first.Fenced(ctx))), "with an old token")
	other, err := client.Acquire(ctx, "other")
	require.NoError(t, err)
	require.Equal(t, codes.FailedPrecondition, status.Code(write(other.Fenced(ctx))), "under another lease")
}
