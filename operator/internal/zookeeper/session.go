package zookeeper

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync"
	"time"
)

// session is a session with one ensemble under one credential. It reconnects by itself, within the server's session
// while that lives and with a new one after. It knows no chroot: its paths are full ones. It is safe for concurrent use.
type session struct {
	key    string
	target Target
	// views are the Sessions on it, by their chroot. The pool's mutex guards them.
	views  map[string]*Session
	tls    *tls.Config
	ens    *ensemble
	opts   Options
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	slots  chan struct{}

	mu sync.Mutex
	// link is the library's connection. Callbacks of an earlier one are ignored.
	link *link
	// authed tells that conn knows the credential, and resubmits it by itself.
	authed bool
	// ready is closed while requests can be sent.
	ready       chan struct{}
	established bool
	// epoch counts the connections that were lost: what was seen before one of them is compared before it is relied on.
	epoch uint64
	// tried tells that conn reached a server without getting a session yet.
	tried bool
	// downSince is when the session was last lost, or first sought.
	downSince time.Time
	// attempts counts failed attempts to connect in a row.
	attempts int
	// id is the id of the established session, and the last one before.
	id       int64
	lastUsed time.Time
	watches  watches

	looks     looks
	creations creations
}

func newSession(ctx context.Context, key string, target Target, config *tls.Config, ens *ensemble, opts Options) (*session, error) {
	ctx, cancel := context.WithCancel(ctx)
	target.Connect.Chroot = ""
	s := &session{
		key: key, target: target, views: map[string]*Session{}, tls: config, ens: ens, opts: opts, ctx: ctx, cancel: cancel,
		log:       opts.Log.With("ensemble", ens.name, "user", target.Credential.User),
		slots:     make(chan struct{}, opts.MaxInFlight),
		ready:     make(chan struct{}),
		downSince: time.Now(), lastUsed: time.Now(),
		watches: newWatches(),
	}
	if err := s.connect(); err != nil {
		cancel()
		return nil, err
	}
	ens.join(s)
	s.wg.Go(s.guard)
	return s, nil
}

// Established tells whether requests can be sent now.
func (s *session) Established() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.established
}

// guard replaces a connection that finds no session for too long. An ensemble that lost its state (a volume that
// was wiped, a restore) refuses a client that has seen newer transactions by closing the connection, each time and
// for ever; and a credential that cannot be resubmitted wedges the library's loop. A new connection has seen
// nothing and knows nothing, so it gets through.
func (s *session) guard() {
	limit := max(2*s.opts.SessionTimeout, 4*s.opts.DialTimeout)
	ticker := time.NewTicker(limit / 8)
	defer ticker.Stop()
	audit := newOptionalTicker(s.opts.AuditInterval)
	defer audit.stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-audit.c:
			s.audit(auditWorkers)
			continue
		case <-ticker.C:
		}
		s.mu.Lock()
		stuck := !s.established && time.Since(s.downSince) > limit
		if stuck {
			s.downSince = time.Now()
		}
		s.mu.Unlock()
		if !stuck {
			continue
		}
		s.log.Warn("no session for too long, starting over", "limit", limit)
		if err := s.connect(); err != nil {
			s.log.Error("starting over failed", "error", err)
		}
	}
}

func (s *session) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastUsed = time.Now()
}

func (s *session) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches.entries) == 0 && time.Since(s.lastUsed) > s.opts.IdleTimeout
}

// close ends the session with the server.
func (s *session) close() {
	s.ens.leave(s)
	s.cancel()
	s.mu.Lock()
	l, id, was := s.link, s.id, s.established
	s.link, s.established = nil, false
	s.opts.Metrics.watching(s.ens.name, -len(s.watches.entries))
	s.watches = newWatches()
	s.mu.Unlock()
	s.wg.Wait()
	if l != nil {
		l.close()
	}
	if was {
		s.opts.Metrics.sessionDown(s.ens.name, id)
	}
	s.log.Info("session closed", "session", sessionLabel(id))
}
