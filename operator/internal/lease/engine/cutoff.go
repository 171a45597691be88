package engine

import (
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
)

// CutOffError says that this replica has not been certain of its session with the store for as long as others need to take its shards over. It
// is an ErrUncertain; but where that may be over in a moment, now others can do what this replica cannot.
type CutOffError struct {
	// For is how long the session must have been uncertain: its TTL.
	For time.Duration
	// Reason is what is wrong with the store, if that is known.
	Reason string
}

func (e *CutOffError) Error() string {
	text := fmt.Sprintf("%s for more than %s, so others may serve by now", ErrUncertain, e.For)
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// Is makes it an ErrUncertain.
func (e *CutOffError) Is(target error) bool { return target == ErrUncertain }

// cutOff says whether this replica is cut off from the store. The zero value: it is not.
type cutOff struct {
	mu sync.Mutex
	// begun is closed when it is; nil while nobody waits for that.
	begun chan struct{}
	err   *CutOffError
	// certain is until when the session was certain last, and ttl is its TTL; 0: there was none yet. Only tick uses them.
	certain core.Instant
	ttl     time.Duration
}

// CutOff returns a channel that is closed when this replica is cut off from the store; then CutOffError says why. A replica that never had a
// session is not cut off: it only begins.
func (e *Engine) CutOff() <-chan struct{} {
	c := &e.cut
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun == nil {
		c.begun = make(chan struct{})
		if c.err != nil {
			close(c.begun)
		}
	}
	return c.begun
}

// CutOffError returns why this replica is cut off, as a *CutOffError; nil: it is not.
func (e *Engine) CutOffError() error {
	e.cut.mu.Lock()
	defer e.cut.mu.Unlock()
	if e.cut.err == nil {
		return nil
	}
	return e.cut.err
}

// uncertain is what a call fails with while the session is not certain.
func (e *Engine) uncertain() error {
	if err := e.CutOffError(); err != nil {
		return err
	}
	return ErrUncertain
}

// lookCut finds out whether this replica is cut off, and if so answers all who wait: their clients can only get what they want elsewhere, and
// would not go there while they wait here.
func (e *Engine) lookCut(now core.Instant) {
	c := &e.cut
	if s := e.session.Load(); s != nil {
		c.certain, c.ttl = s.certainUntil(), s.ttl
	}
	off := c.ttl > 0 && now >= c.certain.Add(c.ttl)
	c.mu.Lock()
	was := c.err
	switch {
	case off && was == nil:
		c.err = &CutOffError{For: c.ttl}
		if why := e.waiting.Load(); why != nil {
			c.err.Reason = *why
		}
		if c.begun != nil {
			close(c.begun)
		}
	case !off && was != nil:
		c.err, c.begun = nil, nil
	}
	err := c.err
	c.mu.Unlock()
	if err == nil || was != nil {
		return
	}
	e.opts.Log.Warn("cut off from the store: all who wait here are told to go elsewhere", "error", err)
	slots := e.table()
	for i := range slots {
		slots[i].abandon(e, now, err)
	}
}

// abandon answers all calls. What they asked for may happen yet, but who waits in line does so no more, and a grant that is being committed is
// given back.
func (s *slot) abandon(e *Engine, now core.Instant, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shard == nil {
		return
	}
	calls := s.calls
	s.calls = map[core.Ticket]*Call{}
	for ticket, call := range calls {
		s.shard.Cancel(now, call.name, ticket, &s.out)
		if wake := call.to.Receive(call, core.Reply{Err: err}); wake != nil {
			wake()
		}
	}
	s.deliver(e)
}
