package main

import (
	"context"
	"fmt"
	"time"
)

func rate(s *sample) float64      { return s.rate() }
func entries(s *sample) float64   { return float64(s.used.entries) / float64(s.ops) }
func serverCPU(s *sample) float64 { return s.perOp(s.used.service + s.used.etcd) }
func etcdCPU(s *sample) float64   { return s.perOp(s.used.etcd) }

// cycles are L1 and L5: full cycles of acquire and release against etcd's own lock service.
func (b *bench) cycles(ctx context.Context, s *stand) error {
	for _, clients := range b.clients {
		samples, err := b.compare(ctx, clients,
			side{"unary-cycle", unaryCycle, s}, side{"session-cycle", sessionCycle, s}, side{"v3lock-cycle", v3lockCycle, s})
		if err != nil {
			return err
		}
		peer := samples[2]
		for i, goals := range []struct {
			by   string
			rate float64
		}{{"unary calls", 10}, {"sessions", 20}} {
			ours := samples[i]
			b.add(figure{
				ID: "L1", What: "cycles/s by " + goals.by + " / v3lock cycles/s", Clients: clients, Etcd: len(s.etcd),
				Value: ratio(ours, peer, rate), Goal: atLeast(goals.rate), Unit: times,
				Ours: perSecond(ours), Peer: perSecond(peer),
			})
			b.add(figure{
				ID: "L5", What: "server CPU per cycle by " + goals.by + " / v3lock's", Clients: clients, Etcd: len(s.etcd),
				Value: against(ours, serverCPU, peer, etcdCPU), Goal: atMost(0.1), Unit: times,
				Ours: shares(ours), Peer: etcdShare(peer),
			})
		}
	}
	return nil
}

// acquires are L2 and L3: acquires of new names against raw puts of new keys.
func (b *bench) acquires(ctx context.Context, s *stand) error {
	for _, clients := range b.clients {
		samples, err := b.compare(ctx, clients,
			side{"unary-acquire", unaryAcquire, s}, side{"session-acquire", sessionAcquire, s}, side{"put", put, s})
		if err != nil {
			return err
		}
		goalEntries, goalRate := goal{}, goal{}
		switch {
		case clients >= 512:
			goalEntries, goalRate = atMost(0.01), atLeast(2)
		case clients >= 64:
			goalEntries = atMost(0.04)
		}
		peer := samples[2]
		for i, by := range []string{"unary calls", "sessions"} {
			ours := samples[i]
			b.add(figure{
				ID: "L2", What: "raft entries per acquire by " + by, Clients: clients, Etcd: len(s.etcd),
				Value: each(ours, entries), Goal: goalEntries, Unit: count,
				Ours: fmt.Sprintf("%.1f acquires an entry", 1/each(ours, entries).Median),
				Peer: fmt.Sprintf("put: %.2f", each(peer, entries).Median),
			})
			own := goalRate
			if i == 0 {
				own = goal{} // the goal is for sessions
			}
			b.add(figure{
				ID: "L3", What: "acquires/s by " + by + " / raw puts/s", Clients: clients, Etcd: len(s.etcd),
				Value: ratio(ours, peer, rate), Goal: own, Unit: times, Ours: perSecond(ours), Peer: perSecond(peer),
			})
		}
	}
	return nil
}

