package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// errorDomain is the domain of every google.rpc.ErrorInfo the service sends.
const errorDomain = "lease.dist.system"

// retrySoon is the retry time when a fail-over is going on.
const retrySoon = 250 * time.Millisecond

// Violation is one field of a request that is not as it must be.
type Violation struct {
	Field, Problem string
}

// InvalidError says what is wrong with a request.
type InvalidError struct{ Violations []Violation }

func (e *InvalidError) Error() string {
	problems := make([]string, len(e.Violations))
	for i, v := range e.Violations {
		problems[i] = v.Field + " " + v.Problem
	}
	return strings.Join(problems, "; ")
}

// noOwnerError says that nobody has been serving a name for as long as it was worth waiting.
type noOwnerError struct{ name string }

func (e *noOwnerError) Error() string {
	return fmt.Sprintf("no replica serves %q at the moment", e.name)
}

// errStopping says that this replica is about to stop.
var errStopping = errors.New("this replica is stopping")

// errCutOff is why the streams of a replica end that is cut off from the store; what is wrong the engine knows.
var errCutOff = errors.New("this replica is cut off from the store")

// toError makes the gRPC error of any error of the service. It is the only place that does.
// What has a gRPC status already, because another replica answered, passes unchanged.
func (s *Server) toError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	var (
		held      *core.HeldError
		notHeld   *core.NotHeldError
		conflict  *core.ModeConflictError
		ended     *core.RequestEndedError
		mismatch  *core.RequestMismatchError
		candidate *core.NoSuchCandidateError
		invalid   *InvalidError
		owner     *engine.NotOwnerError
		noOwner   *noOwnerError
		quota     *engine.QuotaError
		trouble   *engine.StoreError
		refused   *engine.RefusedError
		denied    *accessError
	)
	switch {
	case errors.As(err, &held):
		reason := leasev1.ErrorReason_ERROR_REASON_LEASE_HELD
		if held.TimedOut {
			reason = leasev1.ErrorReason_ERROR_REASON_WAIT_TIMEOUT
		}
		return rich(codes.Aborted, reason, err, nil, contention(held), retryInfo(retryHeld(held)))
	case errors.As(err, &notHeld):
		return rich(codes.NotFound, leasev1.ErrorReason_ERROR_REASON_LEASE_NOT_HELD, err, nil)
	case errors.As(err, &conflict):
		return rich(codes.FailedPrecondition, leasev1.ErrorReason_ERROR_REASON_MODE_CONFLICT, err, nil)
	case errors.As(err, &ended):
		return rich(codes.FailedPrecondition, leasev1.ErrorReason_ERROR_REASON_REQUEST_ENDED, err, nil)
	case errors.As(err, &mismatch):
		return rich(codes.FailedPrecondition, leasev1.ErrorReason_ERROR_REASON_REQUEST_MISMATCH, err, nil)
	case errors.As(err, &candidate):
		return rich(codes.FailedPrecondition, leasev1.ErrorReason_ERROR_REASON_NO_SUCH_CANDIDATE, err, nil)
	case errors.As(err, &invalid):
		return rich(codes.InvalidArgument, leasev1.ErrorReason_ERROR_REASON_INVALID_REQUEST, err, nil, badRequest(invalid))
	case errors.As(err, &quota):
		failure := &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
			Subject: quota.Quota, Description: quota.Error(),
		}}}
		return rich(codes.ResourceExhausted, leasev1.ErrorReason_ERROR_REASON_QUOTA_EXCEEDED, err, nil, failure, retryInfo(quota.RetryAfter))
	case errors.As(err, &refused):
		return rich(codes.ResourceExhausted, leasev1.ErrorReason_ERROR_REASON_QUOTA_EXCEEDED, err, nil, &errdetails.QuotaFailure{
			Violations: []*errdetails.QuotaFailure_Violation{{Subject: engine.QuotaValueBytes, Description: refused.Error()}},
		})
	case errors.As(err, &owner):
		return rich(codes.Unavailable, leasev1.ErrorReason_ERROR_REASON_NOT_OWNER, err, s.ownerOf(owner.Shard), retryInfo(retrySoon))
	case errors.As(err, &noOwner):
		return rich(codes.Unavailable, leasev1.ErrorReason_ERROR_REASON_NO_OWNER, err, nil, retryInfo(retrySoon))
	case errors.Is(err, engine.ErrUncertain), errors.As(err, &trouble):
		return rich(codes.Unavailable, leasev1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, err, nil, retryInfo(retrySoon))
	case errors.As(err, &denied):
		return rich(denied.code, leasev1.ErrorReason_ERROR_REASON_ACCESS_DENIED, err, nil)
	case errors.Is(err, errStopping):
		return rich(codes.Unavailable, leasev1.ErrorReason_ERROR_REASON_SHUTTING_DOWN, err, nil, retryInfo(retrySoon))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return status.FromContextError(err).Err()
	}
	s.opts.Log.Error("a call failed for a reason that has no place in the table of errors", "error", err)
	return status.Error(codes.Internal, "internal error")
}

