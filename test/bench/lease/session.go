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
// all clients of a process work in it. Who waits for an answer is no goroutine but an entry in a table, as in any client
// that is written for streams.

// sessionCycle acquires and releases, each client a name of its own.
func sessionCycle(ctx context.Context, l load) (*tally, error) { return l.bySessions(ctx, true) }

// sessionAcquire acquires one new name after another; they are released in the end.
func sessionAcquire(ctx context.Context, l load) (*tally, error) { return l.bySessions(ctx, false) }

func (l load) bySessions(ctx context.Context, release bool) (*tally, error) {
	var sessions []*session
	for replica, conns := range l.stand.toService {
		for i, conn := range conns {
			s := &session{load: l, release: release, waiting: map[uint64]int{}}
			for client := i; client < l.clients; client += connections {
				if l.replica(client) == replica {
					s.clients = append(s.clients, sessionClient{number: client})
				}
			}
			if len(s.clients) == 0 {
				continue
			}
			if err := s.open(ctx, leasev1.NewLeaseServiceClient(conn), &leasev1.SessionOpen{Holder: holder}); err != nil {
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
	load     load
	release  bool
	deadline time.Time
	stream   leasev1.LeaseService_SessionClient
	cancel   context.CancelFunc
	id       uint64
	clients  []sessionClient
	// waiting tells which client an answer is for.
	waiting   map[uint64]int
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
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("open a session: %w", err)
	}
	if first.GetOpened() == nil {
		return fmt.Errorf("open a session: answered by %v", first)
	}
	return nil
}

func (s *session) send(r *leasev1.SessionRequest) error {
	s.id++
	r.Id = s.id
	if err := s.stream.Send(r); err != nil {
		return fmt.Errorf("send in a session: %w", err)
	}
	return nil
}

// run lets the clients work until the time is over.
func (s *session) run() error {
	for i := range s.clients {
		s.clients[i].name = s.load.name(s.clients[i].number, 0)
		if err := s.acquire(i); err != nil {
			return err
		}
	}
	for len(s.waiting) > 0 {
		r, err := s.stream.Recv()
		if err != nil {
			return fmt.Errorf("receive in a session: %w", err)
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
			return s.ask(i, &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Release{Release: &leasev1.ReleaseRequest{
				Name: c.name, Token: c.token,
			}}})
		}
		c.name = s.load.name(c.number, c.done+1)
	case *leasev1.SessionResponse_Released:
	default:
		return fmt.Errorf("%q: answered by %v", c.name, r)
	}
	c.done++
	now := time.Now()
	s.latencies = append(s.latencies, now.Sub(c.began))
	if now.After(s.deadline) {
		return nil
	}
	return s.acquire(i)
}

func (s *session) acquire(i int) error {
	c := &s.clients[i]
	c.began = time.Now()
	return s.ask(i, &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Acquire{Acquire: &leasev1.AcquireRequest{
		Name: c.name, RequestId: lease.NewRequestID(),
	}}})
}

func (s *session) ask(i int, r *leasev1.SessionRequest) error {
	s.waiting[s.id+1] = i
	return s.send(r)
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
		r, err := s.stream.Recv()
		if err != nil {
			return fmt.Errorf("receive in a session: %w", err)
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
		r, err := s.stream.Recv()
		if err != nil {
			return fmt.Errorf("receive in a session: %w", err)
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
