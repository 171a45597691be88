// Package engine runs the lease state machine of package core on a store: it keeps this replica's session,
// takes part in dividing the shards among the replicas, commits what the shards decide, and answers calls
// for the shards that this replica owns.
//
// What makes it safe, in three rules. Every write compares the claim of its shard, which hangs on this
// replica's session: a replica that lost its session cannot write. What is answered from memory is
// answered only while the session is certainly alive: until the instant before the last successful
// renewal was sent, plus the session's TTL, less a margin for clocks that drift. And whoever takes a
// shard over gives every hold its full TTL anew, so that no keepalive the owner before acknowledged is
// broken.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
)

const (
	// tickEvery is how late an expiry may be noticed.
	tickEvery = 20 * time.Millisecond
	// storeTimeout bounds single calls to the store.
	storeTimeout = 5 * time.Second
	retryAfter   = 200 * time.Millisecond
)

// Options configure an Engine. All but Registry and Explain are required.
type Options struct {
	Store store.Store
	// Name and Address are how the other replicas and clients know this one.
	Name    string
	Address string
	// Shards is the number of shards, if the store does not have one yet.
	Shards int
	// SessionTTL is how soon the others take over from a replica that died.
	SessionTTL time.Duration
	// Limits bound what the service holds for its tenant.
	Limits Limits
	// Explain adds to an error of a store that cannot be reached where it is and why that is; nil adds nothing.
	Explain  func(error) error
	Clock    func() core.Instant
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Engine is one replica. Make it with New, then Run it; its methods may be called from any goroutine, also
// before Run.
type Engine struct {
	opts    Options
	metrics *Metrics
	epoch   time.Time // the wall time of instant 0
	// slots is nil until the number of shards is known.
	slots atomic.Pointer[[]slot]

	session  atomic.Pointer[session]
	cluster  atomic.Pointer[store.Cluster]
	draining atomic.Bool
	// waiting is why there is no certain session; nil while nothing is known to be wrong.
	waiting atomic.Pointer[string]
	// holds, waiters, owned (the slots that serve) and promised (holds with those being committed) are sums over the slots.
	holds, waiters, owned, promised atomic.Int64
	limiter                         *limiter
	cut                             cutOff
	// changed tells of a new cluster, session, readiness or draining state.
	changed broadcast
}

// New makes an engine.
func New(opts Options) *Engine {
	e := &Engine{
		opts: opts, metrics: newMetrics(opts.Registry), epoch: time.Now().Add(-time.Duration(opts.Clock())),
		limiter: newLimiter(opts.Limits),
	}
	e.registerGauges(opts.Registry)
	return e
}

// learnShards asks the store for the number of shards until it knows, or returns false when the context ends.
func (e *Engine) learnShards(ctx context.Context) bool {
	for {
		call, cancel := context.WithTimeout(ctx, storeTimeout)
		shards, err := e.opts.Store.Shards(call, e.opts.Shards)
		cancel()
		if err == nil {
			if shards != e.opts.Shards {
				e.opts.Log.Warn("the store has another number of shards than asked for; the store's counts",
					"asked", e.opts.Shards, "shards", shards)
			}
			slots := make([]slot, shards)
			for i := range slots {
				slots[i].index = i
			}
			e.slots.Store(&slots)
			return true
		}
		e.opts.Log.Warn("waiting for the store", "error", e.explain(err))
		if !sleep(ctx, retryAfter) {
			return false
		}
	}
}

// explain says more about an error of the store, and keeps it for Status.
func (e *Engine) explain(err error) error {
	if e.opts.Explain != nil {
		err = e.opts.Explain(err)
	}
	why := err.Error()
	e.waiting.Store(&why)
	return err
}

// table returns the slots; none until their number is known.
func (e *Engine) table() []slot {
	if slots := e.slots.Load(); slots != nil {
		return *slots
	}
	return nil
}

// at returns the slot of a name.
func (e *Engine) at(name string) (*slot, error) {
	slots := e.table()
	if slots == nil {
		return nil, ErrUncertain
	}
	return &slots[core.ShardOf(name, len(slots))], nil
}

// Shards returns the number of shards; 0 until the store has told it.
func (e *Engine) Shards() int { return len(e.table()) }

// Session returns this replica's session; 0 while it has none.
func (e *Engine) Session() store.SessionID {
	if s := e.session.Load(); s != nil {
		return s.id
	}
	return 0
}

// Cluster returns the last known state of the cluster; nil before the first is known.
func (e *Engine) Cluster() *store.Cluster { return e.cluster.Load() }

// Changed returns a channel that is closed when the cluster, this replica's session, its readiness or its
// draining changes. Get the channel first, then look at the state.
func (e *Engine) Changed() <-chan struct{} { return e.changed.wait() }

// Run takes part until the context ends, then ends the session. It returns nil then, and otherwise what made it
// impossible to go on.
func (e *Engine) Run(ctx context.Context) error {
	if !e.learnShards(ctx) {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return e.tick(ctx) })
	group.Go(func() error { return e.serveAgain(ctx) })
	err := group.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// serveAgain serves with one session after the other until the context ends or it cannot go on.
func (e *Engine) serveAgain(ctx context.Context) error {
	for {
		err := e.serve(ctx)
		var replaced *store.ReplacedError
		var fatal *fatalError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &fatal):
			return err
		case errors.As(err, &replaced):
			// serve dropped what it had; the members known are of the store before.
			e.cluster.Store(nil)
			e.changed.send()
			e.metrics.sessions.WithLabelValues("replaced").Inc()
			e.opts.Log.Error("the store is not the one it was: this replica begins anew with what is there now; "+
				"leases that it lost are over, and tokens may be smaller than those granted before", "error", err)
		default:
			e.opts.Log.Warn("not serving", "error", e.explain(err))
		}
		if !sleep(ctx, retryAfter) {
			return ctx.Err()
		}
	}
}

