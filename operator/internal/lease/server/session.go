package server

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

const (
	// sessionTick is how often a session looks at the deadlines of its holds.
	sessionTick = 250 * time.Millisecond
	// sessionCalls bounds the releases and reads of one session under way, sessionAttaches its messages with attaches whose owners were not asked once
	// yet, and sessionAcquires its acquires that wait.
	sessionCalls    = 256
	sessionAttaches = 64
	sessionAcquires = 10_000
	// sessionBeats is how many heartbeats may queue up; they are answered one after another.
	sessionBeats = 16
	// goAwayGrace is what a client is told it has left on a replica that is stopping. The stream lives at least until the
	// shards are handed over.
	goAwayGrace = 5 * time.Second
)

// sessionStream is one open Session. It keeps nothing that a client could not tell another replica after
// a reconnect.
type sessionStream struct {
	server *Server
	ctx    context.Context //nolint:containedctx // the stream's
	caller caller
	holder string
	ttl    time.Duration
	// batches says that the client takes them.
	batches bool
	out     *outbox
	// calls and attaches limit the calls under way.
	calls, attaches *slots
	beats           chan uint64 // the heartbeats to answer, by their ids
	wait            sync.WaitGroup
	came            core.Instant // when the message being handled came
	// keepAll is the server's.
	keepAll func(context.Context, caller, []*leasev1.KeepAliveRequest, func(int, *leasev1.KeepAliveResponse, error))
	// allAnswered wakes a heartbeat when no owner elsewhere is asked any more.
	allAnswered chan struct{}

	mu      sync.Mutex
	holds   map[holdKey]*sessionHold // nil once the session is over
	pending map[uint64]*sessionCall  // the acquires that are not answered yet
	asking  int                      // for how many holds owners elsewhere are being asked
	// attaching are the holds that are to be attached and are not yet, with the ids of the requests that ask for them; 0: the opening of the
	// session does. Whoever takes out one that a request asks for answers the request.
	attaching map[holdKey]uint64
	// later are those of attaching that attachAll takes in, which runs while there are any.
	later []attachment
	// gathered are those that the message being handled asks for; only the goroutine that receives uses it.
	gathered []attachment
	closing  bool // the client wants no more; only the goroutine that receives sets it
}

type holdKey struct {
	name  string
	token int64
}

// sessionHold is a hold that the session keeps.
type sessionHold struct {
	ttl   time.Duration
	until core.Instant // certainly alive before it
	// follower is set while the name is served here.
	follower *follower
	warned   bool
	asking   bool // an owner elsewhere is being asked to renew it
	// asked is the revocation the client was told of last; nil: of none.
	asked *core.Asked
}

// Session implements LeaseService.
func (s *Server) Session(stream grpc.BidiStreamingServer[leasev1.SessionRequest, leasev1.SessionResponse]) error {
	ctx, cancel := s.servingContext(stream.Context())
	defer cancel()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	ss := &sessionStream{
		server: s, ctx: ctx, caller: s.callerOf(ctx), out: newOutbox(), calls: newSlots(sessionCalls), attaches: newSlots(sessionAttaches),
		beats: make(chan uint64, sessionBeats), keepAll: s.keepAll, allAnswered: make(chan struct{}, 1),
		holds: map[holdKey]*sessionHold{}, pending: map[uint64]*sessionCall{}, attaching: map[holdKey]uint64{},
	}
	if err := ss.open(first); err != nil {
		return s.toError(err)
	}
	s.metrics.session(1)
	defer s.metrics.session(-1)
	defer ss.end()

	received := make(chan error, 1)
	go func() { received <- ss.receive(stream) }()
	go ss.watchDeadlines()
	go ss.answerBeats()
	go ss.tellPlaces()
	for {
		if err := ss.flush(stream); err != nil {
			return err
		}
		select {
		case <-ss.out.wake:
		case err := <-received:
			return ss.finish(stream, err)
		case <-ctx.Done():
			return s.streamError(ctx, ctx.Err())
		}
	}
}

// finish sends what is left after the client said its last.
func (ss *sessionStream) finish(stream grpc.ServerStreamingServer[leasev1.SessionResponse], err error) error {
	if err != nil && !errors.Is(err, io.EOF) {
		return ss.server.streamError(ss.ctx, err)
	}
	answered := make(chan struct{})
	go func() {
		ss.wait.Wait()
		close(answered)
	}()
	for {
		if err := ss.flush(stream); err != nil {
			return err
		}
		select {
		case <-ss.out.wake:
		case <-answered:
			return ss.flush(stream)
		case <-ss.ctx.Done():
			return ss.server.streamError(ss.ctx, ss.ctx.Err())
		}
	}
}

