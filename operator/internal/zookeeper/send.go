package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// await returns the connection once requests can be sent. It does not wait when the session has failed to connect so often that
// it would have opened the breaker were it the only one.
func (s *session) await(ctx context.Context) (*zk.Conn, error) {
	opened := s.ens.openedChan()
	for {
		s.mu.Lock()
		l, ready, established := s.link, s.ready, s.established
		failing := s.attempts >= int(s.opts.BreakerFailures)
		s.lastUsed = time.Now()
		s.mu.Unlock()
		if established {
			return l.conn, nil
		}
		if failing {
			return nil, &UnavailableError{Ensemble: s.ens.name, Err: errFailing}
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
func (s *session) ended(ctx context.Context, own error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return &UnavailableError{Ensemble: s.ens.name, Err: own}
}

// do makes one request: refused at once while the breaker is open, within the deadline otherwise.
func do[T any](ctx context.Context, s *session, op string, call func(*zk.Conn) (T, error)) (T, error) {
	return doIf(ctx, s, nil, op, call)
}

// doIf makes a request unless, once it can be sent, still does not return nil.
func doIf[T any](ctx context.Context, s *session, still func() error, op string, call func(*zk.Conn) (T, error)) (T, error) {
	var none T
	if !s.ens.breaker.closed() {
		return none, &UnavailableError{Ensemble: s.ens.name, Open: true, Err: errBreakerOpen}
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.RequestTimeout)
	defer cancel()
	if ctx.Err() != nil {
		return none, s.ended(ctx, errDeadline) // and not sent: nobody waits for it
	}
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
	if still != nil {
		if err := still(); err != nil {
			return none, fmt.Errorf("%s: %w", op, err)
		}
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
func send[T any](ctx context.Context, s *session, conn *zk.Conn, op string, call func(*zk.Conn) (T, error)) (T, error) {
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
func (s *session) ping(ctx context.Context) error {
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
