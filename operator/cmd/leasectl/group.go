package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/term"
)

// childProcess is the command of a lock.
type childProcess struct {
	*exec.Cmd
	// group says that it heads a process group, so that what it starts can be signalled with it.
	group bool
}

// newChild prepares a command. At a terminal it stays in the foreground group, or it could not read from it; then
// signals reach the command itself alone. The end of the context does not end it: it is asked to stop first.
func newChild(ctx context.Context, command []string, in io.Reader) *childProcess {
	file, isFile := in.(*os.File)
	c := &childProcess{Cmd: exec.CommandContext(context.WithoutCancel(ctx), command[0], command[1:]...), group: !isFile || !term.IsTerminal(int(file.Fd()))}
	c.Stdin = in
	c.SysProcAttr = attributes(c.group)
	return c
}

// run starts the command and returns a channel that yields the result of its end. The thread that starts it stays,
// because on Linux the command is killed when that thread ends, which stands for our process.
func (c *childProcess) run() (<-chan error, error) {
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.Start()
		started <- err
		if err == nil {
			ended <- c.Wait()
		}
	}()
	return ended, <-started
}

// signal signals the command and all it started. Those that have ended already are past caring.
func (c *childProcess) signal(signal syscall.Signal) {
	pid := c.Process.Pid
	if c.group {
		pid = -pid
	}
	_ = syscall.Kill(pid, signal)
}

// sweep kills what the command left running, so that it does not outlive the lease.
func (c *childProcess) sweep() {
	if c.group {
		c.signal(syscall.SIGKILL)
	}
}
