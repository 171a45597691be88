package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// reopenSpread is over how long the sessions whose streams broke at one moment spread their new ones.
const reopenSpread = 250 * time.Millisecond

// batchMessages and batchBytes bound what is sent as one message; the service takes 1 MiB. Attaches do not count as messages: the service handles
// all of one message together.
const (
	batchMessages = 256
	batchBytes    = 256 << 10
)

// run keeps a stream open until the session ends.
func (s *Session) run() {
	defer close(s.ended)
	for pause := retryFirst; !s.over(); pause = min(2*pause, retryMost) {
		opened, err := s.serve()
		s.broken()
		if code := status.Code(err); code == codes.InvalidArgument || code == codes.Unimplemented || code == codes.PermissionDenied {
			s.cancel(fmt.Errorf("open a session: %w", err)) // trying again would not help
			return
		}
		if s.over() {
			return
		}
		if opened { // a stop of the service breaks many streams at once
			pause = retryFirst
			sleep(s.ctx, rand.N(reopenSpread))
			continue
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
	service, at := s.client.sessionAt()
	if at != nil {
		ctx = at.addressed(ctx)
	}
	st, err := service.Session(ctx)
	if err != nil {
		return false, err
	}
	opening := now() // what is attached is renewed at the earliest now
	if err := st.Send(s.opening()); err != nil {
		return false, err
	}
	giveUp := func() {
		if at != nil {
			at.suspect()
		}
		cancel()
	}
	// Whoever can be reached answers at once; at the given address there is nobody else to turn to.
	hurry := time.AfterFunc(proofTimeout, func() {
		if at != nil {
			giveUp()
		}
	})
	defer hurry.Stop()
	var writing sync.WaitGroup
	defer writing.Wait()
	defer cancel() // before that
	for {
		response, err := st.Recv()
		if err != nil {
			return opened, err
		}
		if m := response.GetOpened(); m != nil {
			opened = true
			hurry.Stop()
			s.connected(st, m, giveUp)
			writing.Go(func() { s.write(ctx, st, m.GetBatches()) })
			continue
		}
		if m := response.GetGoAway(); m != nil {
			defer s.leave(at, m.GetGrace().AsDuration(), cancel)()
			continue
		}
		s.receive(opening, response)
	}
}

// receive takes in a message of the service on a stream that was opened at an instant.
func (s *Session) receive(opening core.Instant, r *leasev1.SessionResponse) {
	for _, one := range batched(r) {
		s.handle(opening, one)
	}
	s.hurryAttached()
}

// batched returns the messages that a message consists of.
func batched(r *leasev1.SessionResponse) []*leasev1.SessionResponse {
	if batch := r.GetBatch(); batch != nil {
		return batch.GetResponses()
	}
	return []*leasev1.SessionResponse{r}
}

// write sends what is posted until the stream ends: what came while it was busy goes as one message, to servers that take it so.
func (s *Session) write(ctx context.Context, st stream, batches bool) {
	for {
		select {
		case <-s.posted:
		case <-ctx.Done():
			return
		}
		for queue := s.due(st); len(queue) > 0; queue = s.due(st) {
			if !send(st, queue, batches) {
				return // Recv tells of a broken stream
			}
		}
	}
}

// due returns what is to be sent next on a stream: what was posted and the next of the leases to take along take turns, so neither waits for more than
// one message of the other.
func (s *Session) due(st stream) []*leasev1.SessionRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != st {
		return nil
	}
	if s.attachTurn || len(s.queue) == 0 {
		s.attachTurn = false
		if requests := s.attachNext(); len(requests) > 0 {
			return requests
		}
	}
	queue := s.queue
	s.queue, s.attachTurn = nil, len(queue) > 0
	return queue
}

// send sends messages, as few as they fit in if the service takes batches, and returns false if the stream is broken.
func send(st stream, queue []*leasev1.SessionRequest, batches bool) bool {
	for len(queue) > 0 {
		n := 1
		if batches {
			n = together(queue)
		}
		message := queue[0]
		if n > 1 {
			message = &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Batch{Batch: &leasev1.SessionRequestBatch{Requests: queue[:n]}}}
		}
		if st.Send(message) != nil {
			return false
		}
		queue = queue[n:]
	}
	return true
}

// together says how many of the messages, from the first on, go into one batch.
func together(queue []*leasev1.SessionRequest) int {
	messages, bytes := 0, 0
	for i, r := range queue {
		bytes += r.SizeVT()
		if r.GetAttach() == nil {
			messages++
		}
		if i > 0 && (messages > batchMessages || bytes > batchBytes) {
			return i
		}
	}
	return len(queue)
}

// post has a message sent on the present stream; if there is none it is dropped. The lock is held.
func (s *Session) post(r *leasev1.SessionRequest) {
	if s.stream == nil {
		return
	}
	s.queue = append(s.queue, r)
	s.wakeWrite()
}

