package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// The page is written between these.
const (
	tableBegin = "<!-- The table of ZooKeeper below is written by `make bench`. -->\n"
	tableEnd   = "\n<!-- The table of ZooKeeper above is written by `make bench`. -->"
)

func (r *report) writeJSON(file string) error {
	if file == "" {
		return nil
	}
	content, err := json.MarshalIndent(r.figures, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(content, '\n'), 0o644)
}

// writePage replaces the table of a page.
func (r *report) writePage(o options) error {
	if o.docs == "" {
		return nil
	}
	content, err := os.ReadFile(o.docs)
	if err != nil {
		return err
	}
	next, err := withTable(string(content), r.table(o))
	if err != nil {
		return fmt.Errorf("write the table into %s: %w", o.docs, err)
	}
	return os.WriteFile(o.docs, []byte(next), 0o644) //nolint:gosec // the file is the one that whoever runs the benchmark names
}

func withTable(page, table string) (string, error) {
	before, rest, found := strings.Cut(page, tableBegin)
	_, after, ended := strings.Cut(rest, tableEnd)
	if !found || !ended {
		return "", fmt.Errorf("there is no table between %q and %q", strings.TrimSpace(tableBegin), strings.TrimSpace(tableEnd))
	}
	return before + tableBegin + table + tableEnd + after, nil
}

func (r *report) table(o options) string {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		load = []byte("unknown")
	}
	var out strings.Builder
	fmt.Fprintf(&out, "\nMeasured on %s, %d cores, load average %s at the end; %d znodes and objects, %d rounds of each side, %d requests at a time.\n\n",
		time.Now().Format(time.DateOnly), runtime.NumCPU(), strings.Fields(string(load))[0], o.objects, o.rounds, o.workers)
	out.WriteString("| figure | value |\n| --- | --- |\n")
	for _, f := range r.figures {
		fmt.Fprintf(&out, "| %s | %.2f %s |\n", f.Name, f.Value, f.Unit)
	}
	return out.String()
}
