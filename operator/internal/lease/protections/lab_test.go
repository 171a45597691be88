// Package protections_test takes the protections of the lease engine away, one at a time, and shows that the
// checker of the robustness tests notices: each scenario is explainable with the protection, and a violation without.
package protections_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-io/holdfast/operator/internal/lease/clock"
	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
	"github.com/holdfast-io/holdfast/test/robustness/history"
)

const (
	prefix     = "/test/"
	shards     = 4
	sessionTTL = 2 * time.Second
	patience   = 15 * time.Second
	// often is how often clients try.
	often = 10 * time.Millisecond
)

// replica is an engine without a server: its callers cannot be passed on to another one.
type replica struct {
	*engine.Engine
	t    *testing.T
	stop context.CancelFunc
	done chan struct{}
}

type replicaOptions struct {
	client *clientv3.Client
	// tamper replaces the store, if set; clock the clock.
	tamper func(store.Store) store.Store
	clock  func() core.Instant
}

func start(t *testing.T, name string, opts replicaOptions) *replica {
	t.Helper()
	etcd, err := store.NewEtcd(opts.client, prefix)
	require.NoError(t, err)
	var s store.Store = etcd
	if opts.tamper != nil {
		s = opts.tamper(s)
	}
	if opts.clock == nil {
		opts.clock = clock.Now
	}
	r := &replica{t: t, done: make(chan struct{}), Engine: engine.New(engine.Options{
		Store: s, Name: name, Address: name, Shards: shards, SessionTTL: sessionTTL, Clock: opts.clock,
		Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() {
		defer close(r.done)
		_ = r.Run(ctx) // a replica whose store is tampered with may end as it likes
	}()
	t.Cleanup(r.end)
	r.await("it is a member", func() bool { return r.Status().Certain })
	return r
}

// end stops the replica, which gives its shards up.
func (r *replica) end() {
	r.stop()
	<-r.done
}

func (r *replica) await(what string, ok func() bool) {
	r.t.Helper()
	require.Eventually(r.t, ok, patience, time.Millisecond, what)
}

// awaitShards waits until replicas serve all shards between them.
func awaitShards(t *testing.T, replicas ...*replica) {
	t.Helper()
	require.Eventually(t, func() bool {
		sum := 0
		for _, r := range replicas {
			sum += r.Status().Shards
		}
		return sum == shards
	}, patience, time.Millisecond, "all shards are served")
}

// nameAt returns a lease name that a replica serves.
func (r *replica) nameAt() string {
	r.t.Helper()
	for i := range 1000 {
		if name := fmt.Sprintf("n%d", i); r.Serves(name) {
			return name
		}
	}
	r.t.Fatal("the replica serves no name")
	return ""
}

// client calls replicas and records what they answer.
type client struct {
	rec *history.Recorder
	id  int
	ttl time.Duration
}

func clients(ttl time.Duration) (*history.Recorder, client, client) {
	rec := history.NewRecorder(nil)
	return rec, client{rec, 1, ttl}, client{rec, 2, ttl}
}

func (c client) acquire(r *replica, name string) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	op := history.Op{Client: c.id, Name: name, Kind: history.Granted, Call: history.Now(), Weight: 1}
	grant, err := r.Acquire(ctx, core.AcquireRequest{
		Name: name, Holder: fmt.Sprint(c.id), RequestID: fmt.Sprint(c.id, op.Call), Mode: core.Exclusive, TTL: c.ttl,
	})
	op.Return = history.Now()
	if err != nil {
		return 0, err
	}
	op.Token, op.Until = grant.Hold.Token, op.Call+int64(grant.Hold.ExpiresIn)
	c.rec.Add(op)
	return op.Token, nil
}

// acquireSoon tries until it gets the lease.
func (c client) acquireSoon(r *replica, name string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		_, err := c.acquire(r, name)
		return err == nil
	}, patience, often, "the lease is granted")
}

func (c client) keepAlive(r *replica, name string, token int64) error {
	op := history.Op{Client: c.id, Name: name, Kind: history.Kept, Call: history.Now(), Token: token}
	kept, err := r.KeepAlive(name, token)
	op.Return = history.Now()
	var notHeld *core.NotHeldError
	switch {
	case err == nil:
		op.Until = op.Call + int64(kept.Hold.ExpiresIn)
	case errors.As(err, &notHeld):
		op.Kind = history.Lapsed
	default:
		return err
	}
	c.rec.Add(op)
	return err
}

func (c client) release(r *replica, name string, token int64) {
	r.t.Helper()
	op := history.Op{Client: c.id, Name: name, Kind: history.Released, Call: history.Now(), Token: token}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	released, err := r.Release(ctx, name, token)
	require.NoError(r.t, err)
	require.True(r.t, released.Released)
	op.Return = history.Now()
	c.rec.Add(op)
}

// keepUntil keeps a hold alive until it is told to stop.
func (c client) keepUntil(r *replica, name string, token int64) (stop func()) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(often)
		defer ticker.Stop()
		for {
			_ = c.keepAlive(r, name, token) // what it says is in the history
			select {
			case <-ticker.C:
			case <-quit:
				return
			}
		}
	})
	return func() {
		close(quit)
		wg.Wait()
	}
}

// withAndWithout runs a scenario with a protection, which must be explainable, and without, which must not.
func withAndWithout(t *testing.T, scenario func(t *testing.T, protected bool) *history.Recorder) {
	t.Parallel()
	t.Run("with the protection", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, history.Check(scenario(t, true).History()))
	})
	t.Run("without it", func(t *testing.T) {
		t.Parallel()
		err := history.Check(scenario(t, false).History())
		var violation *history.ViolationError
		require.ErrorAs(t, err, &violation, "the check must notice")
		require.False(t, violation.Undecided)
		t.Log(violation)
	})
}

func linkedClient(t *testing.T, endpoint string) (*leasetest.Link, *clientv3.Client) {
	t.Helper()
	link := leasetest.NewLink(t, endpoint)
	return link, leasetest.Client(t, link.Address)
}
