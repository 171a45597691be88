package subprocess_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/test/subprocess"
)

const childEnv = "HOLDFAST_TEST_SUBPROCESS_CHILD"

// TestMain is a program that starts another one when it is told to: that says its process id, and reads until it is killed.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("sh", "-c", "echo $$; exec cat >/dev/null")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		err = subprocess.Start(cmd)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, _ = io.Copy(in, os.Stdin) // until this process is killed
}

// alive tells whether a process runs: one that has ended and was not waited for does not.
func alive(pid string) bool {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	return err == nil && !strings.Contains(string(status), "\nState:\tZ")
}

func TestAProgramEndsWithWhoStartedIt(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"=1"), os.Stderr
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, subprocess.Start(cmd))
	pid, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid = strings.TrimSpace(pid)
	require.True(t, alive(pid))
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool { return !alive(pid) }, 10*time.Second, 10*time.Millisecond)
}

// The thread of the goroutine that asks for the start ends; the program goes on.
func TestAProgramOutlivesTheThreadThatAskedForIt(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	thread, started := make(chan int, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked, so that the thread ends with the goroutine
		thread <- syscall.Gettid()
		started <- subprocess.Start(cmd)
	}()
	gone := fmt.Sprintf("/proc/self/task/%d", <-thread)
	require.NoError(t, <-started)
	require.Eventually(t, func() bool { _, err := os.Stat(gone); return os.IsNotExist(err) }, 10*time.Second, 10*time.Millisecond)
	_, err = io.WriteString(in, "still here\n")
	require.NoError(t, err)
	answer, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "still here\n", answer)
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait(), "how it ended is for the caller to ask")
}

func TestAProgramThatIsNotThere(t *testing.T) {
	require.ErrorIs(t, subprocess.Start(exec.Command("/no/such/program")), os.ErrNotExist)
}
