package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
)

// session is this replica's membership, from joining until it is lost.
type session struct {
	id        store.SessionID
	ttl       time.Duration
	committer *committer
	// until is a core.Instant: up to then the session is certainly alive.
	until atomic.Int64
}

func (s *session) certainUntil() core.Instant { return core.Instant(s.until.Load()) }

func (s *session) certain(now core.Instant) bool { return s != nil && now < s.certainUntil() }

// renewed takes note of a renewal that was sent at an instant. The store counts the TTL from a later
// moment. A tenth is left for clocks that run at different rates.
func (s *session) renewed(sent core.Instant) {
	s.until.Store(int64(sent.Add(s.ttl - s.ttl/10)))
}

// serve joins, serves until the session is lost or the context ends, and leaves.
func (e *Engine) serve(ctx context.Context) error {
	s, err := e.join(ctx)
	if err != nil {
		return err
	}
	e.metrics.sessions.WithLabelValues("opened").Inc()
	e.opts.Log.Info("joined", "session", strconv.FormatUint(uint64(s.id), 16), "sessionTTL", s.ttl.String())
	e.waiting.Store(nil)
	e.session.Store(s)
	e.changed.send()

	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return e.keep(groupCtx, s) })
	group.Go(func() error { return s.committer.run(groupCtx) })
	group.Go(func() error { return e.watch(groupCtx) })
	group.Go(func() error { return e.reconcile(groupCtx, s) })
	err = group.Wait()
	if ctx.Err() == nil {
		e.metrics.sessions.WithLabelValues("lost").Inc()
	}
	e.session.Store(nil)
	slots := e.table()
	for i := range slots {
		slots[i].drop(e)
	}
	e.changed.send()
	e.leave(s)
	return err
}

// watch keeps what is known of the cluster current. It belongs to a session: see Store.WatchCluster.
func (e *Engine) watch(ctx context.Context) error {
	err := e.opts.Store.WatchCluster(ctx, e.Shards(), func(c *store.Cluster) {
		e.lookClaims(c)
		e.cluster.Store(c)
		e.changed.send()
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &fatalError{err}
}

// fatalError ends the engine: trying again cannot help.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

func (e *Engine) join(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	sent := e.opts.Clock()
	id, ttl, err := e.opts.Store.OpenSession(ctx, e.opts.SessionTTL)
	if err != nil {
		return nil, err
	}
	s := &session{id: id, ttl: ttl}
	s.renewed(sent)
	slots := e.table()
	// A store that was emptied gets its number of shards here.
	shards, err := e.opts.Store.Shards(ctx, len(slots))
	if err == nil && shards != len(slots) {
		err = &fatalError{fmt.Errorf("the store has %d shards now, and had %d when this replica started", shards, len(slots))}
	}
	var cursor *store.Cursor
	if err == nil {
		cursor, err = e.opts.Store.Join(ctx, e.member(id), true)
	}
	if err != nil {
		e.leave(s)
		return nil, err
	}
	s.committer = newCommitter(e.opts.Store, cursor, e.metrics, e.opts.Log)
	s.committer.committed = func(batch []store.BatchOp, revision int64) {
		now := e.opts.Clock()
		var wakes []func()
		for i := range batch {
			wakes = slots[batch[i].Shard].committed(e, &batch[i], now, revision, wakes)
		}
		for _, wake := range wakes {
			wake()
		}
	}
	s.committer.refused = func(op *store.BatchOp, err error) {
		slots[op.Shard].refused(e, op, e.opts.Clock(), err)
	}
	return s, nil
}

func (e *Engine) member(id store.SessionID) store.Member {
	return store.Member{Session: id, Name: e.opts.Name, Address: e.opts.Address, Draining: e.draining.Load()}
}

// leave ends the session, so that the others need not wait for it to time out.
func (e *Engine) leave(s *session) {
	// The context of the caller may have ended; leaving still takes a call.
	ctx, cancel := context.WithTimeout(context.Background(), s.ttl/2)
	defer cancel()
	if err := e.opts.Store.EndSession(ctx, s.id); err != nil {
		e.opts.Log.Warn("the session was not ended and will time out", "error", err)
	}
}

// keep renews the session until it is lost.
func (e *Engine) keep(ctx context.Context, s *session) error {
	slots := e.table()
	every := s.ttl / 3
	var replaced *store.ReplacedError
	for {
		if !sleep(ctx, every) {
			return ctx.Err()
		}
		every = s.ttl / 3
		sent := e.opts.Clock()
		attempt, cancel := context.WithTimeout(ctx, s.ttl/3)
		err := e.opts.Store.KeepSession(attempt, s.id)
		cancel()
		now := e.opts.Clock()
		switch {
		case errors.Is(err, store.ErrSessionLost), errors.As(err, &replaced):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			e.opts.Log.Warn("the session was not renewed", "error", e.explain(err), "certainFor", s.certainUntil().Sub(now).String())
			if !s.certain(now) {
				e.changed.send()
			}
			every = min(every, retryAfter)
			continue
		}
		certain := s.certain(now)
		if !certain {
			// Nobody could keep a hold for a while.
			e.metrics.sessions.WithLabelValues("uncertain").Inc()
			for i := range slots {
				slots[i].extend(now)
			}
		}
		s.renewed(sent)
		e.waiting.Store(nil)
		if !certain {
			e.changed.send()
		}
	}
}
