// The zookeeper program measures how fast znodes are made and how little it costs to keep them, against bare clients on the
// same ZooKeeper in alternating rounds. It needs KUBEBUILDER_ASSETS (tools/build.sh kubernetes) and Debian's ZooKeeper
// (tools/debian-packages.sh zookeeper):
//
//	go run ./operator/internal/bench/zookeeper -objects 10000 -json bench-zookeeper.json
//	go run ./operator/internal/bench/zookeeper -objects 500 -only drift
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"

	zktest "github.com/holdfast-io/holdfast/test/zookeeper"
)

// options of a run.
type options struct {
	// objects is the number of znodes of a round, and of objects of the end-to-end part.
	objects int
	// rounds of each side.
	rounds int
	// workers make requests at the same time, on either side.
	workers int
	// parts to measure.
	parts []string
	// profile takes a CPU profile of the run. Empty: none does.
	profile string
	// docs is a page whose table of figures is written. Empty: none is.
	docs string
	// file takes the figures as JSON. Empty: none does.
	file string
}

// The parts of a run.
const (
	// partClients: our sessions against bare clients.
	partClients = "clients"
	// partOperator: the operator with a real API server, against a client that makes the same requests to that.
	partOperator = "operator"
	// partDrift: how soon the operator puts right what was changed by hand.
	partDrift = "drift"
)

var allParts = []string{partClients, partOperator, partDrift}

func (o options) has(part string) bool { return slices.Contains(o.parts, part) }

func (o options) validate() error {
	if o.objects < 2 || o.rounds < 1 || o.workers < 1 {
		return errors.New("-objects must be 2 or more, -rounds and -workers 1 or more")
	}
	for _, part := range o.parts {
		if !slices.Contains(allParts, part) {
			return fmt.Errorf("-only: %q is none of %s", part, strings.Join(allParts, ", "))
		}
	}
	return nil
}

func main() {
	o := options{}
	flag.IntVar(&o.objects, "objects", 10000, "znodes of a round, and objects of the operator")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of each side")
	flag.IntVar(&o.workers, "workers", 256, "requests under way at the same time, on either side")
	parts := flag.String("only", strings.Join(allParts, ","), "what to measure")
	flag.StringVar(&o.profile, "cpuprofile", "", "file that takes a CPU profile of the run")
	flag.StringVar(&o.docs, "docs", "", "page whose table of figures is written")
	flag.StringVar(&o.file, "json", "", "file that takes the figures as JSON")
	flag.Parse()
	o.parts = strings.Split(*parts, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// figure is one row of the result.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// report collects figures, and shows each as it comes: a run takes minutes.
type report struct {
	out     io.Writer
	figures []figure
}

func (r *report) add(name string, value float64, unit string) {
	r.figures = append(r.figures, figure{name, value, unit})
	fmt.Fprintf(r.out, "%-70s %12.2f %s\n", name, value, unit)
}

func run(ctx context.Context, o options, out io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	stop, err := profiled(o.profile)
	if err != nil {
		return err
	}
	defer stop()
	r := &report{out: out}
	err = zktest.Run(1, func(ensemble *zktest.Ensemble) error {
		if o.has(partClients) {
			if err := compareClients(ctx, o, ensemble, r); err != nil {
				return fmt.Errorf("clients: %w", err)
			}
		}
		if o.has(partOperator) || o.has(partDrift) {
			if err := measureOperator(ctx, o, ensemble, r); err != nil {
				return fmt.Errorf("operator: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(r.writeJSON(o.file), r.writePage(o))
}

// profiled starts a CPU profile, and returns what ends it.
func profiled(file string) (stop func(), err error) {
	if file == "" {
		return func() {}, nil
	}
	out, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = out.Close() // a profile that is cut off is seen by whoever reads it
	}, nil
}
