// The leasectl binary is the command line of the lease service.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/internal/buildinfo"
	"github.com/holdfast-io/holdfast/operator/lease"
)

// Exit codes, apart from those of a command that lock or elect ran.
const (
	exitFailed = 1
	exitUsage  = 2
	// exitHeld: the lease is held by somebody else, or the wait for it timed out.
	exitHeld = 3
	// exitCannotRun and exitNotFound are about the command of lock and elect, as shells have them.
	exitCannotRun = 126
	exitNotFound  = 127
	// exitSignal and the number of the signal: leasectl was interrupted before it was done.
	exitSignal = 128
)

// version is set by the linker: -X main.version=...
var version string

func main() { os.Exit(run()) }

func run() int {
	ctx, again, stop := interruptible()
	defer stop()
	root := newRoot(os.Stdin, os.Stdout, os.Stderr, again)
	root.Version = buildinfo.Version(version)
	err := root.ExecuteContext(ctx)
	var child *childError
	var interrupted *signalError
	switch {
	case errors.As(err, &child):
		return child.code
	case err != nil && errors.As(context.Cause(ctx), &interrupted):
		fmt.Fprintln(os.Stderr, "leasectl:", interrupted)
		return exitSignal + int(interrupted.signal)
	case err != nil:
		fmt.Fprintln(os.Stderr, "leasectl:", readable(err))
	}
	return exitCode(err)
}

// signalError is why a context ended.
type signalError struct{ signal syscall.Signal }

func (e *signalError) Error() string { return "interrupted (" + e.signal.String() + ")" }

// interruptible returns a context that ends with the first signal that asks us to stop, and a channel that is closed by the second. A third one
// does what it does to any process.
func interruptible() (ctx context.Context, again <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals, second := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		first := <-signals
		if number, ok := first.(syscall.Signal); ok {
			cancel(&signalError{number})
		}
		<-signals
		signal.Stop(signals)
		close(second)
	}()
	return ctx, second, func() { cancel(nil) }
}

func exitCode(err error) int {
	var held *lease.HeldError
	var usage *usageError
	var command *commandError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &held):
		return exitHeld
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &command) && errors.Is(err, exec.ErrNotFound):
		return exitNotFound
	case errors.As(err, &command):
		return exitCannotRun
	}
	return exitFailed
}

type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// readable says what a person can do about an error, where gRPC only gives a code.
func readable(err error) string {
	var st interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &st) {
		return err.Error()
	}
	switch s := st.GRPCStatus(); s.Code() {
	case codes.Unavailable:
		return "the lease service cannot be reached or cannot serve now: " + s.Message()
	case codes.DeadlineExceeded:
		return "the lease service did not answer in time (see --timeout)"
	case codes.Unimplemented:
		return "the server does not offer this; is it a lease service, and of this version? (" + s.Message() + ")"
	default:
		return s.Message()
	}
}
