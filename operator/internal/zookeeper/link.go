package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// link is one connection of the library. Its first events can precede zk.Connect's return, so conn is read only after
// set is closed.
type link struct {
	set    chan struct{}
	conn   *zk.Conn
	dialer *dialer
}

// connect starts a connection of the library, in place of the one there was.
func (s *session) connect() error {
	dialer := &dialer{ctx: s.ctx, timeout: s.opts.DialTimeout, patience: s.opts.SessionTimeout, tls: s.tls, pace: s.pace}
	next := &link{set: make(chan struct{}), dialer: dialer}
	s.mu.Lock()
	old := s.link
	s.link = next
	s.authed, s.tried = false, false
	s.watches.disarmAll()
	s.mu.Unlock()

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
		l.dialer.hangUp()
	default:
	}
}

// pace is the wait before the next attempt to connect: none in the first round of the servers.
func (s *session) pace() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return backoff(s.attempts-len(s.target.Connect.Hosts)+1, 50*time.Millisecond, s.opts.MaxBackoff)
}

// failed counts an attempt to connect that failed. While another session with the ensemble stands it says nothing about that:
// the fault is with this session alone (a server admits only so many connections from one address, for one), and its requests
// are refused by await.
func (s *session) failed(l *link, cause error) {
	s.mu.Lock()
	current := l == s.link && s.ctx.Err() == nil
	if current {
		s.attempts++
	}
	s.mu.Unlock()
	if current {
		s.log.Debug("connecting failed", "error", cause)
		if s.ens.established() == nil {
			s.ens.breaker.record(false)
		}
	}
}

// on takes the library's events. It is called from the library's loops, and must not block.
func (s *session) on(l *link, event zk.Event) {
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
func (s *session) hasSession(l *link, server string) {
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

func (s *session) authenticate(l *link) error {
	s.mu.Lock()
	done := s.authed || s.target.Credential == (Credential{})
	s.mu.Unlock()
	if done {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.opts.RequestTimeout)
	defer cancel()
	for _, auth := range auths(s.target.Credential) {
		_, err := send(ctx, s, l.conn, "auth", func(c *zk.Conn) (struct{}, error) {
			return struct{}{}, c.AddAuth(zktypes.SchemeDigest, auth)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// auths are what is submitted of a credential: the servers take a session for all that it has shown.
func auths(c Credential) [][]byte {
	out := [][]byte{[]byte(c.User + ":" + c.Password)}
	if c.PreviousUser != "" {
		out = append(out, []byte(c.PreviousUser+":"+c.PreviousPassword))
	}
	return out
}

// open lets requests through.
func (s *session) open(l *link, server string) {
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
func (s *session) lost(l *link, server string) {
	s.mu.Lock()
	if l != s.link {
		s.mu.Unlock()
		return
	}
	was, tried, id := s.established, s.tried, s.id
	s.tried = false
	if was {
		s.established = false
		s.epoch++
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

// libraryLog passes what the library logs to the structured log, at the level of details: what matters of it is
// logged from its events.
type libraryLog struct{ log *slog.Logger }

// Printf logs one line.
func (l libraryLog) Printf(format string, args ...any) {
	l.log.Debug("zk: " + fmt.Sprintf(format, args...))
}
