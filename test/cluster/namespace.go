package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// onThread runs f on an operating system thread that nothing else uses meanwhile, and that is
// never the process's main thread: /proc/PID shows the main thread's namespaces as those of the
// whole process. The thread is used again if f returns clean, else it ends.
func onThread(f func() (clean bool)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			onThread(f) // on another thread: this one is held
			runtime.UnlockOSThread()
			return
		}
		if f() {
			runtime.UnlockOSThread()
		}
	}()
	<-done
}

// inNetwork runs f on a thread inside the network namespace that the file holds. Sockets made and
// processes started by f itself, not by goroutines of its own, belong to that namespace.
func inNetwork(file string, f func() error) (err error) {
	onThread(func() (clean bool) {
		host, target := -1, -1
		defer func() { closeAll(host, target) }()
		if host, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			err = fmt.Errorf("network namespace of this thread: %w", err)
			return true
		}
		if target, err = unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			err = fmt.Errorf("network namespace %s: %w", file, err)
			return true
		}
		if err = unix.Setns(target, unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("enter network namespace %s: %w", file, err)
			return true
		}
		err = f()
		return unix.Setns(host, unix.CLONE_NEWNET) == nil
	})
	return err
}

// inMachine runs f on a thread inside all namespaces of the machine whose init is given; processes
// that f starts are processes of that machine and end with it. Paths are those of the machine.
func inMachine(init Process, f func() error) (err error) {
	kinds := []struct {
		file string
		flag int
	}{
		{"net", unix.CLONE_NEWNET},
		{"ipc", unix.CLONE_NEWIPC},
		{"uts", unix.CLONE_NEWUTS},
		{"pid", unix.CLONE_NEWPID},
		{"mnt", unix.CLONE_NEWNS},
	}
	onThread(func() (clean bool) {
		fds := make([]int, 0, len(kinds))
		defer func() { closeAll(fds...) }()
		for _, k := range kinds {
			fd, openErr := unix.Open(fmt.Sprintf("/proc/%d/ns/%s", init.PID, k.file), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if openErr != nil {
				err = fmt.Errorf("%s namespace of process %d: %w", k.file, init.PID, openErr)
				return true
			}
			fds = append(fds, fd)
		}
		if !init.Alive() { // checked after the files are open: they are this process's for sure
			err = fmt.Errorf("process %d of the machine has ended", init.PID)
			return true
		}
		// A thread that shares its root and working directory can't change its mounts.
		if err = unix.Unshare(unix.CLONE_FS); err != nil {
			err = fmt.Errorf("unshare: %w", err)
			return false
		}
		for i, k := range kinds {
			if err = unix.Setns(fds[i], k.flag); err != nil {
				err = fmt.Errorf("enter %s namespace of process %d: %w", k.file, init.PID, err)
				return false
			}
		}
		err = f()
		return false
	})
	return err
}

func closeAll(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// createNetwork makes a network namespace and mounts it on the file, which keeps it alive without
// any process in it.
func createNetwork(file string) (err error) {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	onThread(func() (clean bool) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("make network namespace: %w", err)
			return true
		}
		if err = unix.Mount("/proc/thread-self/ns/net", file, "", unix.MS_BIND, ""); err != nil {
			err = fmt.Errorf("mount network namespace on %s: %w", file, err)
		}
		return false
	})
	return err
}

// deleteNetwork lets go of the namespace; it ends with its last process.
func deleteNetwork(file string) error {
	if isNetwork(file) {
		if err := unix.Unmount(file, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", file, err)
		}
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// isNetwork says whether a namespace is mounted on the file; after a boot it is an empty file.
func isNetwork(file string) bool {
	var s unix.Statfs_t
	return unix.Statfs(file, &s) == nil && int64(s.Type) == unix.NSFS_MAGIC
}
