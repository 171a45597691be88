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
	// After a batch with ops that nobody waits for, the next such may come after laterPause times as long as it took, but
	// after laterMost at most. So when very many leases expire together, the store is most of the time free for those who
	// wait, and still a hundred batches take no more than a second.
	laterPause = 2
	laterMost  = 6 * time.Millisecond
	// laterShare is how many of the ops somebody waits for go into a batch, when there are others whose time has come.
	laterShare = store.MaxBatchWrites / 2
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

	mu sync.Mutex
	// queue has the ops that somebody waits for, later the others.
	queue, later []store.BatchOp
	wake         chan struct{}

	// laterFrom is when ops of later may be taken again. It belongs to run.
	laterFrom time.Time
}

func newCommitter(s store.Store, cursor *store.Cursor, metrics *Metrics) *committer {
	return &committer{store: s, cursor: cursor, metrics: metrics, wake: make(chan struct{}, 1)}
}

// add queues ops. Two ops of one name are never queued at a time (core.Shard sees to that), so that no
// batch writes a key twice, and their order does not matter.
func (c *committer) add(later bool, ops ...store.BatchOp) {
	c.mu.Lock()
	if later {
		c.later = append(c.later, ops...)
	} else {
		c.queue = append(c.queue, ops...)
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// take returns the next batch. If there is none now but may be later, it says how long to wait.
func (c *committer) take(now time.Time) (batch []store.BatchOp, paced bool, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.later) == 0 || now.Before(c.laterFrom) {
		if len(c.queue) == 0 && len(c.later) > 0 {
			return nil, false, c.laterFrom.Sub(now)
		}
		return cut(&c.queue, store.Fits(c.queue)), false, 0
	}
	waited := min(len(c.queue), laterShare)
	candidates := slices.Concat(c.queue[:waited], c.later[:min(len(c.later), store.MaxBatchWrites)])
	n := store.Fits(candidates)
	return append(cut(&c.queue, min(n, waited)), cut(&c.later, max(0, n-waited))...), true, 0
}

// cut takes the first n ops out of a queue.
func cut(queue *[]store.BatchOp, n int) []store.BatchOp {
	ops := slices.Clone((*queue)[:n])
	*queue = slices.Delete(*queue, 0, n)
	return ops
}

// run commits until the context ends or the session is lost, and says why it stopped.
func (c *committer) run(ctx context.Context) error {
	for {
		began := time.Now()
		batch, paced, wait := c.take(began)
		if len(batch) == 0 {
			var timer <-chan time.Time
			if wait > 0 {
				timer = time.After(wait)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-c.wake:
			case <-timer:
			}
			continue
		}
		if err := c.commit(ctx, batch); err != nil {
			return err
		}
		if paced {
			ended := time.Now()
			c.laterFrom = ended.Add(min(laterPause*ended.Sub(began), laterMost))
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
	c.queue, c.later = slices.DeleteFunc(c.queue, dead), slices.DeleteFunc(c.later, dead)
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
