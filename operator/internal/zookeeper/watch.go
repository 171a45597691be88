package zookeeper

import (
	"context"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// retryRefresh is the time to the next read of a znode that an event spoke of, when one failed.
const retryRefresh = 500 * time.Millisecond

// Subscription is one party's interest in a znode.
type Subscription struct {
	// Key names the party; it can subscribe to any number of znodes.
	Key string
	// Notify is called after the znode changed (what Observe returns is then current), and when the ensemble's
	// circuit breaker opens or closes. It must not block. Nil: nobody is told.
	Notify func()
	// WithData keeps the znode's content in memory, not only its sum.
	WithData bool
}

// watches are the znodes that a session keeps current. It is guarded by the session's mutex.
type watches struct {
	entries map[string]*entry
	// byKey has the paths of each party. Lists, here and in entry: most have one element, and a map of one costs as
	// much as all the rest.
	byKey map[string][]string
}

// entry is what is known of one znode. Its path is the full one, with the chroot.
type entry struct {
	path string
	subs []Subscription
	// node is the last observation; seen tells that there was one, known that no change was heard of since, and epoch on which
	// connection: nothing can be heard of while there is none.
	node        zktypes.Node
	seen, known bool
	epoch       uint64
	// armed tells that a watch is set at the server, which the next change fires. What is known and not armed is about to be:
	// see looks.
	armed bool
	// seq counts what makes an observation outdated. A read that saw it change is made again: the answer may be
	// from before the change or after it.
	seq uint64
	// assumed tells that the access control list in node was not read: it is the one that we created the znode with. The
	// next audit reads it.
	assumed bool
	// writers counts our own writes under way. They read the znode when they are done, and so the events that they
	// cause need no read of their own.
	writers int
	// reading is closed when the read under way ends; nil when there is none.
	reading chan struct{}
}

func newWatches() watches {
	return watches{entries: map[string]*entry{}, byKey: map[string][]string{}}
}

func (w *watches) disarmAll() {
	for _, e := range w.entries {
		e.outdate()
		e.armed = false
	}
}

func (e *entry) outdate() {
	e.seq++
	e.known = false
}

// notifications returns the callbacks of everybody but one.
func (e *entry) notifications(but string) []func() {
	var out []func()
	for _, sub := range e.subs {
		if sub.Key != but && sub.Notify != nil {
			out = append(out, sub.Notify)
		}
	}
	return out
}

func (e *entry) subscriber(key string) int {
	return slices.IndexFunc(e.subs, func(sub Subscription) bool { return sub.Key == key })
}

// subscribe adds or replaces a subscription.
func (e *entry) subscribe(sub Subscription) {
	if at := e.subscriber(sub.Key); at >= 0 {
		e.subs[at] = sub
		return
	}
	e.subs = append(e.subs, sub)
}

func (e *entry) withData() bool {
	return slices.ContainsFunc(e.subs, func(sub Subscription) bool { return sub.WithData })
}

func (s *session) observe(ctx context.Context, full string, sub Subscription) (zktypes.Node, error) {
	s.mu.Lock()
	e, ok := s.watches.entries[full]
	if !ok {
		e = &entry{path: full}
		s.watches.entries[full] = e
		s.opts.Metrics.watching(s.ens.name, 1)
	}
	if sub.WithData && !e.withData() {
		e.outdate()
	}
	e.subscribe(sub)
	if paths := s.watches.byKey[sub.Key]; !slices.Contains(paths, full) {
		s.watches.byKey[sub.Key] = append(paths, full)
	}
	s.mu.Unlock()
	if !s.ens.breaker.closed() {
		return zktypes.Node{}, &UnavailableError{Ensemble: s.ens.name, Open: true, Err: errBreakerOpen}
	}
	return s.current(ctx, e, sub.Key, nil)
}

func (s *session) forgetOne(full, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(full, key)
}

func (s *session) forgetAll(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, full := range slices.Clone(s.watches.byKey[key]) {
		s.forget(full, key)
	}
}

// forget leaves the watch at the server, since the library cannot take one back: it fires once more, unheard.
func (s *session) forget(full, key string) {
	paths := slices.DeleteFunc(s.watches.byKey[key], func(path string) bool { return path == full })
	if s.watches.byKey[key] = paths; len(paths) == 0 {
		delete(s.watches.byKey, key)
	}
	e, ok := s.watches.entries[full]
	if !ok {
		return
	}
	e.subs = slices.DeleteFunc(e.subs, func(sub Subscription) bool { return sub.Key == key })
	if len(e.subs) == 0 {
		delete(s.watches.entries, full)
		s.opts.Metrics.watching(s.ens.name, -1)
	}
}

// current returns the znode from memory, or reads it until an answer stands that no event has overtaken. Of several
// callers one reads and the others wait. Whoever subscribes beside key is told of a difference. Made is what key has just
// created the znode as, or nil.
func (s *session) current(ctx context.Context, e *entry, key string, made *creation) (zktypes.Node, error) {
	for {
		s.mu.Lock()
		if e.known && e.epoch == s.epoch {
			node := e.node
			s.mu.Unlock()
			return node, nil
		}
		if wait := e.reading; wait != nil {
			s.mu.Unlock()
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return zktypes.Node{}, s.ended(ctx, errDeadline)
			}
		}
		e.reading = make(chan struct{})
		if e.known {
			seen := sightOf(e, s.epoch)
			s.mu.Unlock()
			if err := s.confirm(ctx, e, seen); err != nil {
				return zktypes.Node{}, err
			}
			continue
		}
		seq, epoch, how := e.seq, s.epoch, reading{arm: !e.armed, first: !e.seen, withData: e.withData(), likely: e.node.Exists, made: made}
		s.mu.Unlock()

		got, err := s.read(ctx, e.path, how)

		s.mu.Lock()
		close(e.reading)
		e.reading = nil
		if err != nil {
			s.mu.Unlock()
			return zktypes.Node{}, err
		}
		if e.seq != seq {
			s.mu.Unlock()
			made = nil // somebody did something to it
			continue
		}
		changed := e.seen && !e.node.Same(got.node)
		e.node, e.seen, e.known, e.epoch, e.armed, e.assumed = got.node, true, true, epoch, !got.unarmed, got.assumed
		var tell []func()
		if changed {
			tell = e.notifications(key)
		}
		s.mu.Unlock()
		if got.unarmed {
			s.armLater(e)
		}
		for _, notify := range tell {
			notify()
		}
		return got.node, nil
	}
}

