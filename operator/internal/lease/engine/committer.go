package engine

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
)

// committer commits the ops of all shards of one session, one batch at a time: whatever is queued while a
// batch is under way goes into the next one.
type committer struct {
	store   store.Store
	cursor  *store.Cursor
	metrics *Metrics
	// committed and lost are called without locks held.
	committed func(op *store.BatchOp, revision int64)
	lost      func(shards []int)

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

func (c *committer) commit(ctx context.Context, batch []store.BatchOp) error {
	for len(batch) > 0 {
		done := c.metrics.commit(len(batch))
		revision, err := c.store.Commit(ctx, c.cursor, batch)
		done(err)
		var lost *store.ClaimsLostError
		if errors.As(err, &lost) {
			c.lost(lost.Shards)
			batch = slices.DeleteFunc(batch, func(op store.BatchOp) bool { return slices.Contains(lost.Shards, op.Shard) })
			continue
		}
		if err != nil {
			return err
		}
		for i := range batch {
			c.committed(&batch[i], revision)
		}
		return nil
	}
	return nil
}
