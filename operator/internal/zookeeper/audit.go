package zookeeper

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// auditWorkers and resyncWorkers are how many znodes are compared with the server at a time: an audit is in no
// hurry, and after a reconnect everybody waits.
const (
	auditWorkers  = 8
	resyncWorkers = 128
)

// sight is an observation that is to be compared with the server.
type sight struct {
	node       zktypes.Node
	seq, epoch uint64
}

// sightOf is what is known of a znode, to be compared now. The mutex is held.
func sightOf(e *entry, epoch uint64) sight { return sight{node: e.node, seq: e.seq, epoch: epoch} }

// confirm compares what was seen on a connection that is lost since, by the one who reads.
func (s *session) confirm(ctx context.Context, e *entry, seen sight) error {
	_, err := s.verify(ctx, e, seen)
	s.mu.Lock()
	defer s.mu.Unlock()
	close(e.reading)
	e.reading = nil
	return err
}

// verify asks for the counters of a znode, which takes no permission, and tells whether it still is what was seen. If not, what
// is known of it is outdated.
func (s *session) verify(ctx context.Context, e *entry, seen sight) (same bool, err error) {
	stat, err := s.stat(ctx, e.path)
	if err != nil {
		return false, err
	}
	same = seen.node.Exists == (stat != nil)
	if same && stat != nil {
		same = stat.Czxid == seen.node.Czxid && stat.Mzxid == seen.node.Mzxid && stat.Aversion == seen.node.Aversion
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.seq != seen.seq: // somebody has heard of something meanwhile
	case same:
		e.epoch = seen.epoch
	default:
		e.outdate()
	}
	return same, nil
}

// resync follows every reconnect. With a new session every watch is gone, and everything is read; within the old
// one the library has set the watches again, but what changed in the gap is not taken on trust (it compares with
// the last transaction that any answer mentioned, which may be later than a change whose event was lost with the
// connection), so everything is compared.
func (s *session) resync(fresh bool) {
	if fresh {
		// A new session may be with a server that lags behind the one before.
		if _, err := do(s.ctx, s, "sync", func(c *zk.Conn) (string, error) { return c.Sync("/") }); err != nil {
			s.log.Debug("sync failed", "error", err)
		}
	}
	s.audit(resyncWorkers)
}

// audit compares everything that is watched with the server, and reads what differs.
func (s *session) audit(workers int) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.watches.entries))
	s.mu.Unlock()
	s.each(all, workers, s.compare)
}

// each does something with each of a list, some at a time, for as long as the session is established.
func (s *session) each(all []*entry, workers int, f func(*entry)) {
	work := make(chan *entry)
	var wg sync.WaitGroup
	for range min(workers, len(all)) {
		wg.Go(func() {
			for e := range work {
				f(e)
			}
		})
	}
	for _, e := range all {
		if !s.Established() || s.ctx.Err() != nil {
			break
		}
		work <- e
	}
	close(work)
	wg.Wait()
}

// compare compares a znode with the server, and reads it when it differs from what is known. It is how changes of access control
// lists are noticed, on which no watch fires.
func (s *session) compare(e *entry) {
	s.mu.Lock()
	known, seen := e.known, sightOf(e, s.epoch)
	if e.assumed || !e.armed {
		known = false
		e.outdate()
	}
	s.mu.Unlock()
	if known {
		if same, err := s.verify(s.ctx, e, seen); same || err != nil {
			return
		}
	}
	s.refresh(e)
}

type optionalTicker struct {
	c    <-chan time.Time
	stop func()
}

// newOptionalTicker makes a ticker that never fires when the interval is not positive.
func newOptionalTicker(interval time.Duration) optionalTicker {
	if interval <= 0 {
		return optionalTicker{stop: func() {}}
	}
	ticker := time.NewTicker(interval)
	return optionalTicker{c: ticker.C, stop: ticker.Stop}
}
