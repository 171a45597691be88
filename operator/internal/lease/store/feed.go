package store

import (
	"context"
	"errors"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// feedRoom is how many updates a watch may be behind the feed before it has to catch up by itself.
const feedRoom = 256

// errBehind says that the feed has passed the place of a watch.
var errBehind = errors.New("the feed is ahead")

// feed reads the journals once for all watches of this process that are current, and gives each of them what it is about. It runs while
// there are any. The zero value is ready.
type feed struct {
	mu sync.Mutex
	// stop is nil while it does not run.
	stop context.CancelFunc
	// revision is the one up to which everything has been given out.
	revision int64
	names    map[string]map[*follower]struct{}
	prefixes map[*follower]struct{}
}

// follower is a watch at the feed.
type follower struct {
	target Target
	// updates is closed when the watch must go on by itself.
	updates chan Update
}

func (t Target) matches(name string) bool {
	if t.Name != "" {
		return name == t.Name
	}
	return strings.HasPrefix(name, t.Prefix)
}

// join adds a watch that has passed on everything up to a revision; nil: the feed is ahead of it.
func (f *feed) join(e *Etcd, target Target, after int64) *follower {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop != nil && f.revision > after {
		return nil
	}
	if f.stop == nil {
		f.names, f.prefixes, f.revision = map[string]map[*follower]struct{}{}, map[*follower]struct{}{}, after
		ctx, stop := context.WithCancel(clientv3.WithRequireLeader(context.Background()))
		f.stop = stop
		go f.run(ctx, e, after)
	}
	s := &follower{target: target, updates: make(chan Update, feedRoom)}
	if target.Name == "" {
		f.prefixes[s] = struct{}{}
		return s
	}
	if f.names[target.Name] == nil {
		f.names[target.Name] = map[*follower]struct{}{}
	}
	f.names[target.Name][s] = struct{}{}
	return s
}

// reached says whether a watch at a revision can join.
func (f *feed) reached(after int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stop == nil || f.revision <= after
}

// leave takes a watch out; it may be out already.
func (f *feed) leave(s *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(s)
	if len(f.names)+len(f.prefixes) == 0 && f.stop != nil {
		f.stop()
		f.stop = nil
	}
}

func (f *feed) remove(s *follower) {
	delete(f.prefixes, s)
	if same := f.names[s.target.Name]; same != nil {
		delete(same, s)
		if len(same) == 0 {
			delete(f.names, s.target.Name)
		}
	}
}

// run feeds until the context ends, or something breaks: then the watches go on by themselves, and see what that is.
func (f *feed) run(ctx context.Context, e *Etcd, after int64) {
	f.read(ctx, e, after)
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return // stopped, and maybe begun anew
	}
	f.stop()
	f.stop = nil
	for _, same := range f.names {
		for s := range same {
			close(s.updates)
		}
	}
	for s := range f.prefixes {
		close(s.updates)
	}
	f.names, f.prefixes = nil, nil
}

func (f *feed) read(ctx context.Context, e *Etcd, after int64) {
	for resp := range e.watchJournals(ctx, after) {
		updates, err := updatesOf(resp)
		if resp.Err() != nil || err != nil {
			return
		}
		f.mu.Lock()
		if ctx.Err() == nil {
			for _, u := range updates {
				f.give(u)
			}
		}
		f.mu.Unlock()
	}
}

// give gives each watch its part of an update. The lock is held.
func (f *feed) give(u Update) {
	f.revision = max(f.revision, u.Revision)
	parts := map[*follower][]Event{}
	for _, event := range u.Events {
		for s := range f.names[event.Name] {
			parts[s] = append(parts[s], event)
		}
		for s := range f.prefixes {
			if s.target.matches(event.Name) {
				parts[s] = append(parts[s], event)
			}
		}
	}
	for s, events := range parts {
		f.send(s, Update{Revision: u.Revision, Events: events})
	}
	if len(u.Events) > 0 {
		return
	}
	for _, same := range f.names {
		for s := range same {
			f.send(s, u)
		}
	}
	for s := range f.prefixes {
		f.send(s, u)
	}
}

// send gives a watch an update. One that has no room left has to catch up.
func (f *feed) send(s *follower, u Update) {
	select {
	case s.updates <- u:
	default:
		f.remove(s)
		close(s.updates)
	}
}
