package cluster

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// machineEnv is the environment of all that runs in a machine: proxies and paths of the host's
// user have no business there.
var machineEnv = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}

// spec describes a machine to its init.
func (c *Cluster) spec(machine string) machineSpec {
	s := machineSpec{Hostname: machine, Private: []string{"/run", "/tmp", "/var"}, Keep: c.keep()}
	own := func(dir string) string { return c.layout.machineDir(machine, dir) }
	// The controller manager makes the volumes' folders, kubelets mount them, both under this path.
	s.Binds = []bind{{c.layout.volumes(), "/tmp/hostpath_pv"}}
	if machine == controlPlane {
		return s
	}
	s.Binds = append(s.Binds,
		bind{own("kubelet"), "/var/lib/kubelet"},
		bind{own("containerd"), "/var/lib/containerd"},
		bind{own("cni"), "/var/lib/cni"},
		bind{own("pods-log"), "/var/log/pods"},
		bind{own("containers-log"), "/var/log/containers"},
	)
	return s
}

// keep lists the folders that machines see in spite of their private /run, /tmp and /var.
func (c *Cluster) keep() []string {
	dirs := []string{c.layout.folder, c.settings.binDir}
	for _, machine := range []string{nodeName(1), controlPlane} {
		for _, comp := range c.layout.components(c.settings, machine) {
			if comp.path != ownProgram {
				dirs = append(dirs, resolvedDir(comp.path))
			}
		}
	}
	seen := map[string]bool{}
	var unique []string
	for _, dir := range dirs {
		if !seen[dir] {
			seen[dir] = true
			unique = append(unique, dir)
		}
	}
	return unique
}

// resolvedDir is the folder of the file that a path leads to through links.
func resolvedDir(file string) string {
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target
	}
	return filepath.Dir(file)
}

// startMachine starts a machine's init, in the network namespace that is there already, and waits
// until the machine is set up.
func (c *Cluster) startMachine(ctx context.Context, machine string) error {
	spec := c.spec(machine)
	for _, b := range spec.Binds {
		if err := os.MkdirAll(b.Source, 0o755); err != nil {
			return err
		}
	}
	log, err := openLog(c.layout.log(machine, ""))
	if err != nil {
		return err
	}
	defer log.Close()
	theirIn, ourIn, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ourIn.Close()
	ourOut, theirOut, err := os.Pipe()
	if err != nil {
		return errors.Join(err, theirIn.Close())
	}
	defer ourOut.Close()
	cmd := exec.Command(c.self, "machine-init")
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = machineEnv, theirIn, theirOut, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	err = inNetwork(c.layout.network(machine), cmd.Start)
	_, _ = theirIn.Close(), theirOut.Close() // the init has them now
	if err != nil {
		return fmt.Errorf("start machine %s: %w", machine, err)
	}
	go func() { _ = cmd.Wait() }() // reaps it, should it end before this process
	init, err := identify(cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := c.update(func(s *state) {
		m := s.machine(machine)
		m.Init, m.Components = init, map[string]Process{}
	}); err != nil {
		return err
	}
	return c.awaitInit(ctx, machine, spec, ourIn, ourOut)
}

// awaitInit hands the recorded init its spec, without which it would end, and waits for its word.
func (c *Cluster) awaitInit(ctx context.Context, machine string, spec machineSpec, in, out *os.File) error {
	if err := json.NewEncoder(in).Encode(spec); err != nil {
		return fmt.Errorf("machine %s: %w", machine, err)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(time.Minute)
	}
	if err := out.SetReadDeadline(deadline); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if strings.TrimSpace(line) != initReady {
		return &ComponentError{Machine: machine, Log: c.layout.log(machine, ""), Err: fmt.Errorf("machine was not set up: %w", errors.Join(err, ctx.Err()))}
	}
	return nil
}

// start starts a component in its machine and records it.
func (c *Cluster) start(machine string, comp component) error {
	file := c.layout.log(machine, comp.name)
	fail := func(err error) error {
		return &ComponentError{Machine: machine, Component: comp.name, Log: file, Err: err}
	}
	log, err := openLog(file)
	if err != nil {
		return err
	}
	defer log.Close()
	// The machine may not see the folder that this program is in.
	program, err := os.Open(c.self)
	if err != nil {
		return err
	}
	defer program.Close()
	cmd := exec.Command(fmt.Sprintf("/proc/self/fd/%d", program.Fd()), "machine-start")
	cmd.Env, cmd.Dir, cmd.Stderr = machineEnv, "/", log
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := inMachine(c.record(machine).Init, cmd.Start); err != nil {
		return fail(err)
	}
	err = c.recordStarted(machine, comp, cmd.Process.Pid, in, out)
	if err := errors.Join(err, in.Close(), cmd.Wait()); err != nil {
		return fail(err)
	}
	return nil
}

// recordStarted talks to RunStart.
func (c *Cluster) recordStarted(machine string, comp component, helper int, in io.Writer, out io.Reader) error {
	if err := json.NewEncoder(in).Encode(startSpec{Path: comp.path, Args: comp.args}); err != nil {
		return err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != initReady {
		return fmt.Errorf("not started: %s: %w", line, err)
	}
	process, err := childOf(helper)
	if err != nil {
		return err
	}
	if err := c.update(func(s *state) { s.machine(machine).Components[comp.name] = process }); err != nil {
		return err
	}
	return json.NewEncoder(in).Encode(initReady)
}

// command runs a command in a machine and returns what it printed.
func (c *Cluster) command(ctx context.Context, machine string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = machineEnv
	var out []byte
	err := inMachine(c.record(machine).Init, func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		// What ctx has ended fails with the signal, which says less.
		return out, fmt.Errorf("%s: %s: %w: %s", machine, strings.Join(args, " "), cmp.Or(ctx.Err(), err), out)
	}
	return out, nil
}

// Exec runs a command inside a machine, node1 or control-plane, with the caller's standard streams.
// An *exec.ExitError carries the command's exit code.
func (c *Cluster) Exec(ctx context.Context, machine string, args ...string) error {
	if machine != controlPlane {
		if err := c.requireNode(machine); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(machineEnv, "TERM="+os.Getenv("TERM"))
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", os.Stdin, os.Stdout, os.Stderr
	if err := inMachine(c.record(machine).Init, cmd.Start); err != nil {
		return fmt.Errorf("%s: %s: %w", machine, args[0], err)
	}
	return cmd.Wait()
}

func openLog(file string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
}
