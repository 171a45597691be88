package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	spb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// errBroken is the answer to calls whose stream broke. They are made again on the next one.
var errBroken = errors.New("the session's stream broke")

// ErrSessionClosed is what calls of a closed session return.
var ErrSessionClosed = errors.New("the session is closed")

type stream = grpc.BidiStreamingClient[leasev1.SessionRequest, leasev1.SessionResponse]

// Session keeps any number of leases alive by one heartbeat on one stream. When the stream breaks it opens
// another and takes its leases along; they are lost only if that does not succeed before their TTL has passed. Its methods are
// safe for concurrent use.
type Session struct {
	client *Client
	open   *leasev1.SessionOpen
	ctx    context.Context //nolint:containedctx // ends with the session
	cancel context.CancelCauseFunc
	ready  chan struct{} // closed when the first stream is open
	once   sync.Once
	ended  chan struct{} // closed when run has ended

	posted chan struct{} // tells write of messages in queue
	hurry  chan struct{} // tells beat of a shorter interval

	mu      sync.Mutex
	closing bool
	stream  stream // nil while there is none
	// queue has the messages that are to be sent on it.
	queue []*leasev1.SessionRequest
	// unattached are the leases that the stream is to be asked to take in, before what is in queue if attachTurn; attaching are those that it was asked
	// for, by the ids of the requests, and deferred those that it could not take in yet, which wait for attachPause, until attachAt.
	unattached  []leaseKey
	attachTurn  bool
	attaching   map[uint64]attaching
	deferred    []leaseKey
	attachPause time.Duration
	attachAt    core.Instant
	// attachedUntil is when the first of the leases ends that the message being handled says are taken in; 0: it says of none.
	attachedUntil core.Instant
	// breakStream ends the stream when it does not answer.
	breakStream func()
	fresh       chan struct{}
	id          uint64
	calls       map[uint64]call
	leases      map[leaseKey]*kept
	// beats are the heartbeats that have no answer yet, and last is when the last one was sent.
	beats    map[uint64]core.Instant
	last     core.Instant
	beatDue  bool // at once, however long ago that is
	interval time.Duration
}

// NewSession opens a session, and waits until it is open or the context ends. Of the options, WithTTL and WithHolder apply:
// they are the defaults of its leases.
func (c *Client) NewSession(ctx context.Context, options ...Option) (*Session, error) {
	defaults := &leasev1.AcquireRequest{}
	for _, option := range options {
		option(defaults)
	}
	s := &Session{
		client: c, open: &leasev1.SessionOpen{Holder: defaults.GetHolder(), Ttl: defaults.GetTtl()},
		ready: make(chan struct{}), ended: make(chan struct{}), fresh: make(chan struct{}),
		posted: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
		calls: map[uint64]call{}, leases: map[leaseKey]*kept{}, beats: map[uint64]core.Instant{},
		attaching: map[uint64]attaching{},
	}
	s.ctx, s.cancel = context.WithCancelCause(c.ctx)
	go s.run()
	go s.beat()
	select {
	case <-s.ready:
		return s, nil
	case <-s.ended:
		return nil, fmt.Errorf("open a session: %w", context.Cause(s.ctx))
	case <-ctx.Done():
		s.cancel(ErrSessionClosed)
		return nil, fmt.Errorf("open a session: %w", ctx.Err())
	}
}

// Acquire waits in line for a lease until it is granted or the context ends. The session keeps it until it is
// released or lost.
func (s *Session) Acquire(ctx context.Context, name string, options ...Option) (*Lease, error) {
	return s.acquire(ctx, name, &leasev1.Wait{}, options)
}

// TryAcquire is Acquire without waiting: it fails with *HeldError if the lease is not free.
func (s *Session) TryAcquire(ctx context.Context, name string, options ...Option) (*Lease, error) {
	return s.acquire(ctx, name, nil, options)
}

func (s *Session) acquire(ctx context.Context, name string, wait *leasev1.Wait, options []Option) (*Lease, error) {
	req := &leasev1.AcquireRequest{Name: name, RequestId: NewRequestID(), Wait: wait, Ttl: s.open.GetTtl()}
	for _, option := range options {
		option(req)
	}
	began := now()
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		keepPlace(req, began)
		got, err := s.ask(ctx, &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Acquire{Acquire: req}})
		if err != nil {
			return nil, fmt.Errorf("lease %q: %w", name, err)
		}
		if got.lease != nil {
			return s.adopt(ctx, got.lease)
		}
		err = refusal(got.response)
		if requestEnded(err) {
			req.RequestId = NewRequestID()
		} else if status.Code(err) != codes.Unavailable {
			return nil, Typed(name, err)
		}
		if !sleep(ctx, jittered(pause)) {
			return nil, Typed(name, err)
		}
	}
}

func refusal(r *leasev1.SessionResponse) error {
	refused := r.GetRefused()
	return status.FromProto(&spb.Status{Code: refused.GetCode(), Message: refused.GetMessage(), Details: refused.GetDetails()}).Err()
}

// Close releases all leases and ends the session. It waits until the service has confirmed that or the context ends; then the
// leases expire by themselves.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.giveBackUnattached()
	for key := range s.leases {
		s.lose(key, ErrReleased)
	}
	s.closing = true
	connected := s.stream != nil
	s.mu.Unlock()
	defer s.cancel(ErrSessionClosed)
	if !connected {
		return nil
	}
	s.tell(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Close{Close: &leasev1.SessionClose{}}})
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the session: %w", ctx.Err())
	}
}
