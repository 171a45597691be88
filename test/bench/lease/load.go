package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// load is what clients are to do.
type load struct {
	stand *stand
	// clients work at the same time, each doing one thing after another, for the time of lasts.
	clients int
	lasts   time.Duration
	// label tells this load's names from those of others.
	label string
}

// tally is what a load did.
type tally struct {
	latencies []time.Duration
	elapsed   time.Duration
	// cleanUp, if set, undoes what is to be undone after the measurement.
	cleanUp func(context.Context) error
}

// driver does a load.
type driver func(context.Context, load) (*tally, error)

// sample is a measured load.
type sample struct {
	ops       int
	elapsed   time.Duration
	latencies []time.Duration // sorted
	used      usage
	clientCPU time.Duration
}

func (s *sample) rate() float64 { return float64(s.ops) / s.elapsed.Seconds() }

// perOp is a processor time divided among the operations, in microseconds.
func (s *sample) perOp(d time.Duration) float64 { return float64(d.Microseconds()) / float64(s.ops) }

func (s *sample) quantile(q float64) time.Duration {
	return s.latencies[min(len(s.latencies)-1, int(q*float64(len(s.latencies))))]
}

// measure drives a load, and cleans up after it.
func measure(ctx context.Context, drive driver, l load) (*sample, error) {
	before, err := l.stand.usage(ctx)
	if err != nil {
		return nil, err
	}
	cpu := ownCPU()
	done, err := drive(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.label, err)
	}
	s := &sample{ops: len(done.latencies), elapsed: done.elapsed, clientCPU: ownCPU() - cpu, latencies: done.latencies}
	after, err := l.stand.usage(ctx)
	if err != nil {
		return nil, err
	}
	s.used = after.since(before)
	s.sort()
	if s.ops == 0 {
		return nil, fmt.Errorf("%s: nothing was done in %s", l.label, l.lasts)
	}
	if done.cleanUp != nil {
		if err := done.cleanUp(ctx); err != nil {
			return nil, fmt.Errorf("%s: clean up: %w", l.label, err)
		}
	}
	return s, nil
}

// ownCPU is the processor time of this process, which is that of the clients.
func ownCPU() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		panic(err) // it only fails for wrong arguments
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// operation is one thing a client does; n counts what this client did before.
type operation func(ctx context.Context, client, n int) error

// closedLoop lets each client repeat an operation, with no pause, until the time is over.
func (l load) closedLoop(ctx context.Context, do operation) (*tally, error) {
	var mu sync.Mutex
	done := &tally{}
	start := time.Now()
	deadline := start.Add(l.lasts)
	group, ctx := errgroup.WithContext(ctx)
	for client := range l.clients {
		group.Go(func() error {
			var latencies []time.Duration
			for began := time.Now(); began.Before(deadline); {
				if err := do(ctx, client, len(latencies)); err != nil {
					return err
				}
				now := time.Now()
				latencies = append(latencies, now.Sub(began))
				began = now
			}
			mu.Lock()
			defer mu.Unlock()
			done.latencies = append(done.latencies, latencies...)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	done.elapsed = time.Since(start)
	return done, nil
}

// name is the n-th name of a client. It is served by the replica that the client belongs to, so that a client has to do with
// one replica only.
func (l load) name(client, n int) string {
	for try := 0; ; try++ {
		name := fmt.Sprintf("%s/%d/%d", l.label, client, n)
		if try > 0 {
			name = fmt.Sprintf("%s.%d", name, try)
		}
		if l.stand.at(name) == l.replica(client) {
			return name
		}
	}
}

func (l load) replica(client int) int { return client / connections % len(l.stand.replicas) }

func (s *sample) sort() { slices.Sort(s.latencies) }
