package zookeeper

import (
	"context"
	"errors"
	"path"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	// maxLooksAlone is the number of znodes below one parent that are looked at one by one at the same time.
	maxLooksAlone = 8
	// minTogether is the least number for which the parent is listed, and maxListed the most children of it for each.
	minTogether = 16
	maxListed   = 64
	// armDelay is the time after which a znode that was not there, and has not been created since, gets its watch.
	armDelay = 100 * time.Millisecond
)

// looks are first looks at znodes, by the parent of these.
//
// A znode that is looked at for the first time is most often not there, and about to be created by us. Few are looked at one by
// one, by a request that sets a watch along. When many wait their parent is listed once for all of them. Nothing is taken
// for absent but what the server, asked after the look began, does not list; what it lists is looked at one by one. Those that are
// absent have no watch yet: the read that follows their creation sets it. Those that are not created get theirs a moment later,
// by a look of its own, which notices whatever happened meanwhile.
type looks struct {
	mu       sync.Mutex
	byParent map[string]*siblings
	// unarmed are the znodes whose watch is still to be set, the oldest first.
	unarmed []unarmed
}

type unarmed struct {
	entry *entry
	due   time.Time
}

// siblings are looks at znodes of one parent.
type siblings struct {
	// flying are the looks under way; a listing counts for one.
	flying  int
	waiting []*waitingLook
}

type waitingLook struct {
	full string
	done chan looked
}

// looked is the outcome of a look. No stat says that the znode does not exist.
type looked struct {
	stat  *zk.Stat
	armed bool
	err   error
}

// look tells whether a znode exists.
func (s *session) look(ctx context.Context, full string) looked {
	parent := path.Dir(full)
	l := &s.looks
	l.mu.Lock()
	if l.byParent == nil {
		l.byParent = map[string]*siblings{}
	}
	group := l.byParent[parent]
	if group == nil {
		group = &siblings{}
		l.byParent[parent] = group
	}
	if group.flying < maxLooksAlone && len(group.waiting) == 0 {
		group.flying++
		l.mu.Unlock()
		defer s.lookEnded(parent)
		return s.lookAlone(ctx, full)
	}
	w := &waitingLook{full: full, done: make(chan looked, 1)}
	group.waiting = append(group.waiting, w)
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.opts.RequestTimeout)
	defer cancel()
	select {
	case out := <-w.done:
		return out
	case <-ctx.Done():
		return looked{err: s.ended(ctx, errDeadline)}
	}
}

// lookEnded lets those go that wait, when nothing is under way any more.
func (s *session) lookEnded(parent string) {
	l := &s.looks
	l.mu.Lock()
	defer l.mu.Unlock()
	group := l.byParent[parent]
	if group.flying--; group.flying > 0 {
		return
	}
	if len(group.waiting) == 0 {
		delete(l.byParent, parent)
		return
	}
	batch := group.waiting
	group.waiting = nil
	group.flying++
	go func() {
		defer s.lookEnded(parent)
		s.lookTogether(parent, batch)
	}()
}

func (s *session) lookAlone(ctx context.Context, full string) looked {
	stat, err := do(ctx, s, "exists", func(c *zk.Conn) (*zk.Stat, error) { return exists(c, full, true) })
	return looked{stat: stat, armed: err == nil, err: err}
}

// lookTogether looks at znodes of one parent, by a listing if that is worth its size.
func (s *session) lookTogether(parent string, batch []*waitingLook) {
	absent, err := s.absentOf(parent, batch)
	var rest sync.WaitGroup
	for _, w := range batch {
		switch {
		case err != nil:
			w.done <- looked{err: err}
		case absent[path.Base(w.full)]:
			w.done <- looked{}
		default:
			rest.Go(func() { w.done <- s.lookAlone(s.ctx, w.full) })
		}
	}
	rest.Wait()
}

// absentOf returns the names of the znodes that their parent does not list. It returns none, so that they are looked at one by
// one, when they are too few for its many children, or when it may not be listed.
func (s *session) absentOf(parent string, batch []*waitingLook) (map[string]bool, error) {
	if len(batch) < minTogether {
		return nil, nil
	}
	stat, err := s.stat(s.ctx, parent)
	if err != nil || stat != nil && int(stat.NumChildren) > maxListed*len(batch) {
		return nil, err
	}
	names, err := do(s.ctx, s, "getChildren", func(c *zk.Conn) ([]string, error) {
		names, _, err := c.Children(parent)
		return names, err
	})
	var away *UnavailableError
	switch {
	case errors.Is(err, zk.ErrNoNode):
		names = nil // whose parent does not exist does not either
	case errors.As(err, &away):
		return nil, err
	case err != nil:
		return nil, nil // whoever looks at one znode needs no permission
	}
	absent := make(map[string]bool, len(batch))
	for _, w := range batch {
		absent[path.Base(w.full)] = true
	}
	for _, name := range names {
		delete(absent, name)
	}
	return absent, nil
}

// armLater sets the watch of a znode after a moment, unless that has been done by then. When the session is lost meanwhile the
// resync does it.
func (s *session) armLater(e *entry) {
	l := &s.looks
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unarmed = append(l.unarmed, unarmed{e, time.Now().Add(armDelay)}); len(l.unarmed) == 1 {
		time.AfterFunc(armDelay, s.armDue)
	}
}

func (s *session) armDue() {
	s.each(s.looks.due(s.armDue), resyncWorkers, func(e *entry) {
		s.mu.Lock()
		// Whoever reads it now arms it, and who writes it reads it after.
		left := s.watches.entries[e.path] == e && !e.armed && e.reading == nil && e.writers == 0
		if left {
			e.outdate()
		}
		s.mu.Unlock()
		if left {
			s.refresh(e)
		}
	})
}

// due returns the znodes whose moment has passed, and calls again when that of the next one has.
func (l *looks) due(again func()) []*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	var due []*entry
	for len(l.unarmed) > 0 && !now.Before(l.unarmed[0].due) {
		due = append(due, l.unarmed[0].entry)
		l.unarmed[0] = unarmed{}
		l.unarmed = l.unarmed[1:]
	}
	if len(l.unarmed) == 0 {
		l.unarmed = nil
	} else {
		time.AfterFunc(l.unarmed[0].due.Sub(now), again)
	}
	return due
}
