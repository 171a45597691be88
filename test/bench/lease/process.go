package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is the unit of the times in /proc/<pid>/stat: USER_HZ, which is 100 on every Linux that Go supports.
const clockTick = 10 * time.Millisecond

const stopTimeout = 30 * time.Second

// process is a server process.
type process struct {
	name string
	// address is where it serves gRPC. pprof and metrics are where it serves these over HTTP.
	address, pprof, metrics string
	command                 *exec.Cmd
}

// start starts the process with a command. It may not serve yet when that returns. If this process dies, so does that one.
func (p *process) start(command *exec.Cmd) error {
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.command = command
	return nil
}

// stop ends the process in an orderly way.
func (p *process) stop() error {
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	kill := time.AfterFunc(stopTimeout, func() { _ = p.command.Process.Kill() }) // Wait tells
	defer kill.Stop()
	if err := p.command.Wait(); err != nil {
		return fmt.Errorf("%s ended: %w", p.name, err)
	}
	return nil
}

// freeAddresses finds addresses nobody listens on. They are on a loopback address of their own: on 127.0.0.1 a connection
// that goes out meanwhile may be given the same port.
func freeAddresses(ctx context.Context, n int) ([]string, error) {
	addresses := make([]string, n)
	for i := range addresses {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.77.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close()
		addresses[i] = listener.Addr().String()
	}
	return addresses, nil
}

// cpu is the processor time that the process has used so far.
func (p *process) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.command.Process.Pid), "stat"))
	if err != nil {
		return 0, fmt.Errorf("processor time of %s: %w", p.name, err)
	}
	// The name of the command, in parentheses, may contain anything; the fields after it are numbers. utime and stime are
	// the 14th and 15th field of all.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time of %s: %w", p.name, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// resident is the memory that the process occupies, in bytes.
func (p *process) resident() (int64, error) {
	statm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.command.Process.Pid), "statm"))
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", p.name, err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", p.name, err)
	}
	return pages * int64(os.Getpagesize()), nil
}

// heap lets the process collect its garbage and tells the size of what is left, in bytes.
func (p *process) heap(ctx context.Context) (float64, error) {
	discard := func(body io.Reader) error {
		_, err := io.Copy(io.Discard, body)
		return err
	}
	if err := fetch(ctx, "http://"+p.pprof+"/debug/pprof/heap?gc=1", discard); err != nil {
		return 0, err
	}
	metrics, err := p.readMetrics(ctx)
	return metrics["go_memstats_heap_alloc_bytes"], err
}

// readMetrics reads the process's metrics, by name with labels.
func (p *process) readMetrics(ctx context.Context) (map[string]float64, error) {
	found := map[string]float64{}
	err := fetch(ctx, "http://"+p.metrics+"/metrics", func(body io.Reader) error {
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			line := lines.Text()
			end := strings.LastIndexByte(line, ' ')
			if value, err := strconv.ParseFloat(line[end+1:], 64); err == nil && end > 0 {
				found[line[:end]] = value
			}
		}
		return lines.Err()
	})
	return found, err
}

// profile writes a CPU profile of the next d into a file.
func (p *process) profile(ctx context.Context, path string, d time.Duration) error {
	address := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", p.pprof, max(1, int(d.Seconds())))
	return fetch(ctx, address, func(body io.Reader) error {
		data, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		return os.WriteFile(path, data, 0o600)
	})
}

// fetch reads a page.
func fetch(ctx context.Context, address string, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("read %s: %w", address, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("read %s: %w", address, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("read %s: %s", address, resp.Status)
	}
	if err := read(resp.Body); err != nil {
		return fmt.Errorf("read %s: %w", address, err)
	}
	return nil
}