func rich(code codes.Code, reason leasev1.ErrorReason, err error, metadata map[string]string, details ...protoadapt.MessageV1) error {
	info := &errdetails.ErrorInfo{
		Reason: reasonName(reason), Domain: errorDomain, Metadata: metadata,
	}
	st, detailErr := status.New(code, err.Error()).WithDetails(append([]protoadapt.MessageV1{info}, details...)...)
	if detailErr != nil {
		return status.Error(code, err.Error())
	}
	return st.Err()
}

func badRequest(e *InvalidError) *errdetails.BadRequest {
	bad := &errdetails.BadRequest{}
	for _, v := range e.Violations {
		bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: v.Field, Description: v.Problem})
	}
	return bad
}

func retryInfo(d time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d)}
}

// retryHeld is when trying again may help at the earliest without a release: when the first hold expires.
func retryHeld(e *core.HeldError) time.Duration {
	retry := retrySoon
	for i, h := range e.Holds {
		if i == 0 || h.ExpiresIn < retry {
			retry = h.ExpiresIn
		}
	}
	return retry
}

// contentionBytes is how much the holds of a Contention take at most, but for one that does alone. Details of errors travel in trailers, base64,
// of which gRPC in other languages takes 8 KiB with everything else.
const contentionBytes = 3 << 10

func contention(e *core.HeldError) *leasev1.Contention {
	c := &leasev1.Contention{QueuePosition: int32(e.Position), Waiters: int32(e.Waiters)}
	bytes := 0
	for i := range e.Holds {
		h := brief(holdView(&e.Holds[i]))
		bytes += h.SizeVT()
		if i > 0 && bytes > contentionBytes {
			break
		}
		c.Holds = append(c.Holds, h)
	}
	return c
}

// brief takes what a holder attached out of a hold.
func brief(h *leasev1.Hold) *leasev1.Hold {
	h.Metadata, h.Value = nil, nil
	return h
}

// reasonName is how an ErrorInfo names a reason.
func reasonName(reason leasev1.ErrorReason) string {
	return strings.TrimPrefix(reason.String(), "ERROR_REASON_")
}

// reasonOf returns the ErrorInfo of a gRPC error of the service; nil if it has none.
func reasonOf(err error) *errdetails.ErrorInfo {
	st, ok := status.FromError(err)
	if !ok {
		return nil
	}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == errorDomain {
			return info
		}
	}
	return nil
}

// elsewhere says whether an error of another replica means that the call may be repeated at whoever serves
// the name by now: it is not the owner any more, or it cannot be reached.
func elsewhere(err error) bool {
	var owner *engine.NotOwnerError
	if errors.As(err, &owner) {
		return true
	}
	st, ok := status.FromError(err)
	if !ok || st.Code() != codes.Unavailable {
		return false
	}
	info := reasonOf(err)
	return info == nil || info.GetReason() != "STORE_UNAVAILABLE"
}

// final says whether an error of a keepalive stays the same however often it is repeated. Clients judge refused attaches by the same codes.
func final(err error) bool {
	switch status.Code(err) {
	case codes.NotFound, codes.InvalidArgument, codes.PermissionDenied, codes.Unimplemented:
		return true
	default:
		return false
	}
}