// reads are L8: linearizable reads, ours from memory.
func (b *bench) reads(ctx context.Context, s *stand) error {
	for _, clients := range b.clients {
		held := load{stand: s, clients: clients, label: b.label("read")}
		if _, err := held.hold(ctx); err != nil {
			return err
		}
		var calls int64
		counted := func(drive driver) driver {
			return func(ctx context.Context, l load) (*tally, error) {
				l.label = held.label
				before, err := s.etcdCalls(ctx)
				if err != nil {
					return nil, err
				}
				done, err := drive(ctx, l)
				if err != nil {
					return nil, err
				}
				after, err := s.etcdCalls(ctx)
				calls += dataCalls(after) - dataCalls(before)
				return done, err
			}
		}
		labelled := func(drive driver) driver {
			return func(ctx context.Context, l load) (*tally, error) {
				l.label = held.label
				return drive(ctx, l)
			}
		}
		samples, err := b.compare(ctx, clients, side{"get", counted(getLease), s}, side{"session-get", counted(sessionGet), s},
			side{"session-get-many", counted(sessionGetMany), s}, side{"range", labelled(getKey), s}, side{"ranges-together", labelled(getKeysTogether), s})
		if err != nil {
			return err
		}
		single, together := samples[3], samples[4]
		for i, by := range []string{"unary calls", "sessions, a message each", "sessions, many names a message"} {
			g := goal{}
			if i == 2 {
				g = atLeast(20) // by single calls, both sides pay for a call, and nothing but that
			}
			b.add(figure{
				ID: "L8", What: "reads/s by " + by + " / linearizable gets/s of etcd", Clients: clients, Etcd: len(s.etcd),
				Value: ratio(samples[i], single, rate), Goal: g, Unit: times, Ours: perSecond(samples[i]), Peer: perSecond(single),
			})
			b.add(figure{
				ID: "L8", What: "server CPU per read by " + by + " / etcd's", Clients: clients, Etcd: len(s.etcd),
				Value: against(samples[i], serverCPU, single, etcdCPU), Unit: times, Ours: shares(samples[i]), Peer: etcdShare(single),
			})
		}
		b.add(figure{
			ID: "L8", What: "reads/s by sessions, many names a message / gets/s of etcd, all of a connection in one transaction", Clients: clients, Etcd: len(s.etcd),
			Value: ratio(samples[2], together, rate), Unit: times, Ours: perSecond(samples[2]), Peer: perSecond(together),
		})
		b.add(figure{
			ID: "L8", What: "calls of etcd made for all these reads", Clients: clients, Etcd: len(s.etcd),
			Value: newSpread([]float64{float64(max(0, calls))}), Goal: atMost(0), Unit: count,
		})
	}
	return nil
}

// dataCalls leaves out what has nothing to do with requests: the calls by which this program reads the raft index, and the replicas'
// renewals of their sessions, before each of which they make sure by one read that the store is still the same.
func dataCalls(calls map[string]int64) int64 {
	return calls["Range"] + calls["Put"] + calls["Txn"] + calls["DeleteRange"] - calls["LeaseKeepAlive"]
}

// replicas are L9: three replicas against one, on the same etcd.
func (b *bench) replicas(ctx context.Context, s *stand) error {
	three, err := s.beside(ctx, "/holdfast-of-three/", 3)
	if err != nil {
		return err
	}
	clients := b.clients[len(b.clients)-1]
	samples, err := b.compare(ctx, clients, side{"one-replica", sessionAcquire, s}, side{"three-replicas", sessionAcquire, three})
	if stopErr := three.stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		return err
	}
	b.add(figure{
		ID: "L9", What: "acquires/s by sessions, three replicas / one", Clients: clients, Etcd: len(s.etcd),
		Value: ratio(samples[1], samples[0], rate), Goal: b.goalOfReplicas(), Unit: times,
		Ours: perSecond(samples[1]), Peer: perSecond(samples[0]),
	})
	return nil
}

func perSecond(samples []*sample) string {
	p50 := each(samples, func(s *sample) float64 { return float64(s.quantile(0.5)) }).Median
	return fmt.Sprintf("%s/s, p50 %s", thousands(each(samples, rate).Median), short(time.Duration(p50)))
}

// shares says whose processor time an operation takes.
func shares(samples []*sample) string {
	return fmt.Sprintf("service %.0f + %s", part(samples, func(s *sample) time.Duration { return s.used.service }), etcdShare(samples))
}

// etcdShare is shares of what does without the service.
func etcdShare(samples []*sample) string {
	return fmt.Sprintf("etcd %.0f µs (clients %.0f)", part(samples, func(s *sample) time.Duration { return s.used.etcd }),
		part(samples, func(s *sample) time.Duration { return s.clientCPU }))
}

func part(samples []*sample, of func(*sample) time.Duration) float64 {
	return each(samples, func(s *sample) float64 { return s.perOp(of(s)) }).Median
}
