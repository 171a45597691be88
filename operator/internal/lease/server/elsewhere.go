package server

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// elsewhereLinger is how long a watch goes on without a hold: where holds come and go, each watch would cost the store more.
const elsewhereLinger = 10 * time.Second

// elsewhereHolds hears from the store what happens to holds that sessions here keep and other replicas serve. It watches while there are
// any, and a little longer. What it misses, because it has just begun or was cut off, the next heartbeat finds out.
type elsewhereHolds struct {
	server *Server

	mu    sync.Mutex
	holds map[holdKey]map[*sessionStream]struct{}
	// stop ends the watch; nil while there is none.
	stop context.CancelFunc
	// idle ends a watch that is not needed; nil while it is.
	idle *time.Timer
	// ended says that the server stops.
	ended bool
}

func (e *elsewhereHolds) add(key holdKey, ss *sessionStream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.holds[key] == nil {
		e.holds[key] = map[*sessionStream]struct{}{}
	}
	e.holds[key][ss] = struct{}{}
	if e.idle != nil {
		e.idle.Stop()
		e.idle = nil
	}
	cluster := e.server.engine.Cluster()
	if e.stop != nil || cluster == nil || e.ended {
		return
	}
	// The state of the cluster may be of long ago. The hold is there since its token's revision, and what was seen is from before
	// anybody was told of it.
	e.begin(max(cluster.Revision, key.token, e.server.opts.Store.Seen()))
}

// begin watches from a revision on. The lock is held.
func (e *elsewhereHolds) begin(after int64) {
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	go e.watch(ctx, after)
}

// remove takes a hold out that may not be there.
func (e *elsewhereHolds) remove(key holdKey, ss *sessionStream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.holds[key] == nil {
		return
	}
	delete(e.holds[key], ss)
	if len(e.holds[key]) == 0 {
		delete(e.holds, key)
	}
	if len(e.holds) == 0 && e.stop != nil && e.idle == nil {
		e.idle = time.AfterFunc(elsewhereLinger, e.rest)
	}
}

// rest ends the watch if it is not needed.
func (e *elsewhereHolds) rest() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.holds) == 0 {
		e.halt()
	}
}

// end ends the watch for good.
func (e *elsewhereHolds) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	e.halt()
}

// halt ends the watch, if there is one. The lock is held.
func (e *elsewhereHolds) halt() {
	if e.idle != nil {
		e.idle.Stop()
		e.idle = nil
	}
	if e.stop != nil {
		e.stop()
		e.stop = nil
	}
}

func (e *elsewhereHolds) watch(ctx context.Context, after int64) {
	err := e.server.opts.Store.Watch(ctx, e.server.engine.Shards(), store.Target{}, after, func(u store.Update) error {
		for i := range u.Events {
			e.hear(&u.Events[i])
		}
		return nil
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	if ctx.Err() == nil { // the next hold that is added begins anew
		e.server.opts.Log.Error("the history of leases cannot be followed", "error", err)
		e.halt()
	}
}

func (e *elsewhereHolds) hear(event *store.Event) {
	key := holdKey{event.Name, event.Hold.Token}
	r := event.Hold.Revocation
	if !event.Over && r == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for ss := range e.holds[key] {
		// The sessions take e.mu under their own locks, so this must not wait for them.
		switch {
		case event.Over && event.Ended != core.Released:
			go ss.ended(key, event.Ended, r)
		case !event.Over:
			go ss.askBack(key, asked(r), false)
		}
	}
}

// asked is a revocation that was just made.
func asked(r *core.Revocation) *leasev1.Revocation {
	out := &leasev1.Revocation{Reason: r.Reason, RequestedBy: r.RequestedBy, Force: r.Force}
	if r.Period > 0 {
		out.DeadlineIn = durationpb.New(r.Period)
	}
	return out
}
