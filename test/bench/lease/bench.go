package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"sync"
	"time"
)

// plan says how much is measured.
type plan struct {
	// rounds is how often each side of a comparison is measured, lasts how long each time.
	rounds int
	lasts  time.Duration
	// clients are the numbers of clients that throughputs are measured with.
	clients []int
	// expiring is how many leases expire together, after a TTL that is enough to acquire them all; peerExpiry says whether etcd's are measured too, which takes long.
	expiring    int
	expireAfter time.Duration
	peerExpiry  bool
	// sessions times leasesEach leases live while the idle load is measured for liveFor.
	sessions, leasesEach int
	liveFor              time.Duration
	// members are the sizes of the etcd clusters. All is measured on the first, what depends on it on all of them.
	members []int
}

func fullPlan() plan {
	return plan{
		rounds: 3, lasts: time.Second, clients: []int{64, 512}, expiring: 10_000, expireAfter: 6 * time.Second, peerExpiry: true,
		sessions: 1000, leasesEach: 100, liveFor: 20 * time.Second, members: []int{1, 3},
	}
}

// quickPlan is for a look in between: one etcd, short rounds, fewer leases.
func quickPlan() plan {
	return plan{
		rounds: 2, lasts: 500 * time.Millisecond, clients: []int{64, 512}, expiring: 10_000, expireAfter: 5 * time.Second,
		sessions: 100, leasesEach: 100, liveFor: 7 * time.Second, members: []int{1},
	}
}

// bench is a run of the benchmarks.
type bench struct {
	plan
	programs programs
	// only are the ids of the figures to measure; none: all.
	only map[string]bool
	// profiles is the folder for CPU profiles of the first round of each side; empty: none.
	profiles string
	log      io.Writer
	figures  []figure
	labels   int
}

// measured is a group of figures that one function measures on a stand.
type measured struct {
	ids []string
	// everywhere says that it is measured on each etcd cluster, not only on the first.
	everywhere bool
	measure    func(*bench, context.Context, *stand) error
}

func groups() []measured {
	return []measured{
		{[]string{"L4"}, true, (*bench).latency},
		{[]string{"L1", "L5"}, true, (*bench).cycles},
		{[]string{"L2", "L3"}, true, (*bench).acquires},
		{[]string{"L8"}, true, (*bench).reads},
		{[]string{"L9"}, false, (*bench).replicas},
		{[]string{"L7"}, false, (*bench).expiry},
		{[]string{"L6", "live"}, false, (*bench).live},
	}
}

// run measures all, with the data of etcd in folders of its own under dir.
func (b *bench) run(ctx context.Context, dir string) error {
	for i, members := range b.members {
		wanted := slices.DeleteFunc(groups(), func(m measured) bool {
			return (i > 0 && !m.everywhere) || !slices.ContainsFunc(m.ids, b.wants)
		})
		if len(wanted) == 0 {
			continue
		}
		if err := b.on(ctx, filepath.Join(dir, fmt.Sprintf("etcd-of-%d", members)), members, wanted); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) wants(id string) bool { return len(b.only) == 0 || b.only[id] }

// on measures groups on a fresh etcd of so many members.
func (b *bench) on(ctx context.Context, dir string, members int, wanted []measured) (err error) {
	s, err := newStand(ctx, b.programs, dir, members, 1)
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := s.stop(); err == nil {
			err = stopErr
		}
	}()
	for _, m := range wanted {
		fmt.Fprintf(b.log, "%s %v, etcd of %d\n", time.Now().Format(time.TimeOnly), m.ids, members)
		if err := m.measure(b, ctx, s); err != nil {
			return fmt.Errorf("%v, etcd of %d: %w", m.ids, members, err)
		}
	}
	return nil
}

// label makes a name that no load has had before.
func (b *bench) label(side string) string {
	b.labels++
	return fmt.Sprintf("%s-%d", side, b.labels)
}

