package service_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/embedded"
	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// A replica whose link to etcd is cut must stop answering before another one serves its shards, although it cannot know when
// that happens. It is asked directly, so that it cannot forward.
func TestADeposedOwnerStopsInTime(t *testing.T) {
	etcd, _ := leasetest.Etcd(t)
	link := leasetest.NewLink(t, etcd.Endpoint())
	cutOff := leasetest.Options("cut-off")
	cutOff.EtcdEndpoints = []string{link.Address}
	old := leasetest.Start(t, cutOff)
	oldClient := leasev1.NewLeaseServiceClient(leasetest.Dial(t, old.Address))
	other := leasetest.Options("other")
	other.EtcdEndpoints = []string{etcd.Endpoint()}
	next := leasetest.Start(t, other)
	nextClient := leasev1.NewLeaseServiceClient(leasetest.Dial(t, next.Address))
	// Find a name that is still served by the first replica.
	name := ""
	for i := 0; name == ""; i++ {
		candidate := fmt.Sprintf("n%d", i)
		if ownerOf(t, nextClient, candidate) == old.Address {
			name = candidate
		}
	}
	held := acquire(t, nextClient, name, "one", time.Minute)

	link.Cut()
	cut := time.Now()
	direct := metadata.AppendToOutgoingContext(t.Context(), "holdfast-forwarded", "1")
	keep := &leasev1.KeepAliveRequest{Name: name, Token: held.GetToken()}
	var mu sync.Mutex
	var lastOld time.Time // when the last keepalive was sent that the old owner acknowledged
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			sent := time.Now()
			if _, err := oldClient.KeepAlive(direct, keep); err == nil {
				mu.Lock()
				lastOld = sent
				mu.Unlock()
			} else {
				assert.Equal(t, "STORE_UNAVAILABLE", reasonOrMoved(err))
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	var firstNew time.Time // when the first answer of the new owner arrived
	require.Eventually(t, func() bool {
		_, err := nextClient.KeepAlive(direct, keep)
		firstNew = time.Now()
		return err == nil
	}, 15*time.Second, time.Millisecond)
	// The old owner is asked for a while longer: it must not answer now.
	select {
	case <-time.After(time.Second):
	case <-t.Context().Done():
	}
	close(stop)
	wg.Wait()
	require.False(t, lastOld.IsZero(), "the old owner went on for a while")
	assert.Less(t, lastOld, firstNew)
	assert.Less(t, lastOld.Sub(cut), 2*time.Second, "and stopped within the session TTL")
	t.Logf("the old owner answered for %s after the cut; the new one from %s on", lastOld.Sub(cut), firstNew.Sub(cut))

	link.Restore()
	leasetest.AwaitStatus(t, old.Address, "the old owner is back", func(s *leasestatus.GetStatusResponse) bool {
		return s.GetReady() && s.GetShards() == 8
	})
	_, err := oldClient.KeepAlive(t.Context(), keep)
	require.NoError(t, err)
}

// reasonOrMoved folds the two ways in which a deposed owner refuses: it is not certain, or knows already that it lost its shards.
func reasonOrMoved(err error) string {
	if r := reason(err); r != "NOT_OWNER" {
		return r
	}
	return "STORE_UNAVAILABLE"
}

// Many leases that expire together cost few transactions and do not hold up others.
func TestAMassExpiryIsCheap(t *testing.T) {
	const leases = 2000
	etcd, inner := leasetest.Etcd(t)
	opts := leasetest.Options("alone")
	opts.EtcdEndpoints, opts.Shards = []string{etcd.Endpoint()}, 64
	replica := leasetest.Start(t, opts)
	conn := leasetest.Dial(t, replica.Address)
	client := leasev1.NewLeaseServiceClient(conn)
	var wg sync.WaitGroup
	for w := range 100 {
		wg.Go(func() {
			for i := range leases / 100 {
				_, err := client.Acquire(t.Context(), &leasev1.AcquireRequest{
					Name: fmt.Sprintf("mass/%d/%d", w, i), Ttl: durationpb.New(6 * time.Second),
				})
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	before, err := inner.Status(t.Context(), "")
	require.NoError(t, err)
	leasetest.AwaitStatus(t, replica.Address, "all have expired", func(s *leasestatus.GetStatusResponse) bool { return s.GetActiveLeases() == 0 })
	after, err := inner.Status(t.Context(), "")
	require.NoError(t, err)
	entries := after.RaftIndex - before.RaftIndex
	assert.Less(t, entries, uint64(leases/20), "raft entries for %d expiries", leases)
	t.Logf("%d leases expired in %d raft entries", leases, entries)
}

// When etcd runs out of space, calls get an error that says so, and the service goes on by itself when there is space again.
func TestEtcdOutOfSpace(t *testing.T) {
	etcd, _ := leasetest.EtcdWith(t, embedded.Options{QuotaBytes: 2 << 20})
	raw := leasetest.Client(t, etcd.Endpoint())
	opts := leasetest.Options("alone")
	opts.EtcdEndpoints = []string{etcd.Endpoint()}
	replica := leasetest.Start(t, opts)
	client := leasev1.NewLeaseServiceClient(leasetest.Dial(t, replica.Address))
	held := acquire(t, client, "held", "one", time.Minute)

	large := strings.Repeat("x", 256<<10)
	for i := 0; ; i++ {
		if _, err := raw.Put(t.Context(), "filler", large); err != nil {
			require.ErrorIs(t, err, rpctypes.ErrNoSpace)
			break
		}
		require.Less(t, i, 100)
	}
	var refused error
	require.Eventually(t, func() bool {
		_, refused = client.Acquire(within(t, 300*time.Millisecond), &leasev1.AcquireRequest{Name: "new"})
		return reason(refused) == "STORE_UNAVAILABLE"
	}, 10*time.Second, 10*time.Millisecond)
	assert.Contains(t, status.Convert(refused).Message(), "database space exceeded")
	_, err := client.KeepAlive(t.Context(), &leasev1.KeepAliveRequest{Name: "held", Token: held.GetToken()})
	require.NoError(t, err, "what is held is kept")

	got, err := raw.Delete(t.Context(), "filler")
	require.NoError(t, err)
	_, err = raw.Compact(t.Context(), got.Header.GetRevision(), clientv3.WithCompactPhysical())
	require.NoError(t, err)
	_, err = raw.Defragment(t.Context(), etcd.Endpoint())
	require.NoError(t, err)
	_, err = raw.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := client.Acquire(within(t, 5*time.Second), &leasev1.AcquireRequest{Name: "newer"})
		return err == nil
	}, 20*time.Second, 50*time.Millisecond)
}

// Somebody deletes the claims in the store: the service must notice by itself, claim anew, and lose no lease.
func TestClaimsTakenAwayAreClaimedAnew(t *testing.T) {
	etcd, raw := leasetest.Etcd(t)
	opts := leasetest.Options("alone")
	opts.EtcdEndpoints, opts.Log = []string{etcd.Endpoint()}, io.Discard
	replica := leasetest.Start(t, opts)
	client := leasev1.NewLeaseServiceClient(leasetest.Dial(t, replica.Address))
	held := acquire(t, client, "n", "one", time.Minute)
	deleted, err := raw.Delete(t.Context(), "/test/cluster/claims/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Equal(t, int64(16), deleted.Deleted)
	require.Eventually(t, func() bool {
		got, err := raw.Get(t.Context(), "/test/cluster/claims/", clientv3.WithPrefix())
		return err == nil && len(got.Kvs) == 16
	}, 10*time.Second, 10*time.Millisecond)
	_, err = client.KeepAlive(within(t, 10*time.Second), &leasev1.KeepAliveRequest{Name: "n", Token: held.GetToken()})
	require.NoError(t, err)
	assert.Greater(t, acquire(t, client, "m", "one", time.Minute).GetToken(), held.GetToken())
}