// tick lets the shards end what is over. It does nothing while the session is uncertain: the holders had no way
// to keep their holds.
func (e *Engine) tick(ctx context.Context) error {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		now := e.opts.Clock()
		e.lookCut(now)
		slots := e.table()
		for i := range slots {
			slots[i].tick(e, now)
		}
	}
}

// Status is how this replica fares.
type Status struct {
	// Certain says whether it serves: its session is certainly alive, and what it knows of the cluster is not older than that.
	// CertainFor says for how long it may without another renewal.
	Certain    bool
	CertainFor time.Duration
	// Trouble is why it does not serve, or why the store takes no writes at the moment; empty while all is well.
	Trouble  string
	Leading  bool
	Draining bool
	Holds    int64
	Waiters  int64
	Shards   int
	Quotas   []Quota
}

// Status returns the present status.
func (e *Engine) Status() Status {
	now := e.opts.Clock()
	st := Status{Draining: e.draining.Load()}
	s := e.session.Load()
	if why := e.waiting.Load(); why != nil {
		st.Trouble = *why
	}
	if s == nil {
		return st
	}
	st.CertainFor = s.certainUntil().Sub(now)
	c := e.cluster.Load()
	st.Certain = st.CertainFor > 0 && knows(c, s.id)
	if why := s.committer.trouble.Load(); why != nil {
		st.Trouble = *why
	}
	st.Leading = st.Certain && c.Leader.Session == s.id
	st.Holds, st.Waiters, st.Shards = e.holds.Load(), e.waiters.Load(), int(e.owned.Load())
	st.Quotas = e.quotas()
	return st
}

// Drain hands this replica's shards over to the others and returns when it has none left, when there is
// nobody to take them, or with the context's error. It goes on answering for each shard until that one is
// handed over.
func (e *Engine) Drain(ctx context.Context) error {
	e.draining.Store(true)
	e.changed.send()
	for {
		changed := e.changed.wait()
		s, cluster := e.session.Load(), e.cluster.Load()
		if s == nil || cluster == nil || e.Status().Shards == 0 || !others(cluster, s.id) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("hand over the shards: %w", ctx.Err())
		}
	}
}

// Draining says whether Drain was called.
func (e *Engine) Draining() bool { return e.draining.Load() }

// knows says that a state of the cluster is not older than a session.
func knows(c *store.Cluster, id store.SessionID) bool {
	if c == nil {
		return false
	}
	_, ok := c.Member(id)
	return ok
}

func others(c *store.Cluster, id store.SessionID) bool {
	for _, m := range c.Members {
		if m.Session != id && !m.Draining {
			return true
		}
	}
	return false
}

// broadcast wakes everybody who waits. The zero value is ready.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// sleep waits, and returns false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
