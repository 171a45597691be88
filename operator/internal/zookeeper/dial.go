package zookeeper

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// hostProvider goes round the servers without resolving their names: that is done anew by each dial, so that a
// server which comes back under another address is found. (The library's own provider resolves once.)
type hostProvider struct {
	mu    sync.Mutex
	hosts []string
	next  int
	// down is when the search for a server began; zero while connected.
	down time.Time
	// flushAfter is the length of the search after which requests that were never sent are failed.
	flushAfter time.Duration
	now        func() time.Time
}

// Init keeps the servers as they were shuffled by the library.
func (h *hostProvider) Init(servers []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(servers) == 0 {
		return errors.New("the connect string names no servers")
	}
	h.hosts = append([]string(nil), servers...)
	return nil
}

// Len returns the number of servers.
func (h *hostProvider) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.hosts)
}

// Next returns the next server. It asks the library to fail what is queued (which also makes it pause for a
// second) once the search has lasted so long that callers are giving up: a write that was queued before an outage
// must never be sent after it, when nobody waits for its answer any more.
func (h *hostProvider) Next() (server string, flush bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server = h.hosts[h.next%len(h.hosts)]
	h.next++
	now := h.now()
	if h.down.IsZero() {
		h.down = now
	}
	return server, now.Sub(h.down) >= h.flushAfter
}

// Connected ends the search.
func (h *hostProvider) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = time.Time{}
}

// dialer opens connections for one session.
type dialer struct {
	// ctx ends with the session.
	ctx     context.Context
	timeout time.Duration
	// patience is how long a server may take to accept what is written.
	patience time.Duration
	// tls is nil for plain TCP. ServerName, when empty, is the host that is dialled.
	tls *tls.Config
	// pace says how long to wait before the next attempt.
	pace func() time.Duration

	mu sync.Mutex
	// last is the connection that was made last.
	last *wire
}

// dial waits for its turn and connects. The library calls it from the loop of one connection, one call at a time.
func (d *dialer) dial(network, address string, _ time.Duration) (net.Conn, error) {
	d.hangUp()
	if wait := d.pace(); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-d.ctx.Done():
			return nil, errClosed
		}
	}
	ctx, cancel := context.WithTimeout(d.ctx, d.timeout)
	defer cancel()
	var (
		conn net.Conn
		err  error
	)
	if d.tls == nil {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
	} else {
		conn, err = (&tls.Dialer{Config: d.tls}).DialContext(ctx, network, address)
	}
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	w := newWire(conn, d.timeout, d.patience)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = w
	return w, nil
}

// hangUp closes the last connection. Most often the library has, but it leaves one open whose session has expired.
func (d *dialer) hangUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last != nil {
		_ = d.last.Close() // nothing is asked of it any more
		d.last = nil
	}
}

// backoff is the wait before an attempt, doubling from first to most, with a quarter of jitter.
func backoff(attempt int, first, most time.Duration) time.Duration {
	if attempt <= 0 {
		return 0
	}
	wait := most
	if attempt <= 16 {
		wait = min(first<<(attempt-1), most)
	}
	return wait*3/4 + rand.N(wait/4+1)
}
