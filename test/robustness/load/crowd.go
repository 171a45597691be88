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
	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
	"github.com/holdfast-io/holdfast/test/robustness/lab"
)

const (
	crowdEnv = "HOLDFAST_ROBUSTNESS_CROWD"
	// perSession is how many leases a session of a crowd keeps, perConn how many sessions share a connection.
	perSession, perConn = 10, 4
)

// crowdTimeout bounds how long a crowd may take to acquire its leases.
const crowdTimeout = time.Minute

type crowdInstructions struct {
	Addresses []string
	TLS       leasetls.Files
	Prefix    string
	Holds     int
	TTL       time.Duration
}

// Crowd is a process that keeps many leases by sessions.
type Crowd struct {
	cmd *exec.Cmd
	out io.Reader
}

// StartCrowd starts this program once more as a crowd of clients of the given addresses. Its main function must call Child.
func StartCrowd(addresses []string, tls leasetls.Files, prefix string, holds int, ttl time.Duration) (*Crowd, error) {
	text, err := json.Marshal(crowdInstructions{Addresses: addresses, TLS: tls, Prefix: prefix, Holds: holds, TTL: ttl})
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
	ctx, cancel := context.WithTimeout(ctx, crowdTimeout)
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
	var conn *grpc.ClientConn
	for n := range (in.Holds + perSession - 1) / perSession {
		if n%perConn == 0 {
			var err error
			if conn, err = lab.Dial(in.Addresses[n/perConn%len(in.Addresses)], in.TLS); err != nil {
				return err
			}
		}
		shared := conn
		group.Go(func() error { return member(groupCtx, shared, &in, n*perSession) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("crowd: %w", err)
	}
	fmt.Fprintln(ready, "ready")
	<-ctx.Done()
	return nil
}

// member is one session of a crowd.
func member(ctx context.Context, conn *grpc.ClientConn, in *crowdInstructions, first int) error {
	session, err := lease.New(conn).NewSession(ctx, lease.WithTTL(in.TTL))
	if err != nil {
		return err
	}
	for i := first; i < min(first+perSession, in.Holds); i++ {
		if _, err := session.Acquire(ctx, fmt.Sprintf("%s%d", in.Prefix, i)); err != nil {
			return err
		}
	}
	return nil
}
