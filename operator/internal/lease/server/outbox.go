package server

import (
	"sync"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

const (
	// batchMessages and batchBytes bound what is sent as one message. gRPC clients take 4 MiB unless told otherwise.
	batchMessages = 256
	batchBytes    = 1 << 20
	// outboxMost is from how many messages on, those that show a line or summaries counting for as many more as there are in them, the
	// client's own messages have to wait: it reads slower than it asks.
	outboxMost = 4096
	// outboxBytes is from how many bytes of values on they have to, since there may be 64 KiB in each of the messages.
	outboxBytes = 16 << 20
)

// outbox holds messages, and replies to make messages of, until they are sent. Adding never waits: what the engine tells
// must not.
type outbox struct {
	// rouse wakes whoever sends, unless the outbox is corked.
	rouse func()
	wake  chan struct{}
	// taken wakes the one who waits until it is not full.
	taken chan struct{}

	mu       sync.Mutex
	messages []*leasev1.SessionResponse
	lines    int // how many waiters and summaries the messages show
	bytes    int // how long the values are that the messages show
	replies  []*sessionCall
	closed   bool
	corked   bool
}

func newOutbox() *outbox {
	o := &outbox{wake: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
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
	gathered := len(o.messages)+len(o.replies) > 0
	o.mu.Unlock()
	if !on && gathered {
		o.send()
	}
}

func (o *outbox) add(m *leasev1.SessionResponse) {
	o.mu.Lock()
	o.messages = append(o.messages, m)
	o.lines += len(m.GetGotMany().GetLeases())
	if got := m.GetGot(); got != nil {
		o.lines += len(got.GetLease().GetQueue())
		for _, h := range got.GetLease().GetHolds() {
			o.bytes += len(h.GetValue())
		}
	}
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
	o.messages, o.lines, o.bytes, o.replies = nil, 0, 0, nil
	select {
	case o.taken <- struct{}{}:
	default:
	}
	return messages, replies
}

// full says whether the client is to read before it asks for more.
func (o *outbox) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.messages)+o.lines+len(o.replies) >= outboxMost || o.bytes >= outboxBytes
}

// close takes no more replies, and returns those that have not been taken.
func (o *outbox) close() []*sessionCall {
	o.mu.Lock()
	defer o.mu.Unlock()
	replies := o.replies
	o.replies, o.closed = nil, true
	return replies
}

// flush answers and sends all there is in the outbox: together, to a client that takes it so. Answers make messages, so the replies
// come first.
func (ss *sessionStream) flush(stream grpc.ServerStreamingServer[leasev1.SessionResponse]) error {
	for {
		messages, replies := ss.out.take()
		if len(messages)+len(replies) == 0 {
			return nil
		}
		for _, call := range replies {
			call.answer()
		}
		if len(replies) > 0 && ss.batches {
			more, late := ss.out.take()
			messages = append(messages, more...)
			for _, call := range late {
				call.answer() // its message comes with the next
			}
		}
		for len(messages) > 0 {
			n := 1
			if ss.batches {
				n = together(messages)
			}
			if err := stream.Send(joined(messages[:n])); err != nil {
				return err
			}
			messages = messages[n:]
		}
	}
}

// together says how many of the messages, from the first on, go into one batch.
func together(messages []*leasev1.SessionResponse) int {
	bytes := 0
	for i, m := range messages {
		if m.GetGot() != nil || m.GetGotMany() != nil || m.GetQueued() != nil || m.GetRefused() != nil || m.GetHeartbeatAck().GetOthers() != nil {
			bytes += m.SizeVT() // others are small
		}
		if i > 0 && (i == batchMessages || bytes > batchBytes) {
			return i
		}
	}
	return len(messages)
}

// joined makes one message of several.
func joined(messages []*leasev1.SessionResponse) *leasev1.SessionResponse {
	if len(messages) == 1 {
		return messages[0]
	}
	return &leasev1.SessionResponse{Message: &leasev1.SessionResponse_Batch{Batch: &leasev1.SessionResponseBatch{Responses: messages}}}
}
