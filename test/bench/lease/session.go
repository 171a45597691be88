package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// The loads by sessions. As many client processes as the other side has connections hold one session with each replica, and
// all clients of a process work in it; what they want at the same moment goes as one message. Who waits for an answer is no goroutine but an entry in a table, as in any client
// that is written for streams.

// sessionBatch is how many messages are sent as one at most.
const sessionBatch = 256

// sessionCycle acquires and releases, each client a name of its own.
func sessionCycle(ctx context.Context, l load) (*tally, error) {
	return l.bySessions(ctx, session{release: true})
}

// sessionAcquire acquires one new name after another; they are released in the end.
func sessionAcquire(ctx context.Context, l load) (*tally, error) { return l.bySessions(ctx, session{}) }

// sessionGet reads a held lease again and again, each client its own: load.hold has acquired them.
func sessionGet(ctx context.Context, l load) (*tally, error) {
	return l.bySessions(ctx, session{read: true})
}

// sessionGetMany is the same with the reads that the clients of a session want at the same moment as one request.
func sessionGetMany(ctx context.Context, l load) (*tally, error) {
	return l.bySessions(ctx, session{read: true, together: true})
}

func (l load) bySessions(ctx context.Context, kind session) (*tally, error) {
	var sessions []*session
	for replica, conns := range l.stand.toService {
		for i, conn := range conns {
			s := &session{load: l, release: kind.release, read: kind.read, together: kind.together, waiting: map[uint64]int{}}
			for client := i; client < l.clients; client += connections {
				if l.replica(client) == replica {
					s.clients = append(s.clients, sessionClient{number: client})
				}
			}
			if len(s.clients) == 0 {
				continue
			}
			if err := s.open(ctx, leasev1.NewLeaseServiceClient(conn), &leasev1.SessionOpen{Holder: holder, Batches: true}); err != nil {
				return nil, err
			}
			sessions = append(sessions, s)
		}
	}
	done := &tally{cleanUp: func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, s := range sessions {
			group.Go(func() error { return s.close(ctx) })
		}
		return group.Wait()
	}}
	var mu sync.Mutex
	var group errgroup.Group
	began := time.Now()
	for _, s := range sessions {
		s.deadline = began.Add(l.lasts)
		group.Go(func() error {
			err := s.run()
			mu.Lock()
			defer mu.Unlock()
			done.latencies = append(done.latencies, s.latencies...)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	done.elapsed = time.Since(began)
	return done, nil
}

// session is a session stream that is driven by what comes in on it.
type session struct {
	load load
	// release and read say what the clients do: cycles or reads, else acquires. With together many reads are one request.
	release, read, together bool

	deadline time.Time
	stream   leasev1.LeaseService_SessionClient
	cancel   context.CancelFunc
	id       uint64
	clients  []sessionClient
	// outgoing gathers what is to be sent together.
	outgoing []*leasev1.SessionRequest
	// incoming are messages that came together with one that was taken already.
	incoming []*leasev1.SessionResponse
	// waiting tells which client an answer is for.
	waiting map[uint64]int
	// readers are the clients whose names are in the next request to read many, and reading those of the one that is under way.
	readers, reading []int

	latencies []time.Duration
}

type sessionClient struct {
	number, done int
	name         string
	token        int64
	began        time.Time
}

func (s *session) open(ctx context.Context, client leasev1.LeaseServiceClient, open *leasev1.SessionOpen) error {
	ctx, s.cancel = context.WithCancel(ctx)
	stream, err := client.Session(ctx)
	if err != nil {
		return fmt.Errorf("open a session: %w", err)
	}
	s.stream = stream
	if err := s.send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Open{Open: open}}); err != nil {
		return err
	}
	first, _, err := s.receive()
	if err != nil {
		return err
	}
	if first.GetOpened() == nil {
		return fmt.Errorf("open a session: answered by %v", first)
	}
	return nil
}

func (s *session) send(r *leasev1.SessionRequest) error {
	s.post(r)
	return s.flush()
}

func (s *session) post(r *leasev1.SessionRequest) {
	s.id++
	r.Id = s.id
	s.outgoing = append(s.outgoing, r)
}

// flush sends what was posted, together.
func (s *session) flush() error {
	if len(s.readers) > 0 && len(s.reading) == 0 {
		s.readers, s.reading = s.reading, s.readers
		names := make([]string, len(s.reading))
		for k, i := range s.reading {
			names[k] = s.clients[i].name
		}
		s.post(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_GetMany{GetMany: &leasev1.SessionGetMany{Names: names}}})
	}
	for len(s.outgoing) > 0 {
		n := min(len(s.outgoing), sessionBatch)
		message := s.outgoing[0]
		if n > 1 {
			message = &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Batch{Batch: &leasev1.SessionRequestBatch{Requests: s.outgoing[:n]}}}
		}
		if err := s.stream.Send(message); err != nil {
			return fmt.Errorf("send in a session: %w", err)
		}
		s.outgoing = s.outgoing[n:]
	}
	s.outgoing = nil
	return nil
}

