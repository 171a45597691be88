package server_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/clock"
	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/server"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// The status tells the limits on single requests, and how often they were what was wrong.
func TestTheStatusTellsTheLimitsOfRequests(t *testing.T) {
	listener := listen(t)
	replica(t, listener, 1, clusterOf(1, listener.Addr().String()), clock.Now, func(o *server.Options) {
		o.MaxValue, o.TTLs = 10, server.TTLs{Min: 2 * time.Second, Max: time.Minute, Default: time.Minute}
	})
	conn := dial(t, listener.Addr().String())
	client := leasev1.NewLeaseServiceClient(conn)
	for _, bad := range []*leasev1.AcquireRequest{
		{Name: "n", Value: make([]byte, 11)},
		{Name: "n", Ttl: durationpb.New(time.Second)},
		{Name: "n", Ttl: durationpb.New(time.Hour)},
		{Name: "n", Ttl: durationpb.New(2 * time.Hour)},
	} {
		_, err := client.Acquire(within(t), bad)
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	}
	_, err := client.Acquire(within(t), &leasev1.AcquireRequest{Name: "n", Value: make([]byte, 10), Ttl: durationpb.New(2 * time.Second)})
	require.NoError(t, err)
	got, err := leasestatus.NewLeaseStatusServiceClient(conn).GetStatus(within(t), &leasestatus.GetStatusRequest{})
	require.NoError(t, err)
	found := map[string][2]int64{}
	for _, q := range got.GetQuotas() {
		found[q.GetName()] = [2]int64{q.GetLimit(), q.GetRefused()}
	}
	assert.Equal(t, [2]int64{10, 1}, found["value_bytes"])
	assert.Equal(t, [2]int64{2, 1}, found["ttl_min_seconds"])
	assert.Equal(t, [2]int64{60, 2}, found["ttl_max_seconds"])
	for _, name := range []string{"leases", "waiters", "waiters_per_name", "rate"} {
		assert.Contains(t, found, name)
	}
}

// Who says that it has waited elsewhere is believed as far as that can be: right after a change of owner, and from a replica.
func TestWaitsElsewhereAreBelievedAsFarAsTheyCanBe(t *testing.T) {
	const patience, later, claimed = 10 * time.Second, 20 * time.Minute, 10 * time.Hour
	var ahead atomic.Int64
	listener := listen(t)
	replica(t, listener, 1, clusterOf(1, listener.Addr().String()), func() core.Instant { return clock.Now().Add(time.Duration(ahead.Load())) },
		func(o *server.Options) { o.Patience = patience })
	client := leasev1.NewLeaseServiceClient(dial(t, listener.Addr().String()))
	// waited has a request wait in line, and returns how long it is taken to have waited.
	waited := func(ctx context.Context, name string) time.Duration {
		_, err := client.Acquire(ctx, &leasev1.AcquireRequest{Name: name, Holder: "holder", Ttl: durationpb.New(time.Hour)})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			// It waits until it is cancelled.
			_, _ = client.Acquire(ctx, &leasev1.AcquireRequest{Name: name, Holder: "waiter", Wait: &leasev1.Wait{Waited: durationpb.New(claimed)}})
		}()
		var line []*leasev1.Waiter
		require.Eventually(t, func() bool {
			got, err := client.Get(within(t), &leasev1.GetRequest{Name: name, IncludeQueue: true})
			line = got.GetLease().GetQueue()
			return err == nil && len(line) == 1
		}, 30*time.Second, time.Millisecond)
		cancel()
		<-done
		return line[0].GetWaited().AsDuration()
	}
	assert.GreaterOrEqual(t, waited(within(t), "early"), claimed, "those who come back come in any order")
	ahead.Store(int64(later))
	got := waited(within(t), "late")
	assert.GreaterOrEqual(t, got, later)
	assert.Less(t, got, later+time.Hour, "nobody has waited for longer than the owner has served")
	relayed := metadata.AppendToOutgoingContext(within(t), "holdfast-forwarded", "1")
	assert.GreaterOrEqual(t, waited(relayed, "relayed"), claimed, "a replica has looked at that")
}
