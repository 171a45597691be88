package zookeeper

import (
	"context"
	"sync"
	"time"
)

// ensemble is what the sessions with the same servers under the same TLS settings share: the breaker and its prober.
type ensemble struct {
	name    string
	opts    Options
	ctx     context.Context
	cancel  context.CancelFunc
	breaker *breaker

	// up gets a token when a session is established.
	up chan struct{}

	// announcing is held while an opening or a closing is told: one after the other, in the order in which they are seen.
	announcing sync.Mutex

	mu       sync.Mutex
	sessions map[*session]struct{}
	// open and turns are the state of the breaker that was told last, and opened is closed while it is open.
	open   bool
	turns  int
	opened chan struct{}
	// ended tells that the ensemble is used no more.
	ended bool
}

func newEnsemble(ctx context.Context, name string, opts Options) *ensemble {
	ctx, cancel := context.WithCancel(ctx)
	e := &ensemble{
		name: name, opts: opts, ctx: ctx, cancel: cancel,
		up: make(chan struct{}, 1), sessions: map[*session]struct{}{}, opened: make(chan struct{}),
	}
	e.breaker = newBreaker(name, opts.BreakerFailures, e.turned)
	return e
}

// turned follows the breaker: requests that wait are released, and everybody who watches something on the ensemble
// is told, once at each opening and once at each closing. Of a breaker that has turned back before anybody was told all are told
// once all the same: somebody may have looked in between.
func (e *ensemble) turned() {
	e.announcing.Lock()
	defer e.announcing.Unlock()
	open, turns := e.breaker.state()
	e.mu.Lock()
	if turns == e.turns || e.ended {
		e.mu.Unlock()
		return
	}
	other := open != e.open
	e.open, e.turns = open, turns
	switch {
	case other && open:
		close(e.opened)
	case other:
		e.opened = make(chan struct{})
	}
	sessions := make([]*session, 0, len(e.sessions))
	for session := range e.sessions {
		sessions = append(sessions, session)
	}
	e.mu.Unlock()
	switch {
	case other && open:
		e.opts.Metrics.breaker(e.name, true)
		e.opts.Log.Warn("circuit breaker opened", "ensemble", e.name)
	case other:
		e.opts.Metrics.breaker(e.name, false)
		e.opts.Log.Info("circuit breaker closed", "ensemble", e.name)
	}
	for _, session := range sessions {
		session.notifyAll()
	}
}

func (e *ensemble) openedChan() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.opened
}

func (e *ensemble) join(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sessions[s] = struct{}{}
}

func (e *ensemble) leave(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.sessions, s)
}

// isUp wakes the prober.
func (e *ensemble) isUp() {
	select {
	case e.up <- struct{}{}:
	default:
	}
}

// end is called when the last session has left.
func (e *ensemble) end() {
	e.cancel()
	e.announcing.Lock()
	defer e.announcing.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open {
		e.opts.Metrics.breaker(e.name, false)
	}
	e.ended = true
}

// prober probes whenever the breaker is open, until the ensemble ends. It alone closes the breaker.
func (e *ensemble) prober() {
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-e.openedChan():
			e.probe()
		}
	}
}

// probe tries until the breaker closes: at once when a session is established, else with back-off.
func (e *ensemble) probe() {
	for attempt := 1; !e.breaker.closed(); attempt++ {
		timer := time.NewTimer(backoff(attempt, 100*time.Millisecond, e.opts.MaxBackoff))
		select {
		case <-e.ctx.Done():
			timer.Stop()
			return
		case <-e.up:
			timer.Stop()
		case <-timer.C:
		}
		// Without a session there is nothing to ask: the dialers are trying, at their own pace.
		if session := e.established(); session != nil {
			e.opts.Metrics.probe(e.name)
			e.breaker.probed(session.ping(e.ctx) == nil)
		}
	}
}

// established returns a session that stands, or nil.
func (e *ensemble) established() *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	for session := range e.sessions {
		if session.Established() {
			return session
		}
	}
	return nil
}