// receive returns the next message; more says that others came together with it.
func (s *session) receive() (message *leasev1.SessionResponse, more bool, err error) {
	if len(s.incoming) == 0 {
		got, err := s.stream.Recv()
		if err != nil {
			return nil, false, fmt.Errorf("receive in a session: %w", err)
		}
		if s.incoming = []*leasev1.SessionResponse{got}; got.GetBatch() != nil {
			s.incoming = got.GetBatch().GetResponses()
		}
	}
	message, s.incoming = s.incoming[0], s.incoming[1:]
	return message, len(s.incoming) > 0, nil
}

// run lets the clients work until the time is over.
func (s *session) run() error {
	for i := range s.clients {
		s.clients[i].name = s.load.name(s.clients[i].number, 0)
		s.begin(i)
	}
	for more := false; len(s.waiting)+len(s.readers)+len(s.reading) > 0; {
		if !more {
			if err := s.flush(); err != nil {
				return err
			}
		}
		var r *leasev1.SessionResponse
		var err error
		if r, more, err = s.receive(); err != nil {
			return err
		}
		if got := r.GetGotMany(); got != nil {
			if err := s.gotMany(got); err != nil {
				return err
			}
			continue
		}
		i, ok := s.waiting[r.GetId()]
		if !ok {
			return fmt.Errorf("a session was told %v", r)
		}
		delete(s.waiting, r.GetId())
		if err := s.answered(i, r); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) answered(i int, r *leasev1.SessionResponse) error {
	c := &s.clients[i]
	switch m := r.GetMessage().(type) {
	case *leasev1.SessionResponse_Granted:
		c.token = m.Granted.GetToken()
		if s.release {
			s.ask(i, &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Release{Release: &leasev1.ReleaseRequest{
				Name: c.name, Token: c.token,
			}}})
			return nil
		}
		c.name = s.load.name(c.number, c.done+1)
	case *leasev1.SessionResponse_Released, *leasev1.SessionResponse_Got:
	default:
		return fmt.Errorf("%q: answered by %v", c.name, r)
	}
	s.finished(i)
	return nil
}

// gotMany is answered for all clients whose reads went together.
func (s *session) gotMany(got *leasev1.SessionGotMany) error {
	if len(got.GetLeases()) != len(s.reading) {
		return fmt.Errorf("a session was told %d leases; it asked for %d", len(got.GetLeases()), len(s.reading))
	}
	reading := s.reading
	s.reading = nil
	for k, i := range reading {
		if got.GetLeases()[k].GetHolder() != holder {
			return fmt.Errorf("%q: answered by %v", s.clients[i].name, got.GetLeases()[k])
		}
		s.finished(i)
	}
	return nil
}

// finished takes note of the end of a client's operation, and lets it begin the next.
func (s *session) finished(i int) {
	c := &s.clients[i]
	c.done++
	now := time.Now()
	s.latencies = append(s.latencies, now.Sub(c.began))
	if !now.After(s.deadline) {
		s.begin(i)
	}
}

// begin starts a client's next operation.
func (s *session) begin(i int) {
	c := &s.clients[i]
	c.began = time.Now()
	if s.together {
		s.readers = append(s.readers, i)
		return
	}
	if s.read {
		s.ask(i, &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Get{Get: &leasev1.GetRequest{Name: c.name}}})
		return
	}
	s.ask(i, &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Acquire{Acquire: &leasev1.AcquireRequest{
		Name: c.name, RequestId: lease.NewRequestID(),
	}}})
}

func (s *session) ask(i int, r *leasev1.SessionRequest) {
	s.waiting[s.id+1] = i
	s.post(r)
}

// hold acquires names, as many at a time as there are, and leaves them held.
func (s *session) hold(names []string, ttl time.Duration) error {
	for _, name := range names {
		err := s.send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Acquire{Acquire: &leasev1.AcquireRequest{
			Name: name, RequestId: lease.NewRequestID(), Ttl: durationpb.New(ttl),
		}}})
		if err != nil {
			return err
		}
	}
	for range names {
		r, _, err := s.receive()
		if err != nil {
			return err
		}
		if r.GetGranted() == nil {
			return fmt.Errorf("an acquire was answered by %v", r)
		}
	}
	return nil
}

// beat renews all that the session holds.
func (s *session) beat() error {
	if err := s.send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Heartbeat{Heartbeat: &leasev1.SessionHeartbeat{}}}); err != nil {
		return err
	}
	for {
		r, _, err := s.receive()
		if err != nil {
			return err
		}
		if r.GetHeartbeatAck() != nil {
			return nil
		}
		if r.GetExpiring() == nil {
			return fmt.Errorf("a heartbeat was answered by %v", r)
		}
	}
}

// close releases all that the session holds and waits until that is done.
func (s *session) close(ctx context.Context) error {
	defer s.cancel()
	if err := s.send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Close{Close: &leasev1.SessionClose{}}}); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if _, err := s.stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("close a session: %w", err)
		}
	}
	return ctx.Err()
}
