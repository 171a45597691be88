package protections_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
)

// lateRemoval loses the removals of claims on their way, until it is told to let them pass. It keeps one to arrive late.
type lateRemoval struct {
	store.Store
	mu   sync.Mutex
	pass bool
	late map[int]store.Claim
}

func (l *lateRemoval) Unclaim(ctx context.Context, shard int, claim store.Claim) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pass {
		return l.Store.Unclaim(ctx, shard, claim)
	}
	l.late[shard] = claim
	return errors.New("no answer")
}

// A claim whose removal got no answer, and that its owner wants to keep after all, is not used again: the removal may arrive yet, and
// would let another replica in while the owner serves.
func TestALateRemovalFindsNoClaimInUse(t *testing.T) {
	etcd, inner := leasetest.Etcd(t)
	var removals *lateRemoval
	old := start(t, "old", replicaOptions{client: inner, tamper: func(s store.Store) store.Store {
		removals = &lateRemoval{Store: s, late: map[int]store.Claim{}}
		return removals
	}})
	awaitShards(t, old)
	other := start(t, "other", replicaOptions{client: leasetest.Client(t, etcd.Endpoint())})
	old.await("it gave up half of its shards, and nobody heard", func() bool {
		removals.mu.Lock()
		defer removals.mu.Unlock()
		return len(removals.late) == shards/2 && old.Status().Shards == shards/2
	})
	other.end()
	old.await("the shards are assigned to it again", func() bool {
		for _, owner := range old.Cluster().Assigned {
			if owner != old.Session() {
				return false
			}
		}
		return true
	})
	removals.mu.Lock()
	removals.pass = true
	removals.mu.Unlock()
	awaitShards(t, old)
	require.Eventually(t, func() bool {
		c := old.Cluster()
		for shard := range removals.late {
			if c.Claims[shard].Session != old.Session() {
				return false
			}
		}
		return true
	}, patience, time.Millisecond)
	for shard, claim := range removals.late {
		require.NoError(t, removals.Store.Unclaim(t.Context(), shard, claim))
		claims, err := inner.Get(t.Context(), prefix+"cluster/claims/", clientv3.WithPrefix())
		require.NoError(t, err)
		require.Len(t, claims.Kvs, shards, "the late removal found a claim in use")
	}
}
