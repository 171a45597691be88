package robustness_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/test/robustness/history"
	"github.com/holdfast-io/holdfast/test/robustness/lab"
	"github.com/holdfast-io/holdfast/test/robustness/load"
)

// outcome is what a run did and found.
type outcome struct {
	fault     string
	calls     int
	registers int
	unknown   int
	relists   int
	// outage is the longest time in which no call about some name was answered.
	outage time.Duration
}

// run lets clients work on a cluster while faults happen to it, repairs it, and checks what they saw.
func run(ctx context.Context, c *lab.Cluster, number uint64, faults ...fault) (out outcome, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("run %d of seed %d, %s: %w", number, *seed, out.fault, err)
		}
	}()
	w := &world{Cluster: c, load: newLoad(c, number)}
	needsChild := false
	for _, f := range faults {
		out.fault = strings.TrimPrefix(out.fault+"+"+f.name, "+")
		needsChild = needsChild || f.child
	}
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	watcher := load.NewWatcher(w.load.Addresses, w.load.Names[0].Prefix())
	go watcher.Run(watching)
	if err := w.startClients(ctx, needsChild); err != nil {
		return out, err
	}
	lab.Sleep(ctx, before)
	err = w.inject(ctx, number, faults)
	lab.Sleep(ctx, after)
	err = errors.Join(err, w.stopClients())
	if err == nil {
		err = w.load.Probe(ctx)
	}
	h := w.load.Recorder.History()
	out.count(h)
	if err == nil {
		err = watcher.Await(ctx, h)
	}
	out.relists = watcher.Relists()
	if bound := faults[0].bound; len(faults) == 1 && bound > 0 && out.outage > bound {
		err = errors.Join(err, fmt.Errorf("calls about a name went without an answer for %s; at most %s is allowed", out.outage, bound))
	}
	if violation := history.Check(h); violation != nil {
		err = errors.Join(err, violation)
		if *failures != "" {
			err = errors.Join(err, history.Save(h, filepath.Join(*failures, fmt.Sprintf("seed%d-run%d", *seed, number))))
		}
	}
	return out, err
}

func (o *outcome) count(h *history.History) {
	o.unknown = h.Unknown
	answered := map[string][]int64{}
	for i := range h.Ops {
		switch op := &h.Ops[i]; op.Kind {
		case history.Read, history.Wrote, history.Fenced:
			o.registers++
		default:
			o.calls++
			answered[op.Name] = append(answered[op.Name], op.Return)
		}
	}
	for _, at := range answered {
		slices.Sort(at)
		for i := 1; i < len(at); i++ {
			o.outage = max(o.outage, time.Duration(at[i]-at[i-1]))
		}
	}
}

// schedule draws the faults of a run: each kind in turn, and every fourth time another one with it.
func schedule(number uint64) []fault {
	all := allFaults()
	if *only != "" {
		all = slices.DeleteFunc(all, func(f fault) bool { return !slices.Contains(strings.Split(*only, ","), f.name) })
	}
	rng := rand.New(rand.NewPCG(*seed, number))
	order := rand.New(rand.NewPCG(*seed, number/uint64(len(all)))).Perm(len(all))
	faults := []fault{all[order[number%uint64(len(all))]]}
	if rng.IntN(4) == 0 {
		faults = append(faults, all[rng.IntN(len(all))])
	}
	return faults
}

// TestRandomFaults makes runs with faults drawn from the seed. The flags make it long.
func TestRandomFaults(t *testing.T) {
	besideOthers(t)
	ctx := t.Context()
	began := time.Now()
	var mu sync.Mutex
	var outcomes []outcome
	next := uint64(0)
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		more := next < uint64(*runs)
		if *duration > 0 {
			more = time.Since(began) < *duration
		}
		next++
		return next - 1, more
	}
	var workers []*lab.Cluster
	for range *clusters {
		workers = append(workers, startCluster(t))
	}
	var wg sync.WaitGroup
	for _, c := range workers {
		wg.Go(func() {
			for number, more := take(); more; number, more = take() {
				out, err := run(ctx, c, number, schedule(number)...)
				mu.Lock()
				outcomes = append(outcomes, out)
				mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				t.Logf("run %d: %s, %d calls, %d of the register, %d unknown, longest without an answer %s",
					number, out.fault, out.calls, out.registers, out.unknown, out.outage.Round(time.Millisecond))
			}
		})
	}
	wg.Wait()
	require.NotEmpty(t, outcomes)
	t.Logf("%d runs in %s\n%s", len(outcomes), time.Since(began).Round(time.Second), table(outcomes))
}

// table sums the outcomes up by fault.
func table(outcomes []outcome) string {
	type sum struct {
		outcome
		runs int
	}
	sums := map[string]*sum{}
	total := &sum{outcome: outcome{fault: "all"}}
	for _, o := range outcomes {
		for _, fault := range strings.Split(o.fault, "+") {
			if sums[fault] == nil {
				sums[fault] = &sum{outcome: outcome{fault: fault}}
			}
			sums[fault].add(o)
			sums[fault].runs++
		}
		total.add(o)
		total.runs++
	}
	rows := make([]*sum, 0, len(sums)+1)
	for _, s := range sums {
		rows = append(rows, s)
	}
	slices.SortFunc(rows, func(a, b *sum) int { return cmp.Compare(a.fault, b.fault) })
	var b strings.Builder
	fmt.Fprintf(&b, "%-32s %5s %9s %9s %8s %8s %10s", "fault", "runs", "calls", "register", "unknown", "relists", "no answer")
	for _, s := range append(rows, total) {
		fmt.Fprintf(&b, "\n%-32s %5d %9d %9d %8d %8d %10s", s.fault, s.runs, s.calls, s.registers, s.unknown, s.relists, s.outage.Round(time.Millisecond))
	}
	return b.String()
}

func (o *outcome) add(other outcome) {
	o.calls += other.calls
	o.registers += other.registers
	o.unknown += other.unknown
	o.relists += other.relists
	o.outage = max(o.outage, other.outage)
}
