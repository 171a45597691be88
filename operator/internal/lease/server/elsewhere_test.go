package server

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"

	"github.com/holdfast-io/holdfast/operator/internal/lease/clock"
	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
)

// watched is a store that counts its watches.
type watched struct {
	store.Store
	began, open atomic.Int32
}

func (w *watched) Watch(ctx context.Context, _ int, _ store.Target, _ int64, _ func(store.Update) error) error {
	w.began.Add(1)
	w.open.Add(1)
	defer w.open.Add(-1)
	<-ctx.Done()
	return ctx.Err()
}

// pass lets time go by in a bubble of synctest: its clock steps as soon as everything in the bubble waits, so nothing is
// slept through, and what was due is done when pass returns.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Holds that come and go share one watch, which ends some time after the last.
func TestTheWatchOfHoldsElsewhereLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watches := &watched{}
		server := &Server{
			opts:   Options{Store: watches, Log: slog.New(slog.DiscardHandler)},
			engine: engine.New(engine.Options{Clock: clock.Now, Registry: prometheus.NewRegistry()}),
		}
		e := &elsewhereHolds{server: server, holds: map[holdKey]map[*sessionStream]struct{}{}}
		ss, key := &sessionStream{}, holdKey{"n", 1}
		e.add(key, ss)
		e.mu.Lock()
		e.begin(1)
		e.mu.Unlock()
		for range 3 {
			e.remove(key, ss)
			e.remove(key, ss)
			pass(elsewhereLinger - time.Second)
			e.add(key, ss)
			pass(2 * elsewhereLinger)
			assert.Equal(t, int32(1), watches.open.Load())
		}
		assert.Equal(t, int32(1), watches.began.Load())
		e.remove(key, ss)
		pass(elsewhereLinger + time.Second)
		assert.Zero(t, watches.open.Load(), "nobody needs it")

		e.add(key, ss)
		e.mu.Lock()
		e.begin(1)
		e.mu.Unlock()
		synctest.Wait()
		assert.Equal(t, int32(2), watches.began.Load())
		e.end()
		synctest.Wait()
		assert.Zero(t, watches.open.Load(), "the server stops")
	})
}
