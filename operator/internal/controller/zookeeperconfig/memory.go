package zookeeperconfig

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/operator/internal/plan/znode"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
)

// memory is what the process remembers of objects between passes. Losing it costs nothing but an event's wording or a
// request that is made again: what must survive is in the objects.
type memory struct {
	mu      sync.Mutex
	objects map[string]*remembered
	// targets are shared by the objects that use them.
	targets map[string]*zookeeper.Target
	// sessions counts what the objects of each namespace watch, by session.
	sessions map[string]map[string]int
	// renewed are the znodes whose list, and that of all above, was replaced after a rotation, by the session that did it.
	renewed map[string]bool
}

type remembered struct {
	// uid is whose all of this is: an object can be deleted and created again under one name.
	uid types.UID
	// watched are the znodes that the object is subscribed to.
	watched watched
	// targets are the last ones that worked, one a connect string: a Secret may go before the object that needs
	// it to clean up.
	targets []*zookeeper.Target
	// change is what was done last and not told yet.
	change *change
	// denied is a claim whose creation was answered: the znode exists, and somebody else made it.
	denied string
	// unsure is a claim whose creation was not answered.
	unsure string
	// parting tells that a pass over it was made while it was being deleted.
	parting bool
	// obstacles are why znodes could not be deleted, by place, for a moment: then it is tried again.
	obstacles map[string]obstacle
}

// watched are znodes that an object is subscribed to: one, or two while it moves. Hence a list, which costs a tenth of a
// map.
type watched []watchedZnode

// watchedZnode is a znode by its full path: sessions with different chroots share their subscriptions.
type watchedZnode struct {
	session    Session
	path, full string
}

func (w watched) has(session Session, full string) bool {
	return slices.ContainsFunc(w, func(each watchedZnode) bool { return each.session.Key() == session.Key() && each.full == full })
}

type change struct {
	cause  znode.Cause
	detail string
}

type obstacle struct {
	text  string
	until time.Time
}

func newMemory() *memory {
	return &memory{objects: map[string]*remembered{}, targets: map[string]*zookeeper.Target{}, renewed: map[string]bool{}, sessions: map[string]map[string]int{}}
}

// worked remembers that an object's target worked. Of each target there is one copy; there are as many as
// credentials were used, and the few bytes of those that were rotated are not worth counting.
func (m *memory) worked(key string, session Session, target zookeeper.Target) {
	m.mu.Lock()
	which := session.Key() + target.Connect.Chroot
	shared, ok := m.targets[which]
	if !ok {
		shared = &target
		m.targets[which] = shared
	}
	m.mu.Unlock()
	m.with(key, func(r *remembered) {
		for i, known := range r.targets {
			if known.Connect.String() == target.Connect.String() {
				r.targets[i] = shared
				return
			}
		}
		r.targets = append(r.targets, shared)
	})
}

// lastTarget returns the last target of an object that worked with a connect string, or nil.
func (m *memory) lastTarget(key, connect string) (target *zookeeper.Target) {
	m.with(key, func(r *remembered) {
		for _, known := range r.targets {
			if known.Connect.String() == connect {
				target = known
			}
		}
	})
	return target
}

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

// begin starts a pass over an object. What is remembered of another one of that name is dropped, but for its subscriptions, which
// the pass takes over.
func (m *memory) begin(key string, uid types.UID) {
	m.with(key, func(r *remembered) {
		if r.uid != uid {
			*r = remembered{uid: uid, watched: r.watched}
		}
	})
}

// forget drops an object, and its subscriptions. It does nothing when another one of that name is there by now: that one may have
// been passed over before the deletion of the first was told.
func (m *memory) forget(key string, uid types.UID) {
	m.mu.Lock()
	r := m.objects[key]
	if r == nil || r.uid != uid {
		m.mu.Unlock()
		return
	}
	delete(m.objects, key)
	m.count(key, r.watched, nil)
	m.mu.Unlock()
	for _, each := range r.watched {
		each.session.ForgetAll(key)
	}
}

// rewatch notes what an object is subscribed to now, and ends its other subscriptions.
func (m *memory) rewatch(key string, now watched) {
	var before watched
	m.with(key, func(r *remembered) {
		before, r.watched = r.watched, now
		m.count(key, before, now)
	})
	for _, each := range before {
		if !now.has(each.session, each.full) {
			each.session.Forget(each.path, key)
		}
	}
}

// count follows what an object watches. The mutex is held.
func (m *memory) count(key string, before, now watched) {
	namespace, _, _ := strings.Cut(key, "/")
	sessions := m.sessions[namespace]
	if sessions == nil {
		sessions = map[string]int{}
		m.sessions[namespace] = sessions
	}
	for _, each := range now {
		sessions[each.session.Key()]++
	}
	for _, each := range before {
		if sessions[each.session.Key()]--; sessions[each.session.Key()] == 0 {
			delete(sessions, each.session.Key())
		}
	}
	if len(sessions) == 0 {
		delete(m.sessions, namespace)
	}
}

// mayUse tells whether the objects of a namespace may use a session, of which they may use so many.
func (m *memory) mayUse(namespace, session string, most int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	sessions := m.sessions[namespace]
	return sessions[session] > 0 || len(sessions) < most
}
