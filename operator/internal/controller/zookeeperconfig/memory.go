package zookeeperconfig

import (
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/operator/internal/plan/znode"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
)

// memory is what the process remembers of objects between passes. Losing it costs nothing but an event's wording or a
// request that is made again: what must survive is in the objects.
type memory struct {
	mu      sync.Mutex
	objects map[string]*remembered
}

type remembered struct {
	// watched are the znodes that the object is subscribed to.
	watched watched
	// targets are the last ones that worked, by connect string: a Secret may go before the object that needs it
	// to clean up.
	targets map[string]zookeeper.Target
	// change is what was done last and not told yet.
	change *change
	// denied is a claim whose creation was answered: the znode exists, and somebody else made it.
	denied string
	// unsure is a claim whose creation was not answered.
	unsure string
	// obstacles are why znodes could not be deleted, by place, for a moment: then it is tried again.
	obstacles map[string]obstacle
}

// watched are znodes that an object is subscribed to, by the keys of their sessions.
type watched map[string]watchedPaths

type watchedPaths struct {
	session Session
	paths   map[string]struct{}
}

func (w watched) add(session Session, path string) {
	key := session.Key()
	if _, ok := w[key]; !ok {
		w[key] = watchedPaths{session: session, paths: map[string]struct{}{}}
	}
	w[key].paths[path] = struct{}{}
}

type change struct {
	cause  znode.Cause
	detail string
}

type obstacle struct {
	text  string
	until time.Time
}

func newMemory() *memory { return &memory{objects: map[string]*remembered{}} }

// with calls f on what is remembered of an object.
func (m *memory) with(key string, f func(*remembered)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.objects[key]
	if !ok {
		r = &remembered{}
		m.objects[key] = r
	}
	f(r)
}

// forget drops an object, and its subscriptions.
func (m *memory) forget(key string) {
	m.mu.Lock()
	r := m.objects[key]
	delete(m.objects, key)
	m.mu.Unlock()
	if r == nil {
		return
	}
	for _, each := range r.watched {
		each.session.ForgetAll(key)
	}
}

// rewatch notes what an object is subscribed to now, and ends its other subscriptions.
func (m *memory) rewatch(key string, now watched) {
	var before watched
	m.with(key, func(r *remembered) { before, r.watched = r.watched, now })
	for id, each := range before {
		for path := range each.paths {
			if _, still := now[id].paths[path]; !still {
				each.session.Forget(path, key)
			}
		}
	}
}
