package zookeeper

import (
	"fmt"
	"os"
	"testing"
)

// Main is the body of a TestMain: it starts an ensemble for all tests of a package that do no harm to it, sets
// *ensemble, runs the tests, and stops it. It returns the exit code. inner, if there is one, runs the tests instead: a
// further environment around them.
func Main(m *testing.M, count int, ensemble **Ensemble, inner ...func(*testing.M) int) int {
	code := 1
	err := Run(count, func(started *Ensemble) error {
		*ensemble = started
		if len(inner) > 0 {
			code = inner[0](m)
		} else {
			code = m.Run()
		}
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

// Run starts an ensemble for a program that is no test, calls body, and stops it.
func Run(count int, body func(*Ensemble) error) error {
	tb := &process{}
	defer tb.end()
	dir, err := os.MkdirTemp("", "holdfast-zookeeper-")
	if err != nil {
		return err
	}
	tb.dir = dir
	started := &Ensemble{tb: tb}
	if err := started.start(dir, count); err != nil {
		return fmt.Errorf("start %d ZooKeeper servers: %w", count, err)
	}
	return body(started)
}

// process is the TB of a TestMain.
type process struct {
	dir      string
	cleanups []func()
}

// Helper does nothing.
func (*process) Helper() {}

// Fatalf ends the process: there is no test to fail.
func (p *process) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	p.end()
	os.Exit(1)
}

// Logf writes to standard error.
func (*process) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// Cleanup registers what end calls, the last first.
func (p *process) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }

// TempDir returns the one folder.
func (p *process) TempDir() string { return p.dir }

func (p *process) end() {
	for i := len(p.cleanups) - 1; i >= 0; i-- {
		p.cleanups[i]()
	}
	p.cleanups = nil
	_ = os.RemoveAll(p.dir) // what is left over is in the temporary folder
}
