package server

import (
	"sync"

	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// outbox holds messages, and replies to make messages of, until they are sent. Adding never waits: what the engine tells
// must not.
type outbox struct {
	// rouse wakes whoever sends, unless the outbox is corked.
	rouse func()
	wake  chan struct{}

	mu       sync.Mutex
	messages []*leasev1.SessionResponse
	replies  []*sessionCall
	closed   bool
	corked   bool
}

func newOutbox() *outbox {
	o := &outbox{wake: make(chan struct{}, 1)}
	o.rouse = func() {
		o.mu.Lock()
		corked := o.corked
		o.mu.Unlock()
		if !corked {
			o.send()
		}
	}
	return o
}

func (o *outbox) send() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// cork lets messages gather until it is called again to end that.
func (o *outbox) cork(on bool) {
	o.mu.Lock()
	o.corked = on
	o.mu.Unlock()
	if !on {
		o.send()
	}
}

func (o *outbox) add(m *leasev1.SessionResponse) {
	o.mu.Lock()
	o.messages = append(o.messages, m)
	corked := o.corked
	o.mu.Unlock()
	if !corked {
		o.send()
	}
}

// reply returns false if the outbox is closed. It does not rouse.
func (o *outbox) reply(c *sessionCall) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.replies = append(o.replies, c)
	}
	return !o.closed
}

// take returns what has come, until there is nothing. The replies may make more messages.
func (o *outbox) take() ([]*leasev1.SessionResponse, []*sessionCall) {
	o.mu.Lock()
	defer o.mu.Unlock()
	messages, replies := o.messages, o.replies
	o.messages, o.replies = nil, nil
	return messages, replies
}

// close takes no more replies, and returns those that have not been taken.
func (o *outbox) close() []*sessionCall {
	o.mu.Lock()
	defer o.mu.Unlock()
	replies := o.replies
	o.replies, o.closed = nil, true
	return replies
}
