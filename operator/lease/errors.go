package lease

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// ErrReleased is the cause of a lease that its holder released.
var ErrReleased = errors.New("the lease was released")

// ErrClientClosed is the cause of a lease whose client was closed.
var ErrClientClosed = errors.New("the lease client was closed")

// ErrExpired is the cause of a lease that could not be renewed in time. The service may not have freed it yet.
var ErrExpired = errors.New("the lease could not be renewed in time")

// ErrNotHeld is the cause of a lease that the service says is over.
var ErrNotHeld = errors.New("the lease is not held any more")

// HeldError says that a lease is held by others.
type HeldError struct {
	Name string
	// Holders are those who hold it, as they named themselves (at most 16).
	Holders []string
	// Tokens are theirs, in the same order.
	Tokens []int64
	// Waiters is how many wait for it.
	Waiters int
	// RetryAfter is when it may be free at the earliest if nobody releases it. 0: not known.
	RetryAfter time.Duration
	// TimedOut says that the request waited as long as it had asked to.
	TimedOut bool
	err      error
}

func (e *HeldError) Error() string { return status.Convert(e.err).Message() }

// Unwrap returns the gRPC error.
func (e *HeldError) Unwrap() error { return e.err }

// Typed makes a gRPC error of a call about a lease recognisable by errors.As (*HeldError) and errors.Is (ErrNotHeld).
func Typed(name string, err error) error {
	st := status.Convert(err)
	if st.Code() == codes.Aborted {
		return heldError(name, st, err)
	}
	if st.Code() == codes.NotFound {
		return fmt.Errorf("lease %q: %w", name, ErrNotHeld)
	}
	return fmt.Errorf("lease %q: %w", name, err)
}

func heldError(name string, st *status.Status, err error) error {
	held := &HeldError{Name: name, err: err}
	known := false
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			held.TimedOut = d.GetReason() == "WAIT_TIMEOUT"
		case *errdetails.RetryInfo:
			held.RetryAfter = d.GetRetryDelay().AsDuration()
		case *leasev1.Contention:
			known = true
			held.Waiters = int(d.GetWaiters())
			for _, h := range d.GetHolds() {
				held.Holders = append(held.Holders, h.GetHolder())
				held.Tokens = append(held.Tokens, h.GetToken())
			}
		}
	}
	if !known {
		return fmt.Errorf("lease %q: %w", name, err)
	}
	return held
}

// errorInfo returns what the service says about the reason of an error; nil if it says nothing.
func errorInfo(err error) *errdetails.ErrorInfo {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == "lease.dist.system" {
			return info
		}
	}
	return nil
}

func reason(err error) string { return errorInfo(err).GetReason() }

// requestEnded says that the hold a request id got is over: the service took it back because the connection broke before it
// could answer. A new request id is needed, and safe, since nobody was told of that hold.
func requestEnded(err error) bool { return reason(err) == "REQUEST_ENDED" }