// end forgets the session. Its holds live on for their TTL.
func (ss *sessionStream) end() {
	unheard := ss.out.close()
	for _, call := range unheard {
		call.call.GiveBack(call.reply)
	}
	ss.mu.Lock()
	for _, call := range ss.pending {
		if call.started != nil && call.started.Cancel() {
			unheard = append(unheard, call)
		}
	}
	for key, h := range ss.holds {
		ss.unfollow(key, h)
	}
	ss.holds = nil
	ss.mu.Unlock()
	for _, call := range unheard {
		call.done()
	}
}

func (ss *sessionStream) open(first *leasev1.SessionRequest) error {
	open := first.GetOpen()
	var c checker
	c.require(open != nil, "message", "is not open, which must come first")
	ss.ttl = c.ttl(open.GetTtl(), ss.server.opts.TTLs)
	c.text("holder", open.GetHolder(), maxHolder)
	if err := c.err(); err != nil {
		return err
	}
	ss.holder, ss.batches = open.GetHolder(), open.GetBatches()
	if ss.holder == "" {
		ss.holder = ss.caller.label()
	}
	ss.out.add(&leasev1.SessionResponse{Id: first.GetId(), Message: &leasev1.SessionResponse_Opened{Opened: &leasev1.SessionOpened{
		HeartbeatInterval: durationpb.New(ss.ttl / 3), Ttl: durationpb.New(ss.ttl), Batches: true, GetMany: true,
	}}})
	ss.attachOpened(open.GetAttach())
	return nil
}

// receive handles the client's messages until it has no more. What waits for something waits elsewhere.
func (ss *sessionStream) receive(stream grpc.BidiStreamingServer[leasev1.SessionRequest, leasev1.SessionResponse]) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		requests := []*leasev1.SessionRequest{req}
		if batch := req.GetBatch(); batch != nil {
			requests = batch.GetRequests()
		}
		ss.came = ss.server.opts.Clock() // once for what came together: it takes as long as much of what follows
		ss.out.cork(true)                // the answers to what came together go together
		closed := slices.ContainsFunc(requests, ss.handle)
		ss.attachGathered()
		ss.out.cork(false)
		if closed {
			return nil
		}
	}
}

// awaitRoom stops reading from a client that does not read what it asked for, until there is room for more answers. What was
// gathered goes on meanwhile.
func (ss *sessionStream) awaitRoom() {
	if !ss.out.full() {
		return
	}
	ss.out.cork(false)
	defer ss.out.cork(true)
	for ss.out.full() {
		select {
		case <-ss.out.taken:
		case <-ss.ctx.Done():
			return
		}
	}
	ss.came = ss.server.opts.Clock()
}

// handle handles one message, and says whether it was the last.
func (ss *sessionStream) handle(req *leasev1.SessionRequest) (closed bool) {
	ss.awaitRoom()
	id := req.GetId()
	switch m := req.GetMessage().(type) {
	case *leasev1.SessionRequest_Heartbeat:
		select {
		case ss.beats <- id:
		case <-ss.ctx.Done():
		}
	case *leasev1.SessionRequest_Acquire:
		ss.startAcquire(id, m.Acquire)
	case *leasev1.SessionRequest_Release:
		ss.startRelease(id, m.Release)
	case *leasev1.SessionRequest_Get:
		ss.startGet(id, m.Get)
	case *leasev1.SessionRequest_GetMany:
		ss.startGetMany(id, m.GetMany)
	case *leasev1.SessionRequest_Cancel:
		ss.mu.Lock()
		call := ss.pending[m.Cancel.GetRequest()]
		ss.mu.Unlock()
		if call != nil {
			call.cancel()
		}
	case *leasev1.SessionRequest_Attach:
		ss.gatherAttach(id, m.Attach)
	case *leasev1.SessionRequest_Close:
		ss.releaseAll()
		return true
	default:
		ss.refuse(id, &InvalidError{Violations: []Violation{{Field: "message", Problem: "is not set, or is open or batch where it must not be"}}})
	}
	return false
}

func (ss *sessionStream) send(id uint64, response *leasev1.SessionResponse) {
	response.Id = id
	ss.out.add(response)
}

func (ss *sessionStream) refuse(id uint64, err error) {
	st := status.Convert(ss.server.toError(err)).Proto()
	ss.send(id, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_Refused{Refused: &leasev1.SessionRefused{
		Code: st.GetCode(), Message: st.GetMessage(), Details: st.GetDetails(),
	}}})
}

func (ss *sessionStream) releaseAll() {
	ss.mu.Lock()
	keys := slices.AppendSeq(make([]holdKey, 0, len(ss.holds)+len(ss.attaching)), maps.Keys(ss.holds))
	keys = slices.AppendSeq(keys, maps.Keys(ss.attaching))
	ss.closing = true
	pending := slices.Collect(maps.Values(ss.pending))
	ss.mu.Unlock()
	for _, call := range pending {
		call.cancel()
	}
	for _, key := range keys {
		ss.startRelease(0, &leasev1.ReleaseRequest{Name: key.name, Token: key.token})
	}
}
