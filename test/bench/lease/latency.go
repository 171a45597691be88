package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// latencyBlock is how many operations of one side come before those of the other.
const latencyBlock = 25

// latency is L4: one client that acquires, against the same client that puts, a few of each in turns. Beside it stands the same of a
// service that is its own etcd; the puts still go to the other etcd, which has its data on the same disk.
func (b *bench) latency(ctx context.Context, s *stand) error {
	if err := b.latencyOf(ctx, s, "acquire p50 / raw put p50", atMost(1.3)); err != nil {
		return err
	}
	if len(s.etcd) > 1 {
		return nil
	}
	alone, err := s.embedded(ctx)
	if err != nil {
		return err
	}
	err = b.latencyOf(ctx, alone, "acquire p50 of a service with etcd embedded / raw put p50", goal{})
	return errors.Join(err, alone.stop())
}

func (b *bench) latencyOf(ctx context.Context, s *stand, what string, g goal) error {
	var ratios []float64
	var acquireP50, putP50, keepP50 []float64
	for range b.rounds {
		acquires, puts, keeps, err := b.latencyRound(ctx, s)
		if err != nil {
			return err
		}
		acquire, put, keep := acquires.quantile(0.5), puts.quantile(0.5), keeps.quantile(0.5)
		fmt.Fprintf(b.log, "  one client: acquire p50 %s p99 %s, put p50 %s p99 %s, keepalive p50 %s\n",
			acquire, acquires.quantile(0.99), put, puts.quantile(0.99), keep)
		ratios = append(ratios, float64(acquire)/float64(put))
		acquireP50, putP50, keepP50 = append(acquireP50, float64(acquire)), append(putP50, float64(put)), append(keepP50, float64(keep))
	}
	b.add(figure{
		ID: "L4", What: what, Clients: 1, Etcd: len(s.etcd), Value: newSpread(ratios), Goal: g, Unit: times,
		Ours: fmt.Sprintf("%s (a keepalive, which makes no write: %s)", short(time.Duration(newSpread(acquireP50).Median)),
			short(time.Duration(newSpread(keepP50).Median))),
		Peer: short(time.Duration(newSpread(putP50).Median)),
	})
	return nil
}

func (b *bench) latencyRound(ctx context.Context, s *stand) (acquires, puts, keeps *sample, err error) {
	l := load{stand: s, clients: 1, label: b.label("latency")}
	leases, kv := l.leaseClients()[0], l.kvClients()[0]
	acquire := func(n int) (time.Duration, error) {
		name := l.name(0, n)
		began := time.Now()
		got, err := leases.Acquire(ctx, &leasev1.AcquireRequest{Name: name, Holder: holder, RequestId: lease.NewRequestID()})
		took := time.Since(began)
		if err != nil {
			return 0, err
		}
		_, err = leases.Release(ctx, &leasev1.ReleaseRequest{Name: name, Token: got.GetToken()})
		return took, err
	}
	put := func(n int) (time.Duration, error) {
		began := time.Now()
		_, err := kv.Put(ctx, &etcdserverpb.PutRequest{Key: []byte(l.name(0, n)), Value: []byte(putValue)})
		return time.Since(began), err
	}
	held := l
	held.label = b.label("kept")
	tokens, err := held.hold(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	keep := func(int) (time.Duration, error) {
		began := time.Now()
		_, err := leases.KeepAlive(ctx, &leasev1.KeepAliveRequest{Name: held.name(0, 0), Token: tokens[0]})
		return time.Since(began), err
	}
	acquires, puts, keeps = &sample{}, &sample{}, &sample{}
	for began := time.Now(); time.Since(began) < 2*b.lasts; {
		for _, side := range []struct {
			s  *sample
			do func(int) (time.Duration, error)
		}{{acquires, acquire}, {puts, put}, {keeps, keep}} {
			if err := side.s.block(side.do); err != nil {
				return nil, nil, nil, err
			}
		}
	}
	acquires.sort()
	puts.sort()
	keeps.sort()
	return acquires, puts, keeps, nil
}

// block adds some operations. The first is left out: it finds the other side's traces in the caches.
func (s *sample) block(do func(n int) (time.Duration, error)) error {
	for i := range latencyBlock {
		took, err := do(s.ops)
		if err != nil {
			return err
		}
		s.ops++
		if i > 0 {
			s.latencies = append(s.latencies, took)
		}
	}
	return nil
}
