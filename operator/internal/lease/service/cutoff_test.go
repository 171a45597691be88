package service_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// A replica that can be reached, and cannot reach etcd, keeps nobody who would be served elsewhere: it ends sessions, watches of the shard map and
// waits, and says why.
func TestACutOffReplicaSendsItsClientsAway(t *testing.T) {
	etcd, _ := leasetest.Etcd(t)
	link := leasetest.NewLink(t, etcd.Endpoint())
	opts := leasetest.Options("cut-off")
	opts.EtcdEndpoints = []string{link.Address}
	replica := leasetest.Start(t, opts)
	client := leasev1.NewLeaseServiceClient(leasetest.Dial(t, replica.Address))
	ctx := within(t, time.Minute)
	acquire(t, client, "n", "one", time.Hour)

	session, err := client.Session(ctx)
	require.NoError(t, err)
	require.NoError(t, session.Send(&leasev1.SessionRequest{Id: 1, Message: &leasev1.SessionRequest_Open{Open: &leasev1.SessionOpen{}}}))
	_, err = session.Recv()
	require.NoError(t, err)
	shards, err := client.WatchShardMap(ctx, &leasev1.WatchShardMapRequest{})
	require.NoError(t, err)
	_, err = shards.Recv()
	require.NoError(t, err)
	ended := make(chan error, 3)
	go func() {
		for {
			if _, err := session.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()
	go func() {
		for {
			if _, err := shards.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()
	go func() {
		_, err := client.Acquire(ctx, &leasev1.AcquireRequest{Name: "n", Holder: "two", Wait: &leasev1.Wait{}})
		ended <- err
	}()
	require.Eventually(t, func() bool {
		got, err := client.Get(ctx, &leasev1.GetRequest{Name: "n"})
		return err == nil && got.GetLease().GetWaiters() == 1
	}, 10*time.Second, time.Millisecond)

	link.Cut()
	for range 3 {
		err := <-ended
		assert.Equal(t, codes.Unavailable, status.Code(err))
		assert.Equal(t, "STORE_UNAVAILABLE", reason(err))
		assert.Contains(t, status.Convert(err).Message(), "others may serve by now")
	}
	_, err = client.GetShardMap(ctx, &leasev1.GetShardMapRequest{})
	assert.Equal(t, "STORE_UNAVAILABLE", reason(err))
	shards, err = client.WatchShardMap(ctx, &leasev1.WatchShardMapRequest{})
	require.NoError(t, err)
	_, err = shards.Recv()
	assert.Equal(t, "STORE_UNAVAILABLE", reason(err), "nobody is given a map that may be another one by now")

	link.Restore()
	leasetest.AwaitStatus(t, replica.Address, "it is back", func(s *leasestatus.GetStatusResponse) bool { return s.GetReady() && s.GetShards() == 16 })
	_, err = client.GetShardMap(ctx, &leasev1.GetShardMapRequest{})
	require.NoError(t, err)
	got, err := client.Get(ctx, &leasev1.GetRequest{Name: "n"})
	require.NoError(t, err)
	assert.Zero(t, got.GetLease().GetWaiters(), "who was sent away does not wait here any more")
}
