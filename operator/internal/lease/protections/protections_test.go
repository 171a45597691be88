package protections_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-io/holdfast/operator/internal/lease/clock"
	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
	"github.com/holdfast-io/holdfast/test/robustness/history"
)

// believing takes every renewal of the session for a success.
type believing struct{ store.Store }

func (b believing) KeepSession(ctx context.Context, id store.SessionID) error {
	_ = b.Store.KeepSession(ctx, id) // this is what the scenario is about
	return nil
}

// An owner that is cut off from the store stops answering before somebody else serves its shards. Its holder goes on asking
// it, and the next one asks the next owner.
func TestTheSessionDeadline(t *testing.T) {
	withAndWithout(t, func(t *testing.T, protected bool) *history.Recorder {
		opts := replicaOptions{tamper: func(s store.Store) store.Store { return believing{s} }}
		if protected {
			opts.tamper = nil
		}
		return deposed(t, opts)
	})
}

// The margin of the deadline is for clocks that are a tenth too slow, not for one that runs at less than half the rate.
func TestTheClockMargin(t *testing.T) {
	withAndWithout(t, func(t *testing.T, protected bool) *history.Recorder {
		began := clock.Now()
		rate := 0.4
		if protected {
			rate = 0.9
		}
		return deposed(t, replicaOptions{clock: func() core.Instant {
			return began + core.Instant(float64(clock.Now()-began)*rate)
		}})
	})
}

// deposed cuts an owner off from etcd while its holder keeps a lease alive there, until the next owner has granted it.
func deposed(t *testing.T, opts replicaOptions) *history.Recorder {
	etcd, inner := leasetest.Etcd(t)
	link, cut := linkedClient(t, etcd.Endpoint())
	opts.client = cut
	old := start(t, "old", opts)
	next := start(t, "next", replicaOptions{client: inner})
	awaitShards(t, old, next)
	require.Eventually(t, func() bool { return old.Status().Shards == shards/2 }, patience, time.Millisecond)
	name := old.nameAt()
	rec, one, two := clients(600 * time.Millisecond)
	token, err := one.acquire(old, name)
	require.NoError(t, err)
	stop := one.keepUntil(old, name, token)
	link.Cut()
	two.acquireSoon(next, name)
	stop()
	_ = one.keepAlive(old, name, token) // what it says is in the history
	return rec
}

// forgetful loads holds as if their TTL had passed.
type forgetful struct{ store.Store }

func (f forgetful) Load(ctx context.Context, shard int, claim store.Claim) ([]core.Record, error) {
	records, err := f.Store.Load(ctx, shard, claim)
	for i := range records {
		records[i].Hold.TTL = time.Millisecond
	}
	return records, err
}

// A new owner cannot know of the last keepalives, and serves every hold its whole TTL.
func TestTheFullTTLAfterAFailover(t *testing.T) {
	withAndWithout(t, func(t *testing.T, protected bool) *history.Recorder {
		_, inner := leasetest.Etcd(t)
		opts := replicaOptions{client: inner}
		old := start(t, "old", opts)
		if !protected {
			opts.tamper = func(s store.Store) store.Store { return forgetful{s} }
		}
		next := start(t, "next", opts)
		awaitShards(t, old, next)
		require.Eventually(t, func() bool { return old.Status().Shards == shards/2 }, patience, time.Millisecond)
		name := old.nameAt()
		rec, one, two := clients(3 * time.Second)
		token, err := one.acquire(old, name)
		require.NoError(t, err)
		require.NoError(t, one.keepAlive(old, name, token))
		old.end()
		two.acquireSoon(next, name)
		return rec
	})
}

// frozen passes no state of the cluster on once it is frozen.
type frozen struct {
	store.Store
	mu     *sync.Mutex
	frozen *bool
}

func (f frozen) WatchCluster(ctx context.Context, shards int, pass func(*store.Cluster)) error {
	return f.Store.WatchCluster(ctx, shards, func(c *store.Cluster) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !*f.frozen {
			pass(c)
		}
	})
}

