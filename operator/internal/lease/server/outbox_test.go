package server

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/operator/internal/lease/clock"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// eager is the stream of a client that sends what it has and reads nothing.
type eager struct {
	grpc.BidiStreamingServer[leasev1.SessionRequest, leasev1.SessionResponse]
	requests chan *leasev1.SessionRequest
}

func (e eager) Recv() (*leasev1.SessionRequest, error) {
	if r, ok := <-e.requests; ok {
		return r, nil
	}
	return nil, io.EOF
}

// A client that asks and does not read cannot make the answers grow without end, and gets all of them once it reads.
func TestTheOutboxIsBounded(t *testing.T) {
	const many = 3*outboxMost + 10
	get := &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Get{Get: &leasev1.GetRequest{Name: "../refused"}}}
	batch := &leasev1.SessionRequestBatch{}
	for range many {
		batch.Requests = append(batch.Requests, get)
	}
	for how, requests := range map[string][]*leasev1.SessionRequest{
		"one by one":   batch.GetRequests(),
		"in one batch": {{Message: &leasev1.SessionRequest_Batch{Batch: batch}}},
	} {
		t.Run(how, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ss := &sessionStream{server: &Server{opts: Options{Clock: clock.Now}}, ctx: ctx, out: newOutbox()}
			stream := eager{requests: make(chan *leasev1.SessionRequest, len(requests))}
			for _, r := range requests {
				stream.requests <- r
			}
			close(stream.requests)
			received := make(chan error, 1)
			go func() { received <- ss.receive(stream) }()
			for got := 0; got < many; {
				require.Eventually(t, func() bool {
					ss.out.mu.Lock()
					defer ss.out.mu.Unlock()
					return len(ss.out.messages) == min(outboxMost, many-got) && !ss.out.corked
				}, 30*time.Second, time.Millisecond, "it waits, and lets what there is be sent")
				<-ss.out.wake
				messages, _ := ss.out.take()
				got += len(messages)
				assert.LessOrEqual(t, len(messages), outboxMost)
			}
			require.ErrorIs(t, <-received, io.EOF)
		})
	}
}

// Few messages may be as much as many.
func TestLongValuesFillTheOutbox(t *testing.T) {
	o := newOutbox()
	for n := range outboxBytes / MaxValue {
		require.False(t, o.full(), "after %d", n)
		o.add(&leasev1.SessionResponse{Message: &leasev1.SessionResponse_Got{Got: &leasev1.GetResponse{
			Lease: &leasev1.Lease{Holds: []*leasev1.Hold{{Value: make([]byte, MaxValue)}}},
		}}})
	}
	require.True(t, o.full())
	o.take()
	require.False(t, o.full())
}

// A stream that ends is not held up by a client that does not read.
func TestAFullOutboxEndsWithTheStream(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ss := &sessionStream{server: &Server{opts: Options{Clock: clock.Now}}, ctx: ctx, out: newOutbox()}
	queue := make([]*leasev1.Waiter, outboxMost)
	ss.send(1, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_Got{Got: &leasev1.GetResponse{Lease: &leasev1.Lease{Queue: queue}}}})
	require.True(t, ss.out.full(), "a line counts as much as messages")
	done := make(chan struct{})
	go func() { ss.awaitRoom(); close(done) }()
	require.Never(t, func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}, 50*time.Millisecond, time.Millisecond)
	cancel()
	<-done
	ss.out.take()
	require.False(t, ss.out.full())
}
