package main

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// latencyBlock is how many operations of one side come before those of the other.
const latencyBlock = 25

// latency is L4: one client that acquires, against the same client that puts, a few of each in turns.
func (b *bench) latency(ctx context.Context, s *stand) error {
	var ratios []float64
	var acquireP50, putP50 []float64
	for range b.rounds {
		acquires, puts, err := b.latencyRound(ctx, s)
		if err != nil {
			return err
		}
		acquire, put := acquires.quantile(0.5), puts.quantile(0.5)
		fmt.Fprintf(b.log, "  one client: acquire p50 %s p99 %s, put p50 %s p99 %s\n", acquire, acquires.quantile(0.99), put, puts.quantile(0.99))
		ratios = append(ratios, float64(acquire)/float64(put))
		acquireP50, putP50 = append(acquireP50, float64(acquire)), append(putP50, float64(put))
	}
	b.add(figure{
		ID: "L4", What: "acquire p50 / raw put p50", Clients: 1, Etcd: len(s.etcd), Value: newSpread(ratios), Goal: atMost(1.3), Unit: times,
		Ours: short(time.Duration(newSpread(acquireP50).Median)), Peer: short(time.Duration(newSpread(putP50).Median)),
	})
	return nil
}

func (b *bench) latencyRound(ctx context.Context, s *stand) (acquires, puts *sample, err error) {
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
	acquires, puts = &sample{}, &sample{}
	for began := time.Now(); time.Since(began) < 2*b.lasts; {
		if err := acquires.block(acquire); err != nil {
			return nil, nil, err
		}
		if err := puts.block(put); err != nil {
			return nil, nil, err
		}
	}
	acquires.sort()
	puts.sort()
	return acquires, puts, nil
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
