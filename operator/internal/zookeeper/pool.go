package zookeeper

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Pool holds the sessions of a process. It is safe for concurrent use; New makes one.
type Pool struct {
	opts   Options
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	sessions map[string]*session
	// ensembles are by servers and TLS settings: see Target.ensembleKey.
	ensembles map[string]*ensemble
}

// New makes a pool without sessions. Close ends it.
func New(opts Options) *Pool {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Pool{
		opts: opts.withDefaults(), ctx: ctx, cancel: cancel,
		sessions: map[string]*session{}, ensembles: map[string]*ensemble{},
	}
	p.wg.Go(p.sweep)
	return p
}

// Session returns the session of a target, and starts to connect when there is none yet. Targets that differ in nothing but
// their chroot share a connection. It does not wait. It fails for a target that cannot work (TLS that does not parse), with
// ErrTooManySessions, and once the pool is closed.
func (p *Pool) Session(target Target) (*Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, &UnavailableError{Ensemble: target.Connect.Ensemble(), Err: errClosed}
	}
	on, ok := p.sessions[target.Key()]
	if ok {
		on.touch()
	} else {
		var err error
		if on, err = p.open(target); err != nil {
			return nil, err
		}
	}
	chroot := target.Connect.Chroot
	if on.views[chroot] == nil {
		on.views[chroot] = &Session{on: on, target: target}
	}
	return on.views[chroot], nil
}

// open makes a session. The mutex is held.
func (p *Pool) open(target Target) (*session, error) {
	if len(p.sessions) >= p.opts.MaxSessions && !target.Own {
		return nil, fmt.Errorf("%w: %d", ErrTooManySessions, p.opts.MaxSessions)
	}
	config, err := target.TLS.Config()
	if err != nil {
		return nil, err
	}
	key, ens := target.Key(), p.ensembleOf(target)
	on, err := newSession(p.ctx, key, target, config, ens, p.opts)
	if err != nil {
		return nil, fmt.Errorf("start a session with ZooKeeper %s: %w", ens.name, err)
	}
	p.sessions[key] = on
	return on, nil
}

// ensembleOf returns what the sessions with the servers of a target share. The mutex is held.
func (p *Pool) ensembleOf(target Target) *ensemble {
	key := target.ensembleKey()
	ens, ok := p.ensembles[key]
	if !ok {
		ens = newEnsemble(p.ctx, target.Connect.Ensemble(), p.opts)
		p.ensembles[key] = ens
		p.wg.Go(ens.prober)
	}
	return ens
}

// Sessions returns the number of sessions.
func (p *Pool) Sessions() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sessions)
}

// Close ends all sessions. It returns when they are closed or when ctx ends, with its error.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	all := p.sessions
	p.sessions = map[string]*session{}
	p.mu.Unlock()
	p.cancel()
	for _, session := range all {
		p.wg.Go(session.close)
	}
	done := make(chan struct{})
	go func() {
		p.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("closing %d ZooKeeper sessions: %w", len(all), ctx.Err())
	}
}

// sweep closes sessions that nobody uses any more: those of credentials that were rotated, and of ensembles that
// the last object left.
func (p *Pool) sweep() {
	ticker := time.NewTicker(max(p.opts.IdleTimeout/4, 10*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-ticker.C:
		}
		for _, session := range p.takeIdle() {
			p.wg.Go(session.close)
		}
	}
}

func (p *Pool) takeIdle() []*session {
	p.mu.Lock()
	defer p.mu.Unlock()
	var idle []*session
	used := map[*ensemble]bool{}
	for key, session := range p.sessions {
		if session.idle() {
			idle = append(idle, session)
			delete(p.sessions, key)
			continue
		}
		used[session.ens] = true
	}
	for key, ens := range p.ensembles {
		if !used[ens] {
			ens.end()
			delete(p.ensembles, key)
		}
	}
	return idle
}
