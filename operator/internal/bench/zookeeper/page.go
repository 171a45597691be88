package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/test/bench/page"
)

// marks are what the table is between.
var marks = page.Around("table of ZooKeeper")

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
	return marks.Write(o.docs, r.table(o)+"\n")
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
