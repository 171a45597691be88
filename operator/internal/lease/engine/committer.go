package engine

import (
	"context"
	"errors"
	"log/slog"
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
	// wait, and still ten thousand end within a second.
	laterPause = 8
	laterMost  = 25 * time.Millisecond
	// laterShare is how many of the ops somebody waits for go into a batch, when there are others whose time has come.
	laterShare = store.MaxBatchWrites / 2
	// laterBatch is how many of those others go into one batch.
	laterBatch = store.MaxBatchWrites / 2
)

// committer commits the ops of all shards of one session, one batch at a time: whatever is queued while a
// batch is under way goes into the next one.
type committer struct {
	store   store.Store
	cursor  *store.Cursor
	metrics *Metrics
	log     *slog.Logger
	// committed is called without locks held.
	committed func(batch []store.BatchOp, revision int64)
	// refused is called, likewise, for an op that the store will never take.
	refused func(op *store.BatchOp, err error)

	// trouble is why the batch under way could not be committed so far; nil while all is well.
	trouble atomic.Pointer[string]

	mu sync.Mutex
	// queue has the ops that somebody waits for, later the others.
	queue, later []store.BatchOp
	// settling are the shards to settle before they are given up.
	settling []settling
	wake     chan struct{}

	// enough is how many ops must be queued before run wants to know of more; 0: it wants to know of each.
	enough int

	// laterFrom is when ops of later may be taken again. It and gatherer belong to run.
	laterFrom time.Time
	gatherer  gatherer
}

// settling is a shard to settle.
type settling struct {
	shard int
	claim store.Claim
	done  chan struct{}
}

func newCommitter(s store.Store, cursor *store.Cursor, metrics *Metrics, log *slog.Logger) *committer {
	return &committer{store: s, cursor: cursor, metrics: metrics, log: log, wake: make(chan struct{}, 1)}
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
	rouse := later || len(c.queue) >= c.enough
	c.mu.Unlock()
	if rouse {
		c.rouse()
	}
}

func (c *committer) rouse() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// settle settles a shard of which nothing is in flight, and returns when that is done or the context ends.
func (c *committer) settle(ctx context.Context, shard int, claim store.Claim) error {
	s := settling{shard: shard, claim: claim, done: make(chan struct{})}
	c.mu.Lock()
	c.settling = append(c.settling, s)
	c.mu.Unlock()
	c.rouse()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settleAll settles the shards that wait for it. Only errors that trying again cannot help are returned.
func (c *committer) settleAll(ctx context.Context) error {
	c.mu.Lock()
	shards := c.settling
	c.settling = nil
	c.mu.Unlock()
	for _, s := range shards {
		for wait := insistFirst; ; wait = min(2*wait, insistMost) {
			attempt, cancel := context.WithTimeout(ctx, storeTimeout)
			err := c.store.Settle(attempt, c.cursor, s.shard, s.claim)
			cancel()
			if err == nil {
				c.trouble.Store(nil)
				close(s.done)
				break
			}
			if errors.Is(err, store.ErrSessionLost) {
				return err
			}
			c.log.Warn("a shard is not settled yet", "shard", s.shard, "error", err)
			why := err.Error()
			c.trouble.Store(&why) // nothing can be committed meanwhile
			if !sleep(ctx, wait) {
				return ctx.Err()
			}
		}
	}
	return nil
}

// waiting is how many ops are queued that somebody waits for.
func (c *committer) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue)
}

// gather waits a moment for those whose ops were committed just now, if something is queued and they use to be back soon: then their next
// ops go along.
func (c *committer) gather(ctx context.Context) {
	c.mu.Lock()
	queued := len(c.queue)
	enough, wait := c.gatherer.plan(queued, time.Now())
	if enough > queued {
		c.enough = enough
	}
	c.mu.Unlock()
	if enough <= queued {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for over := false; !over; {
		select {
		case <-c.wake: // maybe of before
			over = c.waiting() >= enough
		case <-timer.C:
			over = true
		case <-ctx.Done():
			over = true
		}
	}
	c.mu.Lock()
	c.enough = 0
	queued = len(c.queue)
	c.mu.Unlock()
	c.gatherer.gathered(queued)
}

// take returns the next batch, and how many of its ops, the last ones, nobody waits for. If there is none now but may be later, it says how
// long to wait.
func (c *committer) take(now time.Time) (batch []store.BatchOp, others int, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.later) == 0 || now.Before(c.laterFrom) {
		if len(c.queue) == 0 && len(c.later) > 0 {
			return nil, 0, c.laterFrom.Sub(now)
		}
		return cut(&c.queue, store.Fits(c.queue)), 0, 0
	}
	waited := min(len(c.queue), laterShare)
	candidates := slices.Concat(c.queue[:waited], c.later[:min(len(c.later), laterBatch)])
	n := store.Fits(candidates)
	others = max(0, n-waited)
	return append(cut(&c.queue, n-others), cut(&c.later, others)...), others, 0
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
		if err := c.settleAll(ctx); err != nil {
			return err
		}
		if c.cursor.Overdue() {
			if _, err := c.insist(ctx, nil); err != nil {
				return err
			}
			continue
		}
		c.gather(ctx)
		began := time.Now()
		batch, others, wait := c.take(began)
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
		revision, err := c.insist(ctx, batch)
		var large *store.TooLargeError
		if errors.As(err, &large) {
			if err := c.part(ctx, batch, large); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		ended := time.Now()
		c.gatherer.committed(len(batch)-others, c.waiting(), began, ended)
		c.committed(batch, revision)
		if others > 0 {
			c.laterFrom = ended.Add(min(laterPause*ended.Sub(began), laterMost))
		}
	}
}

// part commits the halves of a batch that is too large, and so on, until what is left of it is the ops that are too large by themselves.
func (c *committer) part(ctx context.Context, batch []store.BatchOp, large *store.TooLargeError) error {
	if len(batch) == 1 {
		c.log.Error("a change is refused, because the store takes no request of its size", "lease", batch[0].Op.Name, "error", large)
		c.refused(&batch[0], &RefusedError{Reason: large.Error()})
		return nil
	}
	half := len(batch) / 2
	for _, some := range [][]store.BatchOp{batch[:half], batch[half:]} {
		revision, err := c.insist(ctx, some)
		switch {
		case errors.As(err, &large):
			err = c.part(ctx, some, large)
		case err == nil:
			c.committed(some, revision)
		}
		if err != nil {
			return err
		}
	}
	return nil
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
