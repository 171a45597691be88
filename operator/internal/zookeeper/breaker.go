package zookeeper

import (
	"errors"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// breaker is the circuit breaker of one ensemble, shared by its sessions.
//
// The counting is gobreaker's. What differs from its usual use: nobody's request is ever the probe. While it is
// open every request is refused, and ensemble.probe alone tries, so that ten thousand waiting objects cost one
// probe and not ten thousand, and so that a session that comes back closes it at once instead of after a timeout.
type breaker struct {
	cb *gobreaker.CircuitBreaker[struct{}]

	mu sync.Mutex
	// open follows the state of cb, but stays true while it is half open.
	open bool
	// turns counts the openings and closings.
	turns   int
	changed func()
}

// errProbe is what a failed probe counts as.
var errProbe = errors.New("the probe failed")

// newBreaker makes a closed breaker that opens after so many failures in a row. changed is called after each opening and
// each closing, without locks held: the breaker may have turned again by then, and calls may come out of order, so it is to
// look at what the state is.
func newBreaker(name string, failures uint32, changed func()) *breaker {
	b := &breaker{changed: changed}
	b.cb = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name: name,
		// Half open is reached at once: the pace is the prober's.
		Timeout:     time.Nanosecond,
		MaxRequests: 1,
		ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= failures },
	})
	return b
}

// state tells whether the breaker is open, and how often it has turned.
func (b *breaker) state() (open bool, turns int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open, b.turns
}

// closed tells whether requests may be made.
func (b *breaker) closed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.open
}

// record counts the outcome of a request or of an attempt to connect. It does nothing while the breaker is open:
// stragglers of the outage must not count as probes.
func (b *breaker) record(ok bool) { b.execute(ok, false) }

// probed records the outcome of the one probe that is made at a time while the breaker is open. It does nothing while it is
// closed.
func (b *breaker) probed(ok bool) { b.execute(ok, true) }

func (b *breaker) execute(ok, whileOpen bool) {
	b.mu.Lock()
	if b.open != whileOpen {
		b.mu.Unlock()
		return
	}
	// The outcome is known already; the error that comes back is either ours or a refusal, and both are in State.
	_, _ = b.cb.Execute(func() (struct{}, error) {
		if ok {
			return struct{}{}, nil
		}
		return struct{}{}, errProbe
	})
	open := b.cb.State() != gobreaker.StateClosed
	turned := open != b.open
	if b.open = open; turned {
		b.turns++
	}
	b.mu.Unlock()
	if turned && b.changed != nil {
		b.changed()
	}
}
