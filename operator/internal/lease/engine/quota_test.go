package engine

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
)

// bench is an engine that serves all shards, whose clock and store are the test's.
type bench struct {
	*Engine

	now       core.Instant
	session   *session
	revision  int64
	committer *committer
}

func newBench(t *testing.T, limits Limits) *bench {
	t.Helper()
	const shards = 4
	b := &bench{}
	b.Engine = New(Options{
		Clock: func() core.Instant { return b.now }, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Limits: limits,
		SessionTTL: 5 * time.Second,
	})
	b.committer = newCommitter(nil, nil, b.metrics, b.opts.Log)
	b.session = &session{id: 1, ttl: 5 * time.Second, committer: b.committer}
	b.session.renewed(b.now)
	b.Engine.session.Store(b.session)
	slots := make([]slot, shards)
	b.slots.Store(&slots)
	for i := range slots {
		slots[i].index = i
		slots[i].take(b.Engine, b.session, store.Claim{Session: 1, Revision: int64(i + 1)}, core.NewShard(b.now, b.epoch, nil))
	}
	return b
}

// commit commits what is queued, and what follows from that.
func (b *bench) commit() {
	slots := b.table()
	for batch, _, _ := b.committer.take(time.Now()); len(batch) > 0; batch, _, _ = b.committer.take(time.Now()) {
		b.revision++
		for i := range batch {
			for _, wake := range slots[batch[i].Shard].committed(b.Engine, &batch[i], b.now, b.revision, nil) {
				wake()
			}
		}
	}
}

func (b *bench) acquire(t *testing.T, name, id string, mode core.Mode, wait bool) (replies, error) {
	t.Helper()
	to := make(replies, 1)
	_, err := b.StartAcquire(b.now, core.AcquireRequest{Name: name, RequestID: id, Mode: mode, TTL: time.Hour, Wait: wait}, to)
	return to, err
}

// outcome counts who was granted and who was refused because of a limit; the others wait.
func outcome(t *testing.T, asked []replies) (granted []core.Grant, refused int) {
	t.Helper()
	for _, to := range asked {
		select {
		case r := <-to:
			if r.Err == nil {
				granted = append(granted, r.Result.(core.Grant))
				continue
			}
			var quota *QuotaError
			require.ErrorAs(t, r.Err, &quota)
			assert.Equal(t, quotaLeases, quota.Quota)
			refused++
		default:
		}
	}
	return granted, refused
}

// However many tries are made before the first of them is committed, there are never more leases than the limit says.
func TestTheLimitCountsWhatIsBeingCommitted(t *testing.T) {
	b := newBench(t, Limits{Leases: 3})
	var asked []replies
	refused := 0
	for i := range 10 {
		to, err := b.acquire(t, fmt.Sprint("n", i), "r", core.Exclusive, false)
		if err != nil {
			refused++
			continue
		}
		asked = append(asked, to)
	}
	b.commit()
	granted, late := outcome(t, asked)
	assert.Len(t, granted, 3)
	assert.Equal(t, 7, refused+late)
	assert.Equal(t, int64(3), b.holds.Load())

	_, err := b.StartRelease(b.now, "n0", granted[0].Hold.Token, make(replies, 1))
	require.NoError(t, err)
	b.commit()
	to, err := b.acquire(t, "again", "r", core.Exclusive, false)
	require.NoError(t, err)
	b.commit()
	granted, _ = outcome(t, []replies{to})
	assert.Len(t, granted, 1, "a place is free again")
	assert.Equal(t, b.holds.Load(), b.promised.Load())
}

// Who was let in to wait in line, as the place of a hold is one hold's, is not granted beyond the limit with all the others.
func TestTheLimitCountsWhoHasWaited(t *testing.T) {
	b := newBench(t, Limits{Leases: 3})
	first, err := b.acquire(t, "n", "first", core.Exclusive, false)
	require.NoError(t, err)
	b.commit()
	var asked []replies
	for i := range 8 {
		to, err := b.acquire(t, "n", fmt.Sprint("reader", i), core.Shared, true)
		require.NoError(t, err)
		asked = append(asked, to)
	}
	granted, _ := outcome(t, []replies{first})
	_, err = b.StartRelease(b.now, "n", granted[0].Hold.Token, make(replies, 1))
	require.NoError(t, err)
	b.commit()
	granted, refused := outcome(t, asked)
	assert.Len(t, granted, 3)
	assert.Equal(t, 5, refused, "and nobody waits for what will not come")
	assert.Equal(t, int64(3), b.holds.Load())
	assert.Equal(t, int64(3), b.promised.Load())
	assert.Equal(t, int64(5), b.limiter.refused[0].Load())
	b.table()[core.ShardOf("n", 4)].drop(b.Engine)
	assert.Zero(t, b.promised.Load())
}