// An owner whose session lives, and that has not heard yet that a shard is somebody else's, cannot grant anything in it: whoever claims
// it sees to that.
func TestTheFenceOfAClaim(t *testing.T) {
	withAndWithout(t, func(t *testing.T, protected bool) *history.Recorder {
		etcd, inner := leasetest.Etcd(t)
		leader := start(t, "leader", replicaOptions{client: inner})
		client := leasetest.Client(t, etcd.Endpoint())
		if !protected {
			client.KV = &carelessKV{KV: client.KV, spare: prefix + "commits/"}
		}
		var mu sync.Mutex
		var deaf bool
		old := start(t, "old", replicaOptions{client: leasetest.Client(t, etcd.Endpoint()), tamper: func(s store.Store) store.Store { return frozen{s, &mu, &deaf} }})
		require.Eventually(t, func() bool { return old.Status().Shards == shards/2 }, patience, time.Millisecond)
		mu.Lock()
		deaf = true
		mu.Unlock()
		leader.await("it leads", func() bool { return leader.Status().Leading })
		next := start(t, "next", replicaOptions{client: client})
		// Somebody takes away the old owner's claims of what the next one shall have.
		shard := -1
		next.await("a shard of the old owner is assigned to the next", func() bool {
			c := next.Cluster()
			for i := range c.Claims {
				if c.Claims[i].Session == old.Session() && c.Assigned[i] == next.Session() {
					shard = i
				}
			}
			return shard >= 0
		})
		_, err := inner.Delete(t.Context(), prefix+"cluster/claims/000"+string(rune('0'+shard)))
		require.NoError(t, err)
		next.await("it serves", func() bool { return next.Status().Shards > 0 })
		name := ""
		for i := 0; name == ""; i++ {
			if candidate := strings.Repeat("x", i+1); core.ShardOf(candidate, shards) == shard && next.Serves(candidate) {
				name = candidate
			}
		}
		rec, one, two := clients(5 * time.Second)
		two.acquireSoon(next, name)
		_, err = one.acquire(old, name)
		require.Equal(t, protected, err != nil, "the old owner's answer is %v", err)
		return rec
	})
}

// carelessKV leaves comparisons of some keys out of the transactions that commit batches, and deletions of some keys out of all. It can also
// repeat a batch.
type carelessKV struct {
	clientv3.KV
	// skip begins the keys that are not compared, spare those that are not deleted; empty: all are.
	skip, spare string
	mu          sync.Mutex
	last        func() (*clientv3.TxnResponse, error)
}

func (k *carelessKV) Txn(ctx context.Context) clientv3.Txn {
	return &carelessTxn{Txn: k.KV.Txn(ctx), kv: k}
}

// batch returns a function that sends the batch committed last once more, as a copy that was delayed in the network.
func (k *carelessKV) batch() func() (*clientv3.TxnResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

type carelessTxn struct {
	clientv3.Txn
	kv       *carelessKV
	batch    bool
	compares []clientv3.Cmp
	then     []clientv3.Op
}

func (c *carelessTxn) If(compares ...clientv3.Cmp) clientv3.Txn {
	c.batch = strings.HasPrefix(string(compares[0].KeyBytes()), prefix+"commits/")
	for _, cmp := range compares {
		if !c.batch || c.kv.skip == "" || !strings.HasPrefix(string(cmp.KeyBytes()), c.kv.skip) {
			c.compares = append(c.compares, cmp)
		}
	}
	c.Txn = c.Txn.If(c.compares...)
	return c
}

func (c *carelessTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	c.then = slices.DeleteFunc(ops, func(op clientv3.Op) bool {
		return c.kv.spare != "" && op.IsDelete() && strings.HasPrefix(string(op.KeyBytes()), c.kv.spare)
	})
	c.Txn = c.Txn.Then(c.then...)
	return c
}

func (c *carelessTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	c.Txn = c.Txn.Else(ops...)
	return c
}

func (c *carelessTxn) Commit() (*clientv3.TxnResponse, error) {
	if !c.batch {
		return c.Txn.Commit()
	}
	c.kv.mu.Lock()
	c.kv.last = func() (*clientv3.TxnResponse, error) {
		return c.kv.KV.Txn(context.Background()).If(c.compares...).Then(c.then...).Commit()
	}
	c.kv.mu.Unlock()
	return c.Txn.Commit()
}

// A batch that was sent twice, because its answer did not come, and whose first copy was held up in the network, changes nothing
// when that arrives after later batches: here it would put a released hold in the place of the present one.
func TestTheJournalKeyCompare(t *testing.T) {
	withAndWithout(t, func(t *testing.T, protected bool) *history.Recorder {
		etcd, inner := leasetest.Etcd(t)
		kv := &carelessKV{KV: inner.KV}
		if !protected {
			kv.skip = prefix + "journal/"
		}
		inner.KV = kv
		old := start(t, "old", replicaOptions{client: inner})
		awaitShards(t, old)
		name := old.nameAt()
		rec, one, two := clients(5 * time.Second)
		token, err := one.acquire(old, name)
		require.NoError(t, err)
		again := kv.batch()
		one.release(old, name, token)
		token, err = two.acquire(old, name)
		require.NoError(t, err)
		resp, err := again()
		require.NoError(t, err)
		require.NotEqual(t, protected, resp.Succeeded)
		next := start(t, "next", replicaOptions{client: leasetest.Client(t, etcd.Endpoint())})
		old.end()
		awaitShards(t, next)
		err = two.keepAlive(next, name, token)
		require.Equal(t, protected, err == nil)
		return rec
	})
}
