package service_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/internal/lease/service"
	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

const (
	stormLasts = 3 * time.Second
	// stormCallers is how many want something of the peer that is away, all the time.
	stormCallers = 50
	// stormMost is how often it may be connected to: the back-offs of 50 to 100 ms and more allow for some ten.
	stormMost = 20
)

// While a peer is away, whoever needs it tries to reach it again, at a pace that does not depend on how many calls want to go there, and gives up
// every connection that leads nowhere.
func TestAPeerThatIsAwayIsNotStormed(t *testing.T) {
	for how, silent := range map[string]bool{"it closes connections": false, "it says nothing": true} {
		for who, storm := range map[string]func(*testing.T, *leasetest.Away){
			"a client": stormByClient, "a replica at another": stormByPeer, "a replica at etcd": stormAtEtcd,
		} {
			t.Run(who+", "+how, func(t *testing.T) {
				t.Parallel()
				away := leasetest.NewAway(t, silent)
				storm(t, away)
				tried := away.Tried()
				t.Logf("%d connections in %s", tried, stormLasts)
				assert.Positive(t, tried)
				assert.LessOrEqual(t, tried, stormMost)
			})
		}
	}
}

// callers call over and over until the time is over.
func callers(t *testing.T, call func(ctx context.Context, i int)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stormLasts)
	defer cancel()
	var wg sync.WaitGroup
	for i := range stormCallers {
		wg.Go(func() {
			for ctx.Err() == nil {
				one, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
				call(one, i)
				cancel()
			}
		})
	}
	wg.Wait()
}

func stormByClient(t *testing.T, away *leasetest.Away) {
	client, err := lease.Dial(away.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { assert.NoError(t, client.Close()) }()
	callers(t, func(ctx context.Context, i int) {
		if i%5 == 0 {
			_, err := client.NewSession(ctx)
			assert.Error(t, err)
			return
		}
		_, err := client.Acquire(ctx, fmt.Sprint(i))
		assert.Error(t, err)
	})
}

func stormByPeer(t *testing.T, away *leasetest.Away) {
	etcd, _ := leasetest.Etcd(t)
	opts := leasetest.Options("a")
	opts.EtcdEndpoints = []string{etcd.Endpoint()}
	other := opts
	other.Name, other.Advertise = "b", away.Address
	replica := leasetest.Start(t, opts)
	leasetest.Start(t, other)
	calls := leasev1.NewLeaseServiceClient(leasetest.Dial(t, replica.Address))
	callers(t, func(ctx context.Context, i int) {
		_, _ = calls.Get(ctx, &leasev1.GetRequest{Name: fmt.Sprint("n", i)}) // some names are served here
	})
}

func stormAtEtcd(t *testing.T, away *leasetest.Away) {
	opts := leasetest.Options("a")
	opts.EtcdEndpoints = []string{"http://" + away.Address}
	ctx, stop := context.WithTimeout(t.Context(), stormLasts)
	defer stop()
	require.NoError(t, service.Run(ctx, opts))
}
