package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// apiTarget is where the forwarder that every cluster has leads to.
const apiTarget = "127.0.0.1:" + apiPort

// Forward makes target, host:port as DialContext takes it, reachable from the host and returns the
// address on 127.0.0.1. It lasts until the cluster is taken down; the address stays the same when
// the forwarder or the cluster has to be started again.
func (c *Cluster) Forward(ctx context.Context, target string) (address string, err error) {
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return "", fmt.Errorf("forward target %q: want host:port: %w", target, err)
	}
	if net.ParseIP(host) == nil {
		if _, err := qualify(host); err != nil {
			return "", fmt.Errorf("forward target %q: %w", target, err)
		}
	}
	err = c.exclusive(ctx, func() error {
		address, err = c.ensureForward(target)
		return err
	})
	return address, err
}

// findForward returns a copy of the record of a forwarder, a new one when there is none.
func (c *Cluster) findForward(target string) forward {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.state.Forwards {
		if f.Target == target {
			return *f
		}
	}
	return forward{Target: target}
}

func (c *Cluster) forwardTargets() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	targets := make([]string, len(c.state.Forwards))
	for i, f := range c.state.Forwards {
		targets[i] = f.Target
	}
	return targets
}

// ensureForward starts the forwarder to target unless it runs.
func (c *Cluster) ensureForward(target string) (address string, err error) {
	f := c.findForward(target)
	if f.Process.Alive() {
		return f.Listen, nil
	}
	listener, err := listenAgain(f.Listen)
	if err != nil {
		return "", err
	}
	defer listener.Close()
	f.Listen = listener.Addr().String()
	if err := c.startForwarder(&f, listener); err != nil {
		return "", fmt.Errorf("start forwarder to %s: %w", target, err)
	}
	return f.Listen, nil
}

// listenAgain listens on the recorded address, or on a free one when there is none or it is taken.
func listenAgain(address string) (*net.TCPListener, error) {
	if address != "" {
		if listener, err := net.Listen("tcp4", address); err == nil {
			return listener.(*net.TCPListener), nil
		}
	}
	return net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
}

func (c *Cluster) startForwarder(f *forward, listener *net.TCPListener) error {
	socket, err := listener.File()
	if err != nil {
		return err
	}
	defer socket.Close()
	log, err := openLog(filepath.Join(c.layout.logs(), "forwarder.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.self, "forwarder", "--state-dir", filepath.Dir(filepath.Dir(c.layout.folder)), "--name", c.layout.name(), f.Target)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = machineEnv, "/", log, log
	cmd.ExtraFiles = []*os.File{socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	recorded, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }()
	if f.Process, err = identify(cmd.Process.Pid); err != nil {
		return err
	}
	err = c.update(func(s *state) {
		s.Forwards = slices.DeleteFunc(s.Forwards, func(old *forward) bool { return old.Target == f.Target })
		s.Forwards = append(s.Forwards, f)
	})
	if err != nil {
		return err
	}
	_, err = io.WriteString(recorded, "recorded\n")
	return errors.Join(err, recorded.Close())
}

// ServeForward is the forwarder's process. Its listener is file descriptor 3. It serves only once
// in has said that the process is recorded, and until it is killed.
func (c *Cluster) ServeForward(ctx context.Context, in io.Reader, target string) error {
	if line, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return fmt.Errorf("forwarder was not recorded: %q: %w", line, err)
	}
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return fmt.Errorf("listener: %w", err)
	}
	defer listener.Close()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go func() {
			if err := c.forwardConn(ctx, conn.(*net.TCPConn), target); err != nil {
				fmt.Fprintf(os.Stderr, "%s %s: %v\n", time.Now().Format(time.RFC3339), target, err)
			}
		}()
	}
}

// forwardConn joins a connection with one to the target, until both directions have ended.
func (c *Cluster) forwardConn(ctx context.Context, near *net.TCPConn, target string) error {
	defer near.Close()
	dialCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := c.DialContext(dialCtx, "tcp", target)
	if err != nil {
		return err
	}
	far := conn.(*net.TCPConn)
	defer far.Close()
	var both sync.WaitGroup
	pass := func(to, from *net.TCPConn) {
		_, _ = io.Copy(to, from) // a reset is an end like another
		_ = to.CloseWrite()
	}
	both.Go(func() { pass(far, near) })
	both.Go(func() { pass(near, far) })
	both.Wait()
	return nil
}

// forwardName is how status and logs name a forwarder.
func forwardName(target string) string {
	if target == apiTarget {
		return "forwarder"
	}
	return "forwarder " + strings.TrimSuffix(target, "."+clusterDomain)
}
