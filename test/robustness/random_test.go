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

	"github.com/stretchr/testify/assert"
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
	// elections are those of the calls that campaign, lead and see who does.
	elections int
	// files, proxies and tests are the most that a replica, the proxies and this process had open at one time.
	files, proxies, tests int
}

// mostFiles is how many files, connections included, a replica may have open: far more than its clients, the other replicas and etcd
// need. A peer that is away must not make it open more.
const mostFiles = 200

// run lets clients work on a cluster while faults happen to it, repairs it, and checks what they saw.
func run(ctx context.Context, c *lab.Cluster, number uint64, faults ...fault) (out outcome, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("run %d of seed %d, %s: %w", number, *seed, out.fault, err)
		}
	}()
	ctx, cancel := c.While(ctx)
	defer cancel()
	c.Files()
	w := &world{Cluster: c, load: newLoad(c, number)}
	needsChild := false
	for _, f := range faults {
		out.fault = strings.TrimPrefix(out.fault+"+"+f.name, "+")
		needsChild = needsChild || f.child
	}
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	followers := w.follow(watching)
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
	for _, f := range followers {
		if err == nil {
			err = f.Await(ctx, h)
		}
	}
	if broken := c.Err(); broken != nil { // nothing else is worth to be told
		return out, broken
	}
	out.count(h, w)
	out.relists = followers[0].(*load.Watcher).Relists()
	if len(faults) == 1 {
		err = errors.Join(err, out.exceeded(faults[0]))
	}
	if violation := history.Check(h); violation != nil {
		err = errors.Join(err, violation)
		if *failures != "" {
			err = errors.Join(err, history.Save(h, filepath.Join(*failures, fmt.Sprintf("seed%d-run%d", *seed, number))))
		}
	}
	return out, err
}

// follower sees what happens, and knows what it must have seen.
type follower interface {
	Run(ctx context.Context)
	Await(ctx context.Context, h *history.History) error
}

// follow starts a watcher of all names, which comes first, and an observer of each election.
func (w *world) follow(ctx context.Context) []follower {
	all := []follower{w.load.NewWatcher()}
	for _, o := range w.load.NewObservers() {
		all = append(all, o)
	}
	for _, f := range all {
		go f.Run(ctx)
	}
	return all
}

// exceeded says what a fault of its own must not lead to.
func (o *outcome) exceeded(f fault) error {
	var err error
	if f.bound > 0 && o.outage > f.bound {
		err = fmt.Errorf("calls about a name went without an answer for %s; at most %s is allowed", o.outage, f.bound)
	}
	if o.files > mostFiles {
		err = errors.Join(err, fmt.Errorf("a replica had %d files open; at most %d are allowed", o.files, mostFiles))
	}
	return err
}

func (o *outcome) count(h *history.History, w *world) {
	o.unknown = h.Unknown
	files := w.Files()
	for _, r := range w.Replicas {
		o.files = max(o.files, files[r.Name])
	}
	o.proxies, o.tests = files[lab.FilesOfProxies], files[lab.FilesOfTests]
	answered := map[string][]int64{}
	for i := range h.Ops {
		switch op := &h.Ops[i]; op.Kind {
		case history.Read, history.Wrote, history.Fenced:
			o.registers++
		case history.Transferred, history.Proclaimed:
			o.calls++
			o.elections++
		default:
			o.calls++
			answered[op.Name] = append(answered[op.Name], op.Return)
			if op.Holder != "" {
				o.elections++
			}
		}
	}
	for _, election := range w.load.Elections { // where somebody who leads may well be silent
		delete(answered, election.Name)
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
		if other := all[rng.IntN(len(all))]; !faults[0].child || !other.child { // clients that are dead cannot be paused
			faults = append(faults, other)
		}
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
				t.Logf("run %d: %s, %d calls, %d of elections, %d of the register, %d unknown, longest without an answer %s, open files %d of a replica, %d of the proxies, %d here",
					number, out.fault, out.calls, out.elections, out.registers, out.unknown, out.outage.Round(time.Millisecond), out.files, out.proxies, out.tests)
				if c.Err() != nil {
					if *failures != "" {
						assert.NoError(t, c.SaveLogs(ctx, filepath.Join(*failures, fmt.Sprintf("seed%d-run%d", *seed, number))))
					}
					return
				}
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
	fmt.Fprintf(&b, "%-32s %5s %9s %9s %9s %8s %8s %10s %6s", "fault", "runs", "calls", "elections", "register", "unknown", "relists", "no answer", "files")
	for _, s := range append(rows, total) {
		fmt.Fprintf(&b, "\n%-32s %5d %9d %9d %9d %8d %8d %10s %6d",
			s.fault, s.runs, s.calls, s.elections, s.registers, s.unknown, s.relists, s.outage.Round(time.Millisecond), s.files)
	}
	return b.String()
}

func (o *outcome) add(other outcome) {
	o.calls += other.calls
	o.registers += other.registers
	o.unknown += other.unknown
	o.relists += other.relists
	o.outage = max(o.outage, other.outage)
	o.elections += other.elections
	o.files = max(o.files, other.files)
}