// side is one of those that are compared.
type side struct {
	name  string
	drive driver
	stand *stand
}

// compare measures the sides in alternating rounds, after a short one to warm up, and returns each side's samples, by round.
func (b *bench) compare(ctx context.Context, clients int, sides ...side) ([][]*sample, error) {
	samples := make([][]*sample, len(sides))
	for round := -1; round < b.rounds; round++ {
		for k := range sides {
			i := k
			if round%2 == 1 {
				i = len(sides) - 1 - k // so that what one leaves behind does not always meet the same other
			}
			l := load{stand: sides[i].stand, clients: clients, lasts: b.lasts, label: b.label(sides[i].name)}
			if round < 0 {
				l.lasts /= 4
			}
			finish := func() error { return nil }
			if round == 0 && b.profiles != "" {
				finish = b.profile(ctx, l, sides[i].name)
			}
			got, err := measure(ctx, sides[i].drive, l)
			if failed := finish(); err == nil {
				err = failed
			}
			if err != nil {
				return nil, err
			}
			if round >= 0 {
				samples[i] = append(samples[i], got)
				b.tell(sides[i].name, clients, got)
			}
		}
	}
	return samples, nil
}

func (b *bench) tell(name string, clients int, s *sample) {
	fmt.Fprintf(b.log, "  %-16s %4d clients: %8.0f/s, p50 %s, p99 %s, %.4f entries, CPU us each: clients %.0f, service %.0f, etcd %.0f\n",
		name, clients, s.rate(), s.quantile(0.5).Round(time.Microsecond), s.quantile(0.99).Round(time.Microsecond),
		float64(s.used.entries)/float64(s.ops), s.perOp(s.clientCPU), s.perOp(s.used.service), s.perOp(s.used.etcd))
}

// profile takes CPU profiles of the clients, a replica and etcd's leader while a load runs. What it returns waits for them.
func (b *bench) profile(ctx context.Context, l load, name string) func() error {
	path := func(who string) string {
		return filepath.Join(b.profiles, fmt.Sprintf("%s-%d-etcd%d-%s.pprof", name, l.clients, len(l.stand.etcd), who))
	}
	own, err := os.Create(path("clients"))
	if err == nil {
		err = pprof.StartCPUProfile(own)
	}
	if err != nil {
		return func() error { return fmt.Errorf("profile the clients: %w", err) }
	}
	var wait sync.WaitGroup
	var errs [2]error
	for i, p := range []*process{l.stand.replicas[0], l.stand.leader} {
		wait.Go(func() { errs[i] = p.profile(ctx, path([]string{"service", "etcd"}[i]), l.lasts) })
	}
	return func() error {
		pprof.StopCPUProfile()
		wait.Wait()
		for _, err := range append(errs[:], own.Close()) {
			if err != nil {
				return fmt.Errorf("profile: %w", err)
			}
		}
		return nil
	}
}

// ratio compares two sides round by round.
func ratio(ours, theirs []*sample, of func(*sample) float64) spread {
	return against(ours, of, theirs, of)
}

// against is ratio of two different numbers.
func against(ours []*sample, of func(*sample) float64, theirs []*sample, ofTheirs func(*sample) float64) spread {
	values := make([]float64, len(ours))
	for i := range ours {
		values[i] = of(ours[i]) / ofTheirs(theirs[i])
	}
	return newSpread(values)
}

// each takes one number of each round.
func each(samples []*sample, of func(*sample) float64) spread {
	values := make([]float64, len(samples))
	for i := range samples {
		values[i] = of(samples[i])
	}
	return newSpread(values)
}

// spread is a number as several rounds had it.
type spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

func newSpread(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	middle := sorted[len(sorted)/2]
	if len(sorted)%2 == 0 {
		middle = (sorted[len(sorted)/2-1] + middle) / 2
	}
	return spread{Median: middle, Low: sorted[0], High: sorted[len(sorted)-1]}
}
