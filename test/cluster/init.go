package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// initReady is what an init says when its machine is set up, and a starter when its component runs.
const initReady = "ready"

// machineSpec tells an init what its machine looks like.
type machineSpec struct {
	Hostname string `json:"hostname"`
	// Private folders are empty in the machine, so that programs with fixed paths leave
	// nothing on the host.
	Private []string `json:"private"`
	// Keep lists folders that stay visible, with their content, inside private ones.
	Keep []string `json:"keep"`
	// Binds puts folders of the cluster where the machine's programs expect them.
	Binds []bind `json:"binds"`
}

type bind struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// RunInit is process 1 of a machine. It reads the machine's spec from in, sets the mounts up,
// writes one line to out, and from then on only reaps. It returns when the spec does not come
// whole, i.e. when the command that started it ended before it had recorded this process.
func RunInit(in io.Reader, out io.WriteCloser) error {
	var spec machineSpec
	if err := json.NewDecoder(in).Decode(&spec); err != nil {
		return fmt.Errorf("machine spec: %w", err)
	}
	if os.Getpid() != 1 {
		return errors.New("init: not process 1 of a process namespace")
	}
	if err := setUp(spec); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, initReady); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	reap()
	return nil
}

func setUp(spec machineSpec) error {
	if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// /sys/class/net must be that of the machine's network namespace: a new sysfs, with the
	// cgroup hierarchies of the host put back.
	if err := remount("sysfs", "/sys", []string{"/sys/fs/cgroup"}); err != nil {
		return err
	}
	for _, dir := range spec.Private {
		if err := remount("tmpfs", dir, within(dir, spec.Keep)); err != nil {
			return err
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, b := range spec.Binds {
		if err := os.MkdirAll(b.Target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(b.Source, b.Target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", b.Source, b.Target, err)
		}
	}
	// Pods may ask for mount propagation. Last, since shared mounts could not be moved.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w", err)
	}
	return nil
}

// remount mounts a fresh file system on dir and puts the kept folders back, with all that is
// mounted below them.
func remount(fstype, dir string, keep []string) error {
	trees := make([]int, len(keep))
	for i, path := range keep {
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return fmt.Errorf("keep %s: %w", path, err)
		}
		defer unix.Close(fd)
		trees[i] = fd
	}
	options := ""
	if fstype == "tmpfs" {
		options = "mode=1777"
	}
	if err := unix.Mount(fstype, dir, fstype, 0, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", fstype, dir, err)
	}
	for i, path := range keep {
		if fstype == "tmpfs" {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
		}
		if err := unix.MoveMount(trees[i], "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("put %s back: %w", path, err)
		}
	}
	return nil
}

// within picks the paths that lie below dir.
func within(dir string, paths []string) []string {
	var inside []string
	for _, path := range paths {
		if rel, err := filepath.Rel(dir, path); err == nil && rel != "." && rel != ".." && !strings.HasPrefix(rel, "../") {
			inside = append(inside, path)
		}
	}
	return inside
}

// reap collects whatever is orphaned into the machine, for as long as the machine lives.
func reap() {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	for range children { // one signal can stand for several children
		for {
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

// startSpec tells a starter which program to start.
type startSpec struct {
	Path string   `json:"path"`
	Args []string `json:"args"`
}

// RunStart starts a component inside the machine that it runs in itself, says so on out, and ends
// once in has said that the component is recorded; without that word it takes the component along.
// The component is then a child of the machine's init. Started from outside it would be one of the
// host's process 1, and a machine does not end before its last process was reaped.
func RunStart(in io.Reader, out io.Writer) error {
	words := json.NewDecoder(in)
	var spec startSpec
	if err := words.Decode(&spec); err != nil {
		return fmt.Errorf("start spec: %w", err)
	}
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = machineEnv, "/", os.Stderr, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, initReady)
	var recorded string
	if err = errors.Join(err, words.Decode(&recorded)); err != nil {
		return errors.Join(fmt.Errorf("%s was not recorded: %w", spec.Path, err), cmd.Process.Kill(), cmd.Wait())
	}
	return nil
}
