package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor time in /proc, which is the same on all of Linux's common architectures.
const tick = 10 * time.Millisecond

// processorTime is what each program has used so far: this process by the name "operator", and the servers that it started by
// theirs.
func processorTime() (map[string]time.Duration, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	out := map[string]time.Duration{}
	for _, file := range stats {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		name, pid, parent, used, err := parseStat(string(content))
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", file, err)
		case pid == self:
			out["operator"] += used
		case parent == self:
			out[name] += used
		}
	}
	return out, nil
}

// parseStat reads the line of a process. The name, in brackets, may hold anything.
func parseStat(line string) (name string, pid, parent int, used time.Duration, err error) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return "", 0, 0, 0, fmt.Errorf("%q has no name in brackets", line)
	}
	fields := strings.Fields(line[end+1:])
	if len(fields) < 13 {
		return "", 0, 0, 0, fmt.Errorf("%q is too short", line)
	}
	var numbers [4]int
	for i, text := range []string{strings.TrimSpace(line[:open]), fields[1], fields[11], fields[12]} {
		if numbers[i], err = strconv.Atoi(text); err != nil {
			return "", 0, 0, 0, fmt.Errorf("%q: %w", line, err)
		}
	}
	return line[open+1 : end], numbers[0], numbers[1], time.Duration(numbers[2]+numbers[3]) * tick, nil
}
