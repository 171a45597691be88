package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

const (
	liveTTL = 10 * time.Second
	// liveOpening is how many sessions acquire their leases at a time.
	liveOpening = 32
)

// live is L6, and what a replica uses that only keeps leases alive: a lot of them, held by many sessions with heartbeats at
// their own times.
func (b *bench) live(ctx context.Context, s *stand) error {
	if b.wants("L6") {
		if err := b.unaryKeepAlives(ctx, s); err != nil {
			return err
		}
	}
	replica := s.replicas[0]
	emptyHeap, err := replica.heap(ctx)
	if err != nil {
		return err
	}
	emptyResident, err := replica.resident()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var beats atomic.Int64
	group, err := b.openSessions(ctx, s, &beats)
	if err != nil {
		return err
	}
	fullHeap, err := replica.heap(ctx)
	if err != nil {
		return err
	}
	used, calls, resident, err := b.watchLive(ctx, s, &beats)
	if err != nil {
		return err
	}
	cancel()
	_ = group.Wait() // the streams were cancelled

	leases := float64(b.sessions * b.leasesEach)
	what := fmt.Sprintf("%s live leases, TTL %s, %s sessions: ", thousands(leases), liveTTL, thousands(float64(b.sessions)))
	one := func(id, name string, value float64, g goal, u unit) {
		b.add(figure{ID: id, What: what + name, Clients: b.sessions, Etcd: len(s.etcd), Value: newSpread([]float64{value}), Goal: g, Unit: u})
	}
	renewed := float64(beats.Load()) * float64(b.leasesEach)
	one("L6", "etcd keepalives per lease renewed", float64(calls["LeaseKeepAlive"])/renewed, atMost(0.001), count)
	one("L6", "raft entries while "+thousands(renewed)+" renewals were made", float64(used.entries), atMost(0), count)
	one("live", "cores used by the service", used.service.Seconds()/b.liveFor.Seconds(), atMost(0.5), cores)
	one("live", "heap a lease", (fullHeap-emptyHeap)/leases, goal{}, octets)
	one("live", "resident memory a lease", float64(resident-emptyResident)/leases, goal{}, octets)
	return nil
}

// watchLive tells what is used while nothing but heartbeats happen.
func (b *bench) watchLive(ctx context.Context, s *stand, beats *atomic.Int64) (usage, map[string]int64, int64, error) {
	callsBefore, err := s.etcdCalls(ctx)
	if err != nil {
		return usage{}, nil, 0, err
	}
	before, err := s.usage(ctx)
	if err != nil {
		return usage{}, nil, 0, err
	}
	beats.Store(0)
	finish := func() error { return nil }
	if b.profiles != "" {
		finish = b.profile(ctx, load{stand: s, lasts: b.liveFor, clients: b.sessions}, "live")
	}
	<-after(b.liveFor)
	used, err := s.usage(ctx)
	if err != nil {
		return usage{}, nil, 0, err
	}
	calls, err := s.etcdCalls(ctx)
	if err != nil {
		return usage{}, nil, 0, err
	}
	if err := finish(); err != nil {
		return usage{}, nil, 0, err
	}
	for method := range calls {
		calls[method] -= callsBefore[method]
	}
	resident, err := s.replicas[0].resident()
	used = used.since(before)
	fmt.Fprintf(b.log, "  %d sessions with %d leases each: %d heartbeats in %s, CPU: service %s, etcd %s\n",
		b.sessions, b.leasesEach, beats.Load(), b.liveFor, used.service, used.etcd)
	return used, calls, resident, err
}

// openSessions opens all sessions with their leases and lets them beat until the context ends.
func (b *bench) openSessions(ctx context.Context, s *stand, beats *atomic.Int64) (*errgroup.Group, error) {
	label := b.label("live")
	beating := &errgroup.Group{}
	var opening errgroup.Group
	opening.SetLimit(liveOpening)
	for i := range b.sessions {
		opening.Go(func() error {
			one := &session{}
			conn := s.toService[0][i%connections]
			if err := one.open(ctx, leasev1.NewLeaseServiceClient(conn), &leasev1.SessionOpen{Holder: holder}); err != nil {
				return err
			}
			names := make([]string, b.leasesEach)
			for n := range names {
				names[n] = fmt.Sprintf("%s/%d/%d", label, i, n)
			}
			if err := one.hold(names, liveTTL); err != nil {
				return err
			}
			beating.Go(func() error { return one.beatUntil(ctx, beats) })
			return nil
		})
	}
	return beating, opening.Wait()
}

// beatUntil sends heartbeats as a client would, every quarter of the TTL, until the context ends.
func (s *session) beatUntil(ctx context.Context, beats *atomic.Int64) error {
	wait := rand.N(liveTTL / 4)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if err := s.beat(); err != nil {
			return err
		}
		beats.Add(1)
		wait = liveTTL / 4
	}
}

// unaryKeepAlives counts what etcd hears of keepalives that come as calls.
func (b *bench) unaryKeepAlives(ctx context.Context, s *stand) error {
	l := load{stand: s, clients: b.clients[0], lasts: b.lasts, label: b.label("kept")}
	tokens, err := l.hold(ctx)
	if err != nil {
		return err
	}
	before, err := s.etcdCalls(ctx)
	if err != nil {
		return err
	}
	kept, err := measure(ctx, keepAlive(tokens), l)
	if err != nil {
		return err
	}
	after, err := s.etcdCalls(ctx)
	if err != nil {
		return err
	}
	b.tell("keepalive", l.clients, kept)
	calls := float64(after["LeaseKeepAlive"] - before["LeaseKeepAlive"])
	one := func(name string, value float64, g goal, ours string) {
		b.add(figure{ID: "L6", What: name, Clients: l.clients, Etcd: len(s.etcd), Value: newSpread([]float64{value}), Goal: g, Unit: count, Ours: ours})
	}
	one("etcd keepalives per unary keepalive", calls/float64(kept.ops), atMost(0.001), thousands(kept.rate())+" keepalives/s")
	one("raft entries for "+thousands(float64(kept.ops))+" unary keepalives", float64(kept.used.entries), atMost(0), "")
	return nil
}
