package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/operator/lease"
)

const (
	// tokenVariable is where a command finds its fencing token.
	tokenVariable = "HOLDFAST_FENCING_TOKEN"
	// lookEvery is how often the lease of a running command is looked at.
	lookEvery = 50 * time.Millisecond
)

// childError carries the exit code of the command.
type childError struct{ code int }

func (e *childError) Error() string { return fmt.Sprintf("the command exited with code %d", e.code) }

func (a *app) lock() *cobra.Command {
	w := &wanted{}
	cmd := &cobra.Command{
		Use:   "lock NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lease",
		Long: "Wait for a lease, run a command while holding it, release it, and exit with the command's exit code.\n\n" +
			"The command finds its fencing token in $" + tokenVariable + ", and the lease's name in $HOLDFAST_LEASE. It gets SIGTERM when the\n" +
			"lease has not been renewed for two thirds of its TTL or somebody asks to have it back, and SIGKILL, with all processes\n" +
			"of its process group, before the lease can pass to another holder. A command killed by signal n exits with 128+n.\n" +
			"When leasectl itself gets SIGINT, SIGTERM or SIGHUP it asks the command to stop, and kills it at the second such signal.",
		Args: args(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, given []string) error {
			options, err := w.options()
			if err == nil {
				err = runnable(given[1])
			}
			if err != nil {
				return err
			}
			return a.stream(cmd.Context(), func(ctx context.Context, c *clients) error {
				held, err := w.take(ctx, c.client, given[0], options)
				if err != nil {
					return err
				}
				_, err = a.guard(ctx, held, given[1:])
				return err
			})
		},
	}
	w.flags(cmd)
	cmd.Flags().BoolVar(&w.try, "try", false, "do not wait: exit with code 3 if the lease is held")
	cmd.Flags().DurationVar(&w.wait, "wait", 0, "wait for so long at most, then exit with code 3 (default without end)")
	cmd.MarkFlagsMutuallyExclusive("try", "wait")
	return cmd
}

// commandError says that a command cannot be run.
type commandError struct{ err error }

func (e *commandError) Error() string { return "run the command: " + e.err.Error() }
func (e *commandError) Unwrap() error { return e.err }

// runnable says whether there is such a command, before anybody waits for a lease for it.
func runnable(command string) error {
	_, err := exec.LookPath(command)
	if errors.Is(err, fs.ErrNotExist) {
		err = &exec.Error{Name: command, Err: exec.ErrNotFound} // with a path it is the file that is not there
	}
	if err != nil {
		return &commandError{err}
	}
	return nil
}

// take acquires the lease for a command.
func (w *wanted) take(ctx context.Context, c *lease.Client, name string, options []lease.Option) (*lease.Lease, error) {
	if w.try {
		return c.TryAcquire(ctx, name, options...)
	}
	if w.wait > 0 {
		options = append(options, lease.WithWaitTimeout(w.wait))
	}
	return c.Acquire(ctx, name, options...)
}

// guard runs a command for as long as a lease is held, and releases it. It says whether the command was stopped for the sake of
// the lease.
func (a *app) guard(ctx context.Context, held *lease.Lease, command []string) (stopped bool, err error) {
	defer func() {
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
		defer cancel()
		if releaseErr := held.Release(release); releaseErr != nil {
			fmt.Fprintln(a.err, "leasectl: the lease was not released and will expire:", readable(releaseErr))
		}
	}()
	child := newChild(ctx, command, a.in)
	child.Stdout, child.Stderr = a.out, a.err
	child.Env = append(os.Environ(), tokenVariable+"="+strconv.FormatInt(held.Token(), 10), "HOLDFAST_LEASE="+held.Name())
	ended, err := child.run()
	if err != nil {
		return false, &commandError{err}
	}
	stop := func(why string) {
		stopped = ctx.Err() == nil
		fmt.Fprintf(a.err, "leasectl: %s: stopping the command\n", why)
		child.signal(syscall.SIGTERM)
	}
	err = a.wait(ctx, held, ended, stop, func(why string) {
		stopped = ctx.Err() == nil
		fmt.Fprintf(a.err, "leasectl: %s: killing the command\n", why)
		child.signal(syscall.SIGKILL)
	})
	child.sweep()
	return stopped, childResult(err)
}

// wait waits for the command's end, asks it to stop once when that is due, and kills it when the lease is lost or we are asked twice to stop.
func (a *app) wait(ctx context.Context, held *lease.Lease, ended <-chan error, stop, kill func(why string)) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	asked := false
	ask := func(why string) {
		if !asked {
			asked = true
			stop(why)
		}
	}
	interrupted, again, revoked, done := ctx.Done(), a.again, held.Revoked(), held.Done()
	for {
		select {
		case err := <-ended:
			return err
		case <-interrupted:
			interrupted = nil
			ask(context.Cause(ctx).Error())
		case <-again:
			again = nil
			kill("interrupted again")
		case <-revoked:
			revoked = nil
			ask("the lease is wanted back: " + held.Revocation().Reason)
		case <-done:
			done = nil
			kill(held.Err().Error())
		case <-ticker.C:
			if done != nil && held.Remaining() < held.TTL()/3-held.TTL()/10 {
				ask("the lease could not be renewed")
			}
		}
	}
}

func childResult(err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		return fmt.Errorf("wait for the command: %w", err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return &childError{code: 128 + int(status.Signal())}
	}
	return &childError{code: exit.ExitCode()}
}
