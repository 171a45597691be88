package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/holdfast-io/holdfast/test/robustness/history"
)

// childEnv has the instructions of a process of clients.
const childEnv = "HOLDFAST_ROBUSTNESS_CLIENTS"

// instructions are what the clients of a child shall do.
type instructions struct {
	Load
	RegistersURL string
}

// Child makes the process one of clients if it was started by StartChild or StartCrowd, and returns false otherwise. Their operations go to
// the standard output.
func Child() (bool, error) {
	if text, ok := os.LookupEnv(crowdEnv); ok {
		return true, crowd(context.Background(), text, os.Stdout)
	}
	text, ok := os.LookupEnv(childEnv)
	if !ok {
		return false, nil
	}
	var in instructions
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return true, fmt.Errorf("%s: %w", childEnv, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	in.Recorder, in.Registers = history.NewRemote(os.Stdout), history.RemoteRegisters{URL: in.RegistersURL}
	return true, errors.Join(in.Run(ctx), in.Recorder.Err())
}

// Clients are a process of clients.
type Clients struct {
	cmd      *exec.Cmd
	received chan error
}

// StartChild starts this program once more, as clients that do what a load says, and records what they do. Its main
// function must call Child. The registers are served at a URL.
func StartChild(l *Load, registersURL string) (*Clients, error) {
	in := instructions{Load: *l, RegistersURL: registersURL}
	in.Recorder, in.Registers = nil, nil
	text, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("start clients: %w", err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start clients: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start clients: %w", err)
	}
	c := &Clients{cmd: cmd, received: make(chan error, 1)}
	go func() {
		err := l.Recorder.Receive(out)
		_, drainErr := io.Copy(io.Discard, out)
		c.received <- errors.Join(err, drainErr)
	}()
	return c, nil
}

// Signal sends a signal.
func (c *Clients) Signal(signal syscall.Signal) error {
	if err := c.cmd.Process.Signal(signal); err != nil {
		return fmt.Errorf("signal the clients: %w", err)
	}
	return nil
}

// Kill kills them, and returns once all that they recorded is here.
func (c *Clients) Kill() error {
	if err := c.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	err := <-c.received
	_ = c.cmd.Wait() // it says that they were killed
	return err
}

// Stop asks them to stop, and returns what was wrong once they have.
func (c *Clients) Stop() error {
	if err := c.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := <-c.received
	if waitErr := c.cmd.Wait(); waitErr != nil {
		err = errors.Join(err, fmt.Errorf("clients: %w", waitErr))
	}
	return err
}
