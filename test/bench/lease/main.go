// Command lease measures the lease service against etcd's own lock service and raw puts, on the same etcd in the same run.
//
//	go run ./test/bench/lease -quick -only L1,L2
//
// docs/performance.md tells what the figures mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

type options struct {
	lasts                                        time.Duration
	quick                                        bool
	only, output, page, folder, profile, service string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if encoded, ok := os.LookupEnv(roleVariable); ok {
		exit(runEtcd(ctx, encoded))
		return
	}
	var opts options
	flag.BoolVar(&opts.quick, "quick", false, "measure less than everything, in under a minute")
	flag.StringVar(&opts.only, "only", "", "measure these figures only: L1,L2,...; live is the idle load of many leases")
	flag.DurationVar(&opts.lasts, "time", 0, "measure each side for so long in each round (default: a second, with -quick a half)")
	flag.StringVar(&opts.output, "json", "", "write the results to this file as JSON")
	flag.StringVar(&opts.page, "docs", "", "put the table of results into this page")
	flag.StringVar(&opts.folder, "dir", "", "keep etcd's data in a new folder in this one, which should be on a disk (default the temporary folder)")
	flag.StringVar(&opts.profile, "profile", "", "write CPU profiles into this folder")
	flag.StringVar(&opts.service, "lease-service", "", "measure this lease-service binary (default: the one built from the sources)")
	flag.Parse()
	exit(run(ctx, opts))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, opts options) (err error) {
	b := &bench{plan: fullPlan(), only: map[string]bool{}, profiles: opts.profile, log: os.Stderr}
	if opts.quick {
		b.plan = quickPlan()
	}
	if opts.lasts > 0 {
		b.lasts = opts.lasts
	}
	if err := b.choose(opts.only); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(opts.folder, "bench-lease")
	if err != nil {
		return fmt.Errorf("make a folder for etcd's data: %w", err)
	}
	defer func() {
		if removeErr := os.RemoveAll(dir); err == nil {
			err = removeErr
		}
	}()
	if b.programs, err = findPrograms(ctx, opts.service, dir); err != nil {
		return err
	}
	began := time.Now()
	r := &report{Date: began.UTC().Format(time.DateOnly), Versions: versions(), Rounds: b.rounds, Lasts: b.lasts.String()}
	if r.Machine, err = describeMachine(dir); err != nil {
		return err
	}
	if err := b.run(ctx, dir); err != nil {
		return err
	}
	slices.SortStableFunc(b.figures, func(a, b figure) int { return strings.Compare(a.ID, b.ID) })
	for i := range b.figures {
		r.Figures = append(r.Figures, &b.figures[i])
	}
	r.Took = time.Since(began).Round(time.Second).String()
	return opts.publish(r)
}

// choose takes a list of figures.
func (b *bench) choose(list string) error {
	for id := range strings.SplitSeq(list, ",") {
		known := slices.ContainsFunc(groups(), func(m measured) bool { return slices.Contains(m.ids, id) })
		switch {
		case id == "" && list == "":
		case !known:
			return fmt.Errorf("-only names %q; L1 to L9 and live are known", id)
		default:
			b.only[id] = true
		}
	}
	return nil
}

func (o *options) publish(r *report) error {
	var errs []error
	if o.output != "" {
		errs = append(errs, r.write(o.output))
	}
	if o.page != "" {
		errs = append(errs, marks.Write(o.page, r.table()))
	}
	fmt.Print(r.table())
	return errors.Join(errs...)
}

// findPrograms builds the lease-service binary, unless there is one.
func findPrograms(ctx context.Context, service, dir string) (programs, error) {
	self, err := os.Executable()
	if err != nil {
		return programs{}, fmt.Errorf("find this program: %w", err)
	}
	if service != "" {
		return programs{etcd: self, service: service}, nil
	}
	built := filepath.Join(dir, "lease-service")
	output, err := exec.CommandContext(ctx, "go", "build", "-o", built, "github.com/holdfast-io/holdfast/operator/cmd/lease-service").CombinedOutput()
	if err != nil {
		return programs{}, fmt.Errorf("build lease-service: %w\n%s", err, output)
	}
	return programs{etcd: self, service: built}, nil
}
