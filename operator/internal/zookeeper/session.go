package zookeeper

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// link is one connection of the library. Its first events can precede zk.Connect's return, so conn is read only after
// set is closed.
type link struct {
	set  chan struct{}
	conn *zk.Conn
}

// Session is a session with one ensemble under one credential. It reconnects by itself, within the server's session
// while that lives and with a new one after. It is safe for concurrent use; Pool.Session makes one.
type Session struct {
	key    string
	target Target
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
}

func newSession(ctx context.Context, key string, target Target, config *tls.Config, ens *ensemble, opts Options) (*Session, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &Session{
		key: key, target: target, tls: config, ens: ens, opts: opts, ctx: ctx, cancel: cancel,
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

// Target returns what the session was made for.
func (s *Session) Target() Target { return s.target }

// Key identifies the session; it holds no secret.
func (s *Session) Key() string { return s.key }

// Established tells whether requests can be sent now.
func (s *Session) Established() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.established
}

// connect starts a connection of the library, in place of the one there was.
func (s *Session) connect() error {
	next := &link{set: make(chan struct{})}
	s.mu.Lock()
	old := s.link
	s.link = next
	s.authed, s.tried = false, false
	s.watches.disarmAll()
	s.mu.Unlock()

	dialer := &dialer{ctx: s.ctx, timeout: s.opts.DialTimeout, tls: s.tls, pace: s.pace}
	conn, _, err := zk.Connect(s.target.Connect.Hosts, s.opts.SessionTimeout,
		zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			c, err := dialer.dial(network, address, timeout)
			if err != nil {
				s.failed(next, err)
			}
			return c, err
		}),
		zk.WithHostProvider(&hostProvider{flushAfter: s.opts.RequestTimeout / 2, now: time.Now}),
		zk.WithLogger(libraryLog{s.log}),
		zk.WithLogInfo(false),
		zk.WithEventCallback(func(event zk.Event) { s.on(next, event) }),
	)
	if err != nil {
		return err
	}
	next.conn = conn
	close(next.set)
	if old != nil {
		// Close waits for a loop that may be wedged; nothing of ours waits for it.
		go old.close()
	}
	return nil
}

// close ends the connection, once there is one.
func (l *link) close() {
	select {
	case <-l.set:
		l.conn.Close()
	default:
	}
}

// guard replaces a connection that finds no session for too long. An ensemble that lost its state (a volume that
// was wiped, a restore) refuses a client that has seen newer transactions by closing the connection, each time and
// for ever; and a credential that cannot be resubmitted wedges the library's loop. A new connection has seen
// nothing and knows nothing, so it gets through.
func (s *Session) guard() {
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

// pace is the wait before the next attempt to connect: none in the first round of the servers.
func (s *Session) pace() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return backoff(s.attempts-len(s.target.Connect.Hosts)+1, 50*time.Millisecond, s.opts.MaxBackoff)
}

// failed counts an attempt to connect that failed.
func (s *Session) failed(l *link, cause error) {
	s.mu.Lock()
	current := l == s.link && s.ctx.Err() == nil
	if current {
		s.attempts++
	}
	s.mu.Unlock()
	if current {
		s.log.Debug("connecting failed", "error", cause)
		s.ens.breaker.record(false)
	}
}

// on takes the library's events. It is called from the library's loops, and must not block.
func (s *Session) on(l *link, event zk.Event) {
	s.mu.Lock()
	stale := l != s.link
	s.mu.Unlock()
	if stale {
		return
	}
	if event.Type != zk.EventSession {
		s.opts.Metrics.event(s.ens.name, event.Type)
		s.watched(event)
		return
	}
	switch event.State {
	case zk.StateConnected:
		s.mu.Lock()
		s.tried = true
		s.mu.Unlock()
	case zk.StateHasSession:
		s.hasSession(l, event.Server)
	case zk.StateExpired:
		s.mu.Lock()
		// The server answered: that is no failure.
		s.tried, s.attempts = false, 0
		id := s.id
		s.mu.Unlock()
		s.log.Warn("session expired", "session", sessionLabel(id))
	case zk.StateDisconnected:
		s.lost(l, event.Server)
	default:
		// Connecting: the dialer tells of its failure. The other states belong to other clients.
	}
}

// hasSession submits the credential to a new connection, which afterwards does it by itself, and then lets requests
// through: none may be sent without it, for the server would create znodes as somebody else.
func (s *Session) hasSession(l *link, server string) {
	s.mu.Lock()
	s.tried = false
	s.mu.Unlock()
	go func() {
		<-l.set
		if err := s.authenticate(l); err != nil {
			s.log.Warn("submitting the credential failed", "error", err)
			return
		}
		s.open(l, server)
	}()
}

func (s *Session) authenticate(l *link) error {
	s.mu.Lock()
	done := s.authed || s.target.Credential == (Credential{})
	s.mu.Unlock()
	if done {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.opts.RequestTimeout)
	defer cancel()
	auth := []byte(s.target.Credential.User + ":" + s.target.Credential.Password)
	_, err := send(ctx, s, l.conn, "auth", func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.AddAuth(zktypes.SchemeDigest, auth)
	})
	return err
}

