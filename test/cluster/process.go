package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Process identifies a process for as long as the machine is up: a pid that was given to another
// process has another start time. The zero value is no process.
type Process struct {
	PID int `json:"pid"`
	// Start is in clock ticks since boot, as in /proc/PID/stat.
	Start uint64 `json:"start"`
}

// identify records the running process with this pid.
func identify(pid int) (Process, error) {
	st, err := readStat(pid)
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return Process{PID: pid, Start: st.start}, nil
}

// childOf finds the only child of a process.
func childOf(parent int) (Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return Process{}, err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if st, err := readStat(pid); err == nil && st.parent == parent {
			return Process{PID: pid, Start: st.start}, nil
		}
	}
	return Process{}, fmt.Errorf("process %d has no child", parent)
}

// Alive says whether the process still runs. A zombie does not: it only waits to be reaped.
func (p Process) Alive() bool {
	if p.PID == 0 {
		return false
	}
	st, err := readStat(p.PID)
	return err == nil && st.start == p.Start && st.state != 'Z' && st.state != 'X'
}

// kill sends SIGKILL and waits until the process, and with an init its whole process namespace,
// is gone. It does nothing when the process has already ended.
func (p Process) kill(ctx context.Context) error {
	if p.PID == 0 {
		return nil
	}
	// The descriptor is opened before the start time is compared, so the pid can't change
	// hands between the check and the signal.
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	if !p.Alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	for {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, int((50 * time.Millisecond).Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process %d: %w", p.PID, err)
		}
		if n > 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("process %d has not ended after SIGKILL: %w", p.PID, ctx.Err())
		}
	}
}

// stat is what this package needs of /proc/PID/stat.
type stat struct {
	state  byte
	parent int
	start  uint64
}

func readStat(pid int) (stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

// parseStat reads the content of /proc/PID/stat. The command's name comes first, in parentheses,
// and may itself hold spaces and parentheses.
func parseStat(b []byte) (stat, error) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return stat{}, fmt.Errorf("stat %q: no command name", b)
	}
	fields := strings.Fields(string(b[end+1:]))
	const state, parent, start = 0, 1, 19 // fields 3, 4 and 22 of proc_pid_stat(5)
	if len(fields) <= start || len(fields[state]) != 1 {
		return stat{}, fmt.Errorf("stat %q: too few fields", b)
	}
	st := stat{state: fields[state][0]}
	var err error
	if st.parent, err = strconv.Atoi(fields[parent]); err != nil {
		return stat{}, fmt.Errorf("stat: parent: %w", err)
	}
	if st.start, err = strconv.ParseUint(fields[start], 10, 64); err != nil {
		return stat{}, fmt.Errorf("stat: start time: %w", err)
	}
	return st, nil
}

// bootID changes with every boot of the machine; no recorded process outlives one.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
