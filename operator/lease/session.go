package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

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

	sendMu sync.Mutex // one message at a time; never held together with mu

	mu       sync.Mutex
	closing  bool
	stream   stream // nil while there is none
	fresh    chan struct{}
	id       uint64
	calls    map[uint64]chan answer
	leases   map[leaseKey]*kept
	beats    map[uint64]core.Instant
	interval time.Duration
}

type leaseKey struct {
	name  string
	token int64
}

// kept is a lease of the session. Heartbeats with larger ids than since cover it; after a new stream was opened none does until
// the service has confirmed that it took the lease in.
type kept struct {
	lease *Lease
	since uint64
}

const notCovered = math.MaxUint64

// answer is what became of a call, and on which stream.
type answer struct {
	response *leasev1.SessionResponse
	sent     core.Instant
	stream   stream
	err      error
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
		calls: map[uint64]chan answer{}, leases: map[leaseKey]*kept{}, beats: map[uint64]core.Instant{},
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

// run keeps a stream open until the session ends.
func (s *Session) run() {
	defer close(s.ended)
	for pause := retryFirst; !s.over(); pause = min(2*pause, retryMost) {
		opened, err := s.serve()
		if opened {
			pause = retryFirst
		}
		s.broken()
		if code := status.Code(err); code == codes.InvalidArgument || code == codes.Unimplemented || code == codes.PermissionDenied {
			s.cancel(fmt.Errorf("open a session: %w", err)) // trying again would not help
			return
		}
		if s.over() {
			return
		}
		sleep(s.ctx, jittered(pause))
	}
}

func (s *Session) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing || s.ctx.Err() != nil
}

// serve opens a stream and handles what comes, until it breaks.
func (s *Session) serve() (opened bool, err error) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	st, err := s.client.service.Session(ctx)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	s.id++
	open := proto.CloneOf(s.open)
	for key, k := range s.leases {
		k.since = notCovered
		open.Attach = append(open.Attach, &leasev1.SessionAttach{Name: key.name, Token: key.token})
	}
	id := s.id
	s.beats[id] = now() // what is attached is renewed at the earliest now
	s.mu.Unlock()
	if err := st.Send(&leasev1.SessionRequest{Id: id, Message: &leasev1.SessionRequest_Open{Open: open}}); err != nil {
		return false, err
	}
	for {
		response, err := st.Recv()
		if err != nil {
			return opened, err
		}
		if m := response.GetOpened(); m != nil {
			opened = true
			s.connected(st, m)
			continue
		}
		s.handle(id, response)
	}
}

func (s *Session) connected(st stream, m *leasev1.SessionOpened) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream, s.interval = st, m.GetHeartbeatInterval().AsDuration()
	close(s.fresh)
	s.once.Do(func() { close(s.ready) })
}

// broken fails the calls under way, which are then made again.
func (s *Session) broken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		s.stream, s.fresh = nil, make(chan struct{})
	}
	for id, call := range s.calls {
		delete(s.calls, id)
		call <- answer{err: errBroken}
	}
	clear(s.beats)
}

// handle takes in what the service says. open is the id of the message that opened the stream.
func (s *Session) handle(open uint64, r *leasev1.SessionResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := r.GetMessage().(type) {
	case *leasev1.SessionResponse_HeartbeatAck:
		s.acknowledged(r.GetId(), m.HeartbeatAck)
	case *leasev1.SessionResponse_Attached:
		if k := s.leases[leaseKey{m.Attached.GetName(), m.Attached.GetToken()}]; k != nil {
			k.since = s.id
			k.lease.extend(s.beats[open], m.Attached.GetExpiresIn().AsDuration())
		}
		s.answered(r)
	case *leasev1.SessionResponse_Lost:
		s.lose(leaseKey{m.Lost.GetName(), m.Lost.GetToken()}, ErrNotHeld)
	case *leasev1.SessionResponse_RevokeRequested:
		if k := s.leases[leaseKey{m.RevokeRequested.GetName(), m.RevokeRequested.GetToken()}]; k != nil {
			k.lease.wanted(m.RevokeRequested.GetRevocation())
		}
	case *leasev1.SessionResponse_Granted, *leasev1.SessionResponse_Refused, *leasev1.SessionResponse_Released:
		if granted := r.GetGranted(); !s.answered(r) && granted != nil {
			go s.tell(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Release{Release: &leasev1.ReleaseRequest{
				Name: granted.GetName(), Token: granted.GetToken(),
			}}}) // whoever asked has given up
		}
	}
}

// answered gives a message to the call it answers, if that is still waiting. The lock is held.
func (s *Session) answered(r *leasev1.SessionResponse) bool {
	call := s.calls[r.GetId()]
	delete(s.calls, r.GetId())
	if call != nil {
		call <- answer{response: r}
	}
	return call != nil
}

func (s *Session) acknowledged(id uint64, ack *leasev1.SessionHeartbeatAck) {
	sent, ok := s.beats[id]
	if !ok {
		return
	}
	delete(s.beats, id)
	s.interval = ack.GetHeartbeatInterval().AsDuration()
	for _, k := range s.leases {
		if k.since < id {
			k.lease.extend(sent, ack.GetExpiresIn().AsDuration())
		}
	}
}

// lose ends a lease. The lock is held.
func (s *Session) lose(key leaseKey, cause error) {
	if k := s.leases[key]; k != nil {
		delete(s.leases, key)
		k.lease.cancel(cause)
	}
}

