// Package subprocess starts programs that end with the process that started them, however that ends: what a test or a
// benchmark runs must not outlive it, also when it is killed.
package subprocess

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start does what [exec.Cmd.Start] does, and has the kernel kill the program when this process ends.
//
// Linux sends the signal of Pdeathsig when the thread ends that started the program, and Go ends threads: those that were
// locked by a goroutine which returned. So the program is started by a thread that stays until it has ended.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			awaitEnd(cmd.Process.Pid)
		}
	}()
	return <-started
}

// awaitEnd returns when a child has ended. It leaves the child to be waited for by whoever wants to know how.
func awaitEnd(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
