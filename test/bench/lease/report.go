package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/test/bench/page"
)

// unit is what a figure counts.
type unit string

const (
	times   unit = "x"
	count   unit = ""
	seconds unit = " s"
	cores   unit = " cores"
	octets  unit = " B"
)

// goal is what a figure is to reach. The zero value is none.
type goal struct {
	Least *float64 `json:"least,omitempty"`
	Most  *float64 `json:"most,omitempty"`
}

func atLeast(v float64) goal { return goal{Least: &v} }
func atMost(v float64) goal  { return goal{Most: &v} }

func (g goal) String() string {
	switch {
	case g.Least != nil:
		return fmt.Sprintf("≥ %g", *g.Least)
	case g.Most != nil:
		return fmt.Sprintf("≤ %g", *g.Most)
	}
	return ""
}

func (g goal) met(value float64) bool {
	return (g.Least == nil || value >= *g.Least) && (g.Most == nil || value <= *g.Most)
}

// figure is one result.
type figure struct {
	// ID is that of the goal: L1 to L9.
	ID   string `json:"id"`
	What string `json:"what"`
	// Clients worked at the same time, on an etcd of so many members.
	Clients int    `json:"clients"`
	Etcd    int    `json:"etcd"`
	Value   spread `json:"value"`
	Unit    unit   `json:"unit,omitempty"`
	Goal    goal   `json:"goal"`
	// Ours and Peer are the two sides of a ratio, for people to read.
	Ours string `json:"ours,omitempty"`
	Peer string `json:"peer,omitempty"`
}

func (b *bench) add(f figure) {
	b.figures = append(b.figures, f)
	fmt.Fprintf(b.log, "  => %s %s, %d clients, etcd of %d: %s %s\n", f.ID, f.What, f.Clients, f.Etcd, f.value(), f.verdict())
}

func (b *bench) goalOfReplicas() goal {
	if runtime.NumCPU() <= 4 {
		return atLeast(0.9) // no loss, but for what the extra processes cost on the same few cores
	}
	return atLeast(2)
}

func (f *figure) value() string {
	if f.Value.Low == f.Value.High {
		return number(f.Value.Median) + string(f.Unit)
	}
	return fmt.Sprintf("%s%s (%s to %s)", number(f.Value.Median), f.Unit, number(f.Value.Low), number(f.Value.High))
}

func (f *figure) verdict() string {
	switch {
	case f.Goal == goal{}:
		return ""
	case f.Goal.met(f.Value.Median):
		return "met"
	}
	return "missed"
}

// number shows three digits.
func number(v float64) string {
	switch {
	case v == math.Trunc(v) && math.Abs(v) < 1e6:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 100:
		return thousands(v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	case math.Abs(v) >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// thousands shows a whole number in groups of three digits.
func thousands(v float64) string {
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func short(d time.Duration) string {
	if d < time.Millisecond {
		return fmt.Sprintf("%.0f µs", float64(d)/1e3)
	}
	return fmt.Sprintf("%.2f ms", float64(d)/1e6)
}

// report is what is written: the figures, and where and how they came about.
type report struct {
	Date     string    `json:"date"`
	Machine  machine   `json:"machine"`
	Versions []string  `json:"versions"`
	Rounds   int       `json:"rounds"`
	Lasts    string    `json:"lasts"`
	Took     string    `json:"took"`
	Figures  []*figure `json:"figures"`
}

// machine is what the figures were measured on.
type machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	// Sync is the median time of an fdatasync where etcd had its data. LoadBefore is the load average before the run.
	Sync       string `json:"sync"`
	LoadBefore string `json:"loadBefore"`
}

func describeMachine(dir string) (machine, error) {
	m := machine{Cores: runtime.NumCPU()}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m, fmt.Errorf("describe the machine: %w", err)
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
		}
	}
	var system unix.Utsname
	if err := unix.Uname(&system); err != nil {
		return m, fmt.Errorf("describe the machine: %w", err)
	}
	m.Kernel = unix.ByteSliceToString(system.Release[:])
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return m, fmt.Errorf("describe the machine: %w", err)
	}
	m.LoadBefore = strings.Fields(string(load))[0]
	sync, err := syncTime(dir)
	m.Sync = short(sync)
	return m, err
}

// syncTime is how long an fdatasync of a page takes in a folder.
func syncTime(dir string) (time.Duration, error) {
	file, err := os.CreateTemp(dir, "sync")
	if err != nil {
		return 0, fmt.Errorf("time fdatasync: %w", err)
	}
	defer func() { _ = os.Remove(file.Name()) }() // the folder is removed as a whole
	defer file.Close()
	var took []time.Duration
	for range 200 {
		if _, err := file.Write(make([]byte, 4096)); err != nil {
			return 0, fmt.Errorf("time fdatasync: %w", err)
		}
		began := time.Now()
		if err := unix.Fdatasync(int(file.Fd())); err != nil {
			return 0, fmt.Errorf("time fdatasync: %w", err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// versions are those of what was measured.
func versions() []string {
	found := []string{runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return found
	}
	for _, module := range info.Deps {
		switch module.Path {
		case "go.etcd.io/etcd/server/v3", "google.golang.org/grpc":
			found = append(found, module.Path+" "+module.Version)
		}
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			found = append(found, "commit "+setting.Value)
		}
	}
	return found
}

func (r *report) write(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// marks are what the table is between.
var marks = page.Around("table")

func (r *report) table() string {
	var out strings.Builder
	fmt.Fprintf(&out, "\nMeasured on %s in %s: %s, %d cores, Linux %s; fdatasync takes %s; the load average was %s before. %s. %d rounds of %s each side.\n\n",
		r.Date, r.Took, r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel, r.Machine.Sync, r.Machine.LoadBefore,
		strings.Join(r.Versions, ", "), r.Rounds, r.Lasts)
	out.WriteString("| # | figure | clients | etcd | goal | measured | | ours | peer |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, f := range r.Figures {
		fmt.Fprintf(&out, "| %s | %s | %d | %d | %s | %s | %s | %s | %s |\n",
			f.ID, f.What, f.Clients, f.Etcd, f.Goal, f.value(), f.verdict(), f.Ours, f.Peer)
	}
	out.WriteString("\n")
	return out.String()
}