// watched takes an event of a watch. It is called from the library's receive loop, so that everything that was
// answered before the event has been seen before it, and must not block.
func (s *session) watched(event zk.Event) {
	s.mu.Lock()
	e, ok := s.watches.entries[event.Path]
	if !ok {
		s.mu.Unlock()
		return
	}
	e.outdate()
	e.armed = false
	// A watch that ended with its session is set again by the resync that follows the next one.
	idle := event.Type != zk.EventNotWatching && e.writers == 0 && e.reading == nil
	s.mu.Unlock()
	if idle {
		go s.refresh(e)
	}
}

// refresh reads a znode after an event, and tells the subscribers of a difference. When the read fails and the
// session lives it is made again; when the session is lost, the resync makes it.
func (s *session) refresh(e *entry) {
	ctx, cancel := context.WithTimeout(s.ctx, 2*s.opts.RequestTimeout)
	defer cancel()
	if _, err := s.current(ctx, e, "", nil); err == nil || s.ctx.Err() != nil || !s.Established() {
		return
	}
	time.AfterFunc(retryRefresh, func() {
		s.mu.Lock()
		wanted := s.watches.entries[e.path] == e && !e.known
		s.mu.Unlock()
		if wanted && s.Established() {
			s.refresh(e)
		}
	})
}

// notifyAll tells every subscriber once.
func (s *session) notifyAll() {
	s.mu.Lock()
	byKey := map[string]func(){}
	for _, e := range s.watches.entries {
		for _, sub := range e.subs {
			if sub.Notify != nil {
				byKey[sub.Key] = sub.Notify
			}
		}
	}
	s.mu.Unlock()
	for _, notify := range byKey {
		notify()
	}
}
