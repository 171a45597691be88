package gitops

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/holdfast-io/holdfast/test/subprocess"
)

// startTimeout bounds the start of one process, on a machine that is busy with other tests.
const startTimeout = 2 * time.Minute

// tailBytes of a process's log are shown when its test failed.
const tailBytes = 6000

// process is a controller, or what it needs, with its output in a file.
type process struct {
	name   string
	log    string
	cmd    *exec.Cmd
	exited chan struct{}
}

// start starts a program that ends with the test at the latest.
func start(tb testing.TB, dir, name string, env []string, path string, args ...string) *process {
	tb.Helper()
	p := &process{name: name, log: filepath.Join(dir, name+".log"), exited: make(chan struct{})}
	output, err := os.Create(p.log)
	if err != nil {
		tb.Fatalf("start %s: %v", name, err)
	}
	defer output.Close()
	p.cmd = exec.Command(path, args...)
	p.cmd.Dir, p.cmd.Env = dir, append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = output, output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := subprocess.Start(p.cmd); err != nil {
		tb.Fatalf("start %s: %v", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // it is killed, always; its log says what went wrong before that
		close(p.exited)
	}()
	tb.Cleanup(func() {
		p.stop()
		if tb.Failed() {
			tb.Logf("the end of the log of %s:\n%s", name, p.tail())
		}
	})
	return p
}

// stop kills the process and what it started. It does nothing to one that has ended.
func (p *process) stop() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it fails only when nothing of the group is left
	<-p.exited
}

// await returns once ready reports true.
func (p *process) await(tb testing.TB, ready func(context.Context) bool) {
	tb.Helper()
	err := wait.PollUntilContextTimeout(tb.Context(), 50*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-p.exited:
			return false, fmt.Errorf("it ended: %s", p.cmd.ProcessState)
		default:
			return ready(ctx), nil
		}
	})
	if err != nil {
		tb.Fatalf("%s does not serve: %v\n%s", p.name, err, p.tail())
	}
}

func (p *process) tail() string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	if len(content) > tailBytes {
		content = content[len(content)-tailBytes:]
	}
	return string(content)
}

// answers reports whether an HTTP GET of the URL succeeds.
func answers(url string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}
}

// listens reports whether something takes connections at the address.
func listens(address string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	}
}

// freePorts returns addresses of the loopback interface that nobody listens on, all different.
func freePorts(tb testing.TB, count int) []int {
	tb.Helper()
	var ports []int
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatalf("find a free port: %v", err)
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