// open lets requests through.
func (s *Session) open(l *link, server string) {
	s.mu.Lock()
	if l != s.link || s.established || l.conn.State() != zk.StateHasSession {
		s.mu.Unlock()
		return
	}
	s.authed, s.established, s.attempts = true, true, 0
	before := s.id
	s.id = l.conn.SessionID()
	id := s.id
	close(s.ready)
	s.mu.Unlock()
	s.opts.Metrics.sessionUp(s.ens.name, id)
	s.log.Info("session established", "session", sessionLabel(id), "server", server, "resumed", before == id)
	s.ens.breaker.record(true)
	s.ens.isUp()
	go s.resync(before != id)
}

// lost holds requests back until there is a session again.
func (s *Session) lost(l *link, server string) {
	s.mu.Lock()
	if l != s.link {
		s.mu.Unlock()
		return
	}
	was, tried, id := s.established, s.tried, s.id
	s.tried = false
	if was {
		s.established = false
		s.downSince = time.Now()
		s.ready = make(chan struct{})
	}
	s.mu.Unlock()
	if was {
		s.opts.Metrics.sessionDown(s.ens.name, id)
		s.log.Warn("connection lost", "session", sessionLabel(id), "server", server)
	}
	if tried {
		s.failed(l, errors.New("the server closed the connection without granting a session"))
	}
}

// await returns the connection once requests can be sent.
func (s *Session) await(ctx context.Context) (*zk.Conn, error) {
	opened := s.ens.openedChan()
	for {
		s.mu.Lock()
		l, ready, established := s.link, s.ready, s.established
		s.lastUsed = time.Now()
		s.mu.Unlock()
		if established {
			return l.conn, nil
		}
		select {
		case <-ready:
		case <-opened:
			return nil, &UnavailableError{Ensemble: s.ens.name, Open: true, Err: errBreakerOpen}
		case <-s.ctx.Done():
			return nil, &UnavailableError{Ensemble: s.ens.name, Err: errClosed}
		case <-ctx.Done():
			return nil, s.ended(ctx, errNoSession)
		}
	}
}

// ended tells the end of our own deadline from the end of the caller's context.
func (s *Session) ended(ctx context.Context, own error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return &UnavailableError{Ensemble: s.ens.name, Err: own}
}

// do makes one request: refused at once while the breaker is open, within the deadline otherwise.
func do[T any](ctx context.Context, s *Session, op string, call func(*zk.Conn) (T, error)) (T, error) {
	var none T
	if !s.ens.breaker.closed() {
		return none, &UnavailableError{Ensemble: s.ens.name, Open: true, Err: errBreakerOpen}
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.RequestTimeout)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return none, s.ended(ctx, errDeadline)
	}
	conn, err := s.await(ctx)
	if err != nil {
		return none, err
	}
	out, err := send(ctx, s, conn, op, call)
	var unavailable *UnavailableError
	switch {
	case err == nil || answered(err):
		s.ens.breaker.record(true)
	case errors.As(err, &unavailable):
		s.ens.breaker.record(false)
	}
	return out, err
}

// send makes one request on a connection. The library's calls know no deadline, so the call is left behind when
// ctx ends: it returns when the library gives up on it, which the hostProvider sees to.
func send[T any](ctx context.Context, s *Session, conn *zk.Conn, op string, call func(*zk.Conn) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	start := time.Now()
	s.opts.Metrics.flying(s.ens.name, 1)
	defer s.opts.Metrics.flying(s.ens.name, -1)
	done := make(chan result, 1)
	go func() {
		value, err := call(conn)
		done <- result{value, err}
	}()
	var out result
	select {
	case out = <-done:
		if connectivity(out.err) {
			out.err = &UnavailableError{Ensemble: s.ens.name, Err: out.err}
		}
	case <-ctx.Done():
		out.err = s.ended(ctx, errDeadline)
	}
	s.opts.Metrics.request(s.ens.name, op, out.err, time.Since(start).Seconds())
	if out.err != nil {
		var none T
		return none, fmt.Errorf("%s: %w", op, out.err)
	}
	return out.value, nil
}

// ping is the probe: a read of the root, past the breaker.
func (s *Session) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(s.opts.DialTimeout, s.opts.RequestTimeout))
	defer cancel()
	s.mu.Lock()
	l, established := s.link, s.established
	s.mu.Unlock()
	if !established {
		return &UnavailableError{Ensemble: s.ens.name, Err: errNoSession}
	}
	_, err := send(ctx, s, l.conn, "ping", func(c *zk.Conn) (bool, error) {
		found, _, err := c.Exists("/")
		return found, err
	})
	return err
}

func (s *Session) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastUsed = time.Now()
}

func (s *Session) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches.entries) == 0 && time.Since(s.lastUsed) > s.opts.IdleTimeout
}

// close ends the session with the server.
func (s *Session) close() {
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

// libraryLog passes what the library logs to the structured log, at the level of details: what matters of it is
// logged from its events.
type libraryLog struct{ log *slog.Logger }

// Printf logs one line.
func (l libraryLog) Printf(format string, args ...any) {
	l.log.Debug("zk: " + fmt.Sprintf(format, args...))
}