// beat sends heartbeats, and ends leases whose time is over.
func (s *Session) beat() {
	var last core.Instant
	for {
		s.mu.Lock()
		interval, connected := s.interval, s.stream != nil
		at := int64(now())
		for key, k := range s.leases {
			if k.lease.until.Load() <= at {
				s.lose(key, ErrExpired)
			}
		}
		s.mu.Unlock()
		if connected && now().Sub(last) >= interval*3/4 {
			last = now()
			s.tell(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Heartbeat{Heartbeat: &leasev1.SessionHeartbeat{}}})
		}
		if !sleep(s.ctx, min(max(interval/8, 5*time.Millisecond), lookEvery)) {
			return
		}
	}
}

// tell sends a message that no caller waits for an answer to. One that is lost with its stream does not matter.
func (s *Session) tell(r *leasev1.SessionRequest) {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	s.mu.Lock()
	st := s.stream
	s.id++
	r.Id = s.id
	if r.GetHeartbeat() != nil {
		s.beats[r.GetId()] = now()
	}
	s.mu.Unlock()
	if st != nil {
		_ = st.Send(r) // Recv tells of a broken stream
	}
}

// ask sends a message and waits for its answer, on one stream after another.
func (s *Session) ask(ctx context.Context, r *leasev1.SessionRequest) (answer, error) {
	for {
		a := s.askOnce(ctx, r)
		if !errors.Is(a.err, errBroken) {
			return a, a.err
		}
	}
}

func (s *Session) askOnce(ctx context.Context, r *leasev1.SessionRequest) answer {
	s.mu.Lock()
	fresh := s.fresh
	s.mu.Unlock()
	select {
	case <-fresh:
	case <-ctx.Done():
		return answer{err: ctx.Err()}
	case <-s.ctx.Done():
		return answer{err: context.Cause(s.ctx)}
	}
	call := make(chan answer, 1)
	s.sendMu.Lock()
	s.mu.Lock()
	st := s.stream
	if st == nil {
		s.mu.Unlock()
		s.sendMu.Unlock()
		return answer{err: errBroken}
	}
	s.id++
	r = proto.CloneOf(r)
	r.Id = s.id
	s.calls[r.GetId()] = call
	sent := now()
	s.mu.Unlock()
	_ = st.Send(r) // Recv tells of a broken stream
	s.sendMu.Unlock()
	select {
	case a := <-call:
		a.sent, a.stream = sent, st
		return a
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	s.mu.Lock()
	delete(s.calls, r.GetId())
	s.mu.Unlock()
	if ctx.Err() == nil {
		return answer{err: context.Cause(s.ctx)}
	}
	s.tell(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Cancel{Cancel: &leasev1.SessionCancel{Request: r.GetId()}}})
	return answer{err: ctx.Err()}
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
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		got, err := s.ask(ctx, &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Acquire{Acquire: req}})
		if err != nil {
			return nil, fmt.Errorf("lease %q: %w", name, err)
		}
		if got.response.GetGranted() != nil {
			return s.adopt(ctx, got)
		}
		if err = refusal(got.response); status.Code(err) != codes.Unavailable || !sleep(ctx, jittered(pause)) {
			return nil, Typed(name, err)
		}
	}
}

func refusal(r *leasev1.SessionResponse) error {
	refused := r.GetRefused()
	return status.FromProto(&spb.Status{Code: refused.GetCode(), Message: refused.GetMessage(), Details: refused.GetDetails()}).Err()
}

// adopt takes a granted lease into the session, and returns it once it is certain for a good while.
func (s *Session) adopt(ctx context.Context, granted answer) (*Lease, error) {
	l := newLease(s.ctx, granted.response.GetGranted(), granted.sent)
	key := leaseKey{l.name, l.token}
	// One that waited in line is confirmed by a call of its own, since until then its time may count as over.
	err := s.client.unary(l).confirm(ctx)
	l.giveBack = func(ctx context.Context) error { return s.release(ctx, key) }
	for on := granted.stream; err == nil && !s.add(key, l, on); {
		// The stream it was granted on is gone, and the new one does not know of it.
		var attached answer
		attached, err = s.ask(ctx, &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Attach{
			Attach: &leasev1.SessionAttach{Name: l.name, Token: l.token},
		}})
		if err == nil && attached.response.GetAttached() == nil {
			err = Typed(l.name, refusal(attached.response))
		}
		on = attached.stream
	}
	if err != nil {
		tell, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryMost)
		defer cancel()
		return nil, errors.Join(err, l.Release(tell))
	}
	return l, nil
}

// add takes a lease in that the service keeps on a stream, if that is still the session's.
func (s *Session) add(key leaseKey, l *Lease, on stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != on {
		return false
	}
	s.leases[key] = &kept{lease: l, since: s.id}
	return true
}

// release gives a lease back through the stream.
func (s *Session) release(ctx context.Context, key leaseKey) error {
	s.mu.Lock()
	delete(s.leases, key)
	s.mu.Unlock()
	got, err := s.ask(ctx, &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Release{
		Release: &leasev1.ReleaseRequest{Name: key.name, Token: key.token},
	}})
	if err != nil {
		return err
	}
	if got.response.GetReleased() == nil {
		return refusal(got.response)
	}
	return nil
}

// Leases returns how many leases the session keeps.
func (s *Session) Leases() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.leases)
}

// Close releases all leases and ends the session. It waits until the service has confirmed that or the context ends; then the
// leases expire by themselves.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
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
