// The leasectl binary is the command line of the lease service.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/internal/buildinfo"
	"github.com/holdfast-io/holdfast/operator/lease"
)

// Exit codes, apart from those of a child of lock.
const (
	exitFailed = 1
	exitUsage  = 2
	// exitHeld: the lease is held by somebody else, or the wait for it timed out.
	exitHeld = 3
)

// version is set by the linker: -X main.version=...
var version string

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(os.Stdin, os.Stdout, os.Stderr)
	root.Version = buildinfo.Version(version)
	err := root.ExecuteContext(ctx)
	var child *childError
	if errors.As(err, &child) {
		return child.code
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "leasectl:", readable(err))
	}
	return exitCode(err)
}

func exitCode(err error) int {
	var held *lease.HeldError
	var usage *usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &held):
		return exitHeld
	case errors.As(err, &usage):
		return exitUsage
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
