package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
)

const (
	insistFirst = 20 * time.Millisecond
	insistMost  = time.Second
)

// committer commits the ops of all shards of one session, one batch at a time: whatever is queued while a
// batch is under way goes into the next one.
type committer struct {
	store   store.Store
	cursor  *store.Cursor
	metrics *Metrics
	// committed and lost are called without locks held.
	committed func(batch []store.BatchOp, revision int64)
	lost      func(shards []int)

	// trouble is why the batch under way could not be committed so far; nil while all is well.
	trouble atomic.Pointer[string]

	mu    sync.Mutex
	queue []store.BatchOp
	wake  chan struct{}
}

func newCommitter(s store.Store, cursor *store.Cursor, metrics *Metrics) *committer {
	return &committer{store: s, cursor: cursor, metrics: metrics, wake: make(chan struct{}, 1)}
}

// add queues ops. Two ops of one name are never queued at a time (core.Shard sees to that), so that no
// batch writes a key twice.
func (c *committer) add(ops ...store.BatchOp) {
	c.mu.Lock()
	c.queue = append(c.queue, ops...)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *committer) take() []store.BatchOp {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := store.Fits(c.queue)
	batch := slices.Clone(c.queue[:n])
	rest := copy(c.queue, c.queue[n:])
	clear(c.queue[rest:])
	c.queue = c.queue[:rest]
	return batch
}

// run commits until the context ends or the session is lost, and says why it stopped.
func (c *committer) run(ctx context.Context) error {
	for {
		batch := c.take()
		if len(batch) == 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-c.wake:
			}
			continue
		}
		if err := c.commit(ctx, batch); err != nil {
			return err
		}
	}
}

// insist sends a batch until its outcome is known.
func (c *committer) insist(ctx context.Context, batch []store.BatchOp) (int64, error) {
	for wait := insistFirst; ; wait = min(2*wait, insistMost) {
		done := c.metrics.commit(len(batch))
		revision, err := c.store.Commit(ctx, c.cursor, batch)
		done(err)
		var unknown *store.UnknownOutcomeError
		if !errors.As(err, &unknown) {
			c.trouble.Store(nil)
			return revision, err
		}
		why := err.Error()
		c.trouble.Store(&why)
		if !sleep(ctx, wait) {
			return 0, ctx.Err()
		}
	}
}

// discard takes the ops of lost claims out of a batch, and out of the queue: the shard may be claimed anew while they are
// there, and what comes after that must not share their fate.
func (c *committer) discard(batch []store.BatchOp, shards []int) []store.BatchOp {
	lost := map[store.Claim]bool{}
	for i := range batch {
		if slices.Contains(shards, batch[i].Shard) {
			lost[batch[i].Claim] = true
		}
	}
	dead := func(op store.BatchOp) bool { return lost[op.Claim] }
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = slices.DeleteFunc(c.queue, dead)
	return slices.DeleteFunc(batch, dead)
}

func (c *committer) commit(ctx context.Context, batch []store.BatchOp) error {
	for len(batch) > 0 {
		revision, err := c.insist(ctx, batch)
		var lost *store.ClaimsLostError
		if errors.As(err, &lost) {
			c.lost(lost.Shards)
			batch = c.discard(batch, lost.Shards)
			continue
		}
		if err != nil {
			return err
		}
		c.committed(batch, revision)
		return nil
	}
	return nil
}
