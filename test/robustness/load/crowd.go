package load

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/test/robustness/lab"
)

const (
	crowdEnv = "HOLDFAST_ROBUSTNESS_CROWD"
	// perSession is how many leases a session of a crowd keeps.
	perSession = 10
)

type crowdInstructions struct {
	Addresses []string
	Prefix    string
	Holds     int
	TTL       time.Duration
}

// Crowd is a process that keeps many leases by sessions.
type Crowd struct {
	cmd *exec.Cmd
	out io.Reader
}

// StartCrowd starts this program once more as a crowd. Its main function must call Child.
func StartCrowd(addresses []string, prefix string, holds int, ttl time.Duration) (*Crowd, error) {
	text, err := json.Marshal(crowdInstructions{Addresses: addresses, Prefix: prefix, Holds: holds, TTL: ttl})
	if err != nil {
		return nil, fmt.Errorf("start a crowd: %w", err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crowdEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a crowd: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a crowd: %w", err)
	}
	return &Crowd{cmd: cmd, out: out}, nil
}

// AwaitReady returns once the crowd holds all its leases.
func (c *Crowd) AwaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() }) // it has ended otherwise
	defer stop()
	if _, err := bufio.NewReader(c.out).ReadString('\n'); err != nil {
		return fmt.Errorf("a crowd does not get ready: %w", err)
	}
	return nil
}

// Kill kills it.
func (c *Crowd) Kill() error {
	if err := c.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill a crowd: %w", err)
	}
	_ = c.cmd.Wait() // it says that it was killed
	return nil
}

// crowd acquires its leases, says that it is ready, and keeps them until it is killed.
func crowd(ctx context.Context, text string, ready io.Writer) error {
	var in crowdInstructions
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return fmt.Errorf("%s: %w", crowdEnv, err)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(200)
	for first := 0; first < in.Holds; first += perSession {
		group.Go(func() error {
			conn, err := lab.Dial(in.Addresses[first/perSession%len(in.Addresses)])
			if err != nil {
				return err
			}
			session, err := lease.New(conn).NewSession(groupCtx, lease.WithTTL(in.TTL))
			if err != nil {
				return err
			}
			for i := first; i < min(first+perSession, in.Holds); i++ {
				if _, err := session.Acquire(groupCtx, fmt.Sprintf("%s%d", in.Prefix, i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("crowd: %w", err)
	}
	fmt.Fprintln(ready, "ready")
	<-ctx.Done()
	return nil
}