// wakeWrite has write look for what is to be sent.
func (s *Session) wakeWrite() {
	select {
	case s.posted <- struct{}{}:
	default:
	}
}

// leave moves the session to another replica within half of the time that the present one still has, if another can be
// reached. Otherwise the stream goes on until it breaks. It returns a function that calls that off.
func (s *Session) leave(at *replica, grace time.Duration, breakStream func()) (calledOff func()) {
	if s.client.router == nil {
		return func() {}
	}
	if at != nil {
		at.draining.Store(true) // the map may not say so yet
	}
	timer := time.AfterFunc(rand.N(grace/2+1), func() {
		if s.client.router.pick() != nil {
			breakStream()
		}
	})
	return func() { timer.Stop() }
}

func (s *Session) connected(st stream, m *leasev1.SessionOpened, breakStream func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream, s.breakStream, s.interval = st, breakStream, m.GetHeartbeatInterval().AsDuration()
	for _, k := range s.leases {
		s.pace(k.lease.ttl)
	}
	s.wakeBeat()
	s.wakeWrite()
	close(s.fresh)
	s.once.Do(func() { close(s.ready) })
}

// broken fails the calls under way, which are then made again.
func (s *Session) broken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		s.stream, s.fresh, s.queue = nil, make(chan struct{}), nil
	}
	s.unattached, s.deferred, s.attachPause = nil, nil, 0
	s.attachedUntil, s.beatDue = 0, false
	clear(s.attaching)
	for id, call := range s.calls {
		delete(s.calls, id)
		call.answer <- answer{err: errBroken}
	}
	clear(s.beats)
}

// handle takes in one of the messages that the service has sent together on a stream that was opened at an instant.
func (s *Session) handle(opening core.Instant, r *leasev1.SessionResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := r.GetMessage().(type) {
	case *leasev1.SessionResponse_HeartbeatAck:
		s.acknowledged(r.GetId(), m.HeartbeatAck)
	case *leasev1.SessionResponse_Attached:
		s.taken(opening, r.GetId(), m.Attached)
	case *leasev1.SessionResponse_Lost:
		s.lose(leaseKey{m.Lost.GetName(), m.Lost.GetToken()}, ErrNotHeld)
	case *leasev1.SessionResponse_RevokeRequested:
		if k := s.leases[leaseKey{m.RevokeRequested.GetName(), m.RevokeRequested.GetToken()}]; k != nil {
			k.lease.wanted(m.RevokeRequested.GetRevocation())
		}
	case *leasev1.SessionResponse_Granted:
		s.granted(r)
	case *leasev1.SessionResponse_Refused:
		s.refused(r)
	case *leasev1.SessionResponse_Released:
		s.answered(r)
	}
}

// answered gives a message to the call it answers, if that is still waiting. The lock is held.
func (s *Session) answered(r *leasev1.SessionResponse) {
	if asked, ok := s.calls[r.GetId()]; ok {
		delete(s.calls, r.GetId())
		asked.answer <- answer{response: r}
	}
}

// tell sends a message that no caller waits for an answer to. One that is lost with its stream does not matter.
func (s *Session) tell(r *leasev1.SessionRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.say(r)
}

// say is tell with the lock held.
func (s *Session) say(r *leasev1.SessionRequest) {
	s.id++
	r.Id = s.id
	s.post(r)
}

// ask sends a message and waits for its answer, on one stream after another.
func (s *Session) ask(ctx context.Context, r *leasev1.SessionRequest) (answer, error) {
	began, waited := now(), r.GetAcquire().GetWait().GetWaited().AsDuration()
	for {
		a := s.askOnce(ctx, r)
		if !errors.Is(a.err, errBroken) {
			return a, a.err
		}
		if acquire := r.GetAcquire(); acquire != nil {
			keepPlace(acquire, began.Add(-waited))
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
	s.mu.Lock()
	if s.stream == nil {
		s.mu.Unlock()
		return answer{err: errBroken}
	}
	s.id++
	r = proto.CloneOf(r)
	r.Id = s.id
	asked := call{answer: make(chan answer, 1), sent: now()}
	s.calls[r.GetId()] = asked
	s.post(r)
	s.mu.Unlock()
	select {
	case a := <-asked.answer:
		return a
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return s.giveUp(ctx, r.GetId(), asked)
}

// giveUp ends a call whose context is over, or the session's. What it was granted at the last moment it must not drop: the session keeps that.
func (s *Session) giveUp(ctx context.Context, id uint64, asked call) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, id)
	select {
	case a := <-asked.answer:
		if a.lease != nil {
			return a
		}
	default:
	}
	if ctx.Err() == nil {
		return answer{err: context.Cause(s.ctx)}
	}
	s.say(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Cancel{Cancel: &leasev1.SessionCancel{Request: id}}})
	return answer{err: ctx.Err()}
}
