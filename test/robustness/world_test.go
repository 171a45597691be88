package robustness_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/test/robustness/history"
	"github.com/holdfast-io/holdfast/test/robustness/lab"
	"github.com/holdfast-io/holdfast/test/robustness/load"
)

const (
	// before and after are how long the clients work without a fault.
	before, after = 300 * time.Millisecond, 900 * time.Millisecond
	// childClients is the number of the first client in the other process.
	childClients = 100
)

// fault is one that can be drawn. Some need clients in a process of their own.
type fault struct {
	name  string
	child bool
	// bound is how long calls about a name may go without an answer; 0: as long as the fault and the repair take.
	bound  time.Duration
	inject func(ctx context.Context, w *world, rng *rand.Rand, lasts time.Duration) error
}

// bounds are those of faults that the service gets over while they last.
var bounds = map[string]time.Duration{
	// An etcd election, the wait for an answer that does not come any more, and a second to spare.
	"etcd-leader-killed": 4500 * time.Millisecond,
	// A connection that is broken thrice, and the back-off after handshakes that come between a certificate and its key.
	"certificates-rotated": 4 * time.Second,
}

func allFaults() []fault {
	faults := []fault{
		{name: "holders-paused", child: true, inject: func(ctx context.Context, w *world, _ *rand.Rand, lasts time.Duration) error {
			if err := w.child.Signal(syscall.SIGSTOP); err != nil {
				return err
			}
			lab.Sleep(ctx, lasts+load.TTL)
			return w.child.Signal(syscall.SIGCONT)
		}},
		{name: "holders-killed", child: true, inject: func(ctx context.Context, w *world, _ *rand.Rand, lasts time.Duration) error {
			err := w.child.Kill()
			w.child = nil
			lab.Sleep(ctx, lasts)
			return err
		}},
	}
	for _, f := range lab.Faults() {
		faults = append(faults, fault{name: f.Name, bound: bounds[f.Name], inject: func(ctx context.Context, w *world, rng *rand.Rand, lasts time.Duration) error {
			return f.Inject(ctx, w.Cluster, rng, lasts)
		}})
	}
	return faults
}

// world is a cluster and its clients.
type world struct {
	*lab.Cluster
	load *load.Load
	// child has clients of the same names in another process; nil if there are none (any more).
	child     *load.Clients
	registers *httptest.Server
	stop      context.CancelFunc
	stopped   chan error
}

func newLoad(c *lab.Cluster, number uint64) *load.Load {
	names, raw, elections := 12, 14, 2
	if *long { // nobody else uses the machine then
		names, raw, elections = 24, 30, 4
	}
	prefix := fmt.Sprintf("run-%d-%d", *seed, number)
	leases := load.Names(prefix, names)
	rec := history.NewRecorder(load.Capacities(leases))
	l := &load.Load{
		TLS: c.TLS(), Names: leases, Elections: load.Elections(prefix, elections), Recorder: rec, Registers: history.NewRegisters(rec),
		Raw: raw, Leases: 3, Sessions: 3, Candidates: 3 * elections, Seed: *seed<<32 + number,
	}
	for _, r := range c.Replicas {
		l.Addresses = append(l.Addresses, r.Clients.Address())
	}
	return l
}

func (w *world) startClients(ctx context.Context, withChild bool) error {
	if withChild {
		w.registers = httptest.NewServer(w.load.Registers.(*history.Registers))
		others := *w.load
		others.First, others.Seed, others.Raw, others.Candidates = childClients, w.load.Seed+1<<63, 6, 2
		w.load.Raw -= others.Raw
		var err error
		if w.child, err = load.StartChild(&others, w.registers.URL); err != nil {
			return err
		}
	}
	working, stop := context.WithCancel(ctx)
	w.stop, w.stopped = stop, make(chan error, 1)
	go func() { w.stopped <- w.load.Run(working) }()
	return nil
}

func (w *world) stopClients() error {
	w.stop()
	err := <-w.stopped
	if w.child != nil {
		err = errors.Join(err, w.child.Stop())
	}
	if w.registers != nil {
		w.registers.Close()
	}
	return err
}

// inject makes faults happen at the same time, and repairs the cluster.
func (w *world) inject(ctx context.Context, number uint64, faults []fault) error {
	errs := make([]error, len(faults))
	var wg sync.WaitGroup
	for i, f := range faults {
		rng := rand.New(rand.NewPCG(*seed, number<<8+uint64(i)))
		lasts := 800*time.Millisecond + time.Duration(rng.Int64N(int64(2400*time.Millisecond)))
		wg.Go(func() { errs[i] = f.inject(ctx, w, rng, lasts) })
	}
	wg.Wait()
	return errors.Join(errors.Join(errs...), w.Repair(ctx))
}
