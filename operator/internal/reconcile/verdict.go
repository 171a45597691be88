package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// Verdict is what a pass came to. What follows from it (conditions, requeue, event, log) is decided in Judge alone.
type Verdict string

const (
	// Done: everything is in effect. Ready.
	Done Verdict = "Done"
	// Held: the object is paused, and changes are held back. Ready is Unknown.
	Held Verdict = "Held"
	// Waiting: the world is still moving. Reconciling.
	Waiting Verdict = "Waiting"
	// Blocked: somebody must change something. Stalled.
	Blocked Verdict = "Blocked"
	// Unclear: what the object depends on cannot be asked. Ready is Unknown.
	Unclear Verdict = "Unclear"
	// Outdated: the pass was decided on an older state than the API server's: it is made again, and the status
	// stays as it is.
	Outdated Verdict = "Outdated"
	// Retrying: a request failed and is made again with back-off. Reconciling.
	Retrying Verdict = "Retrying"
	// Failed: a request failed and would fail again. Stalled.
	Failed Verdict = "Failed"
	// Interrupted: the operator stops; nothing is known, and nothing is said. Judge does not return it: a context
	// that ends is seen on the context, since an error may speak of some other one.
	Interrupted Verdict = "Interrupted"
)

// Judgement is a verdict with what follows from it.
type Judgement struct {
	// Verdict names the outcome.
	Verdict Verdict
	// Reason and Message of the conditions. Empty for Done and Outdated.
	Reason, Message string
	// RequeueAfter is the time to the next pass. Zero: none is asked for.
	RequeueAfter time.Duration
	// Observed tells whether the pass saw the generation through, so that status.observedGeneration may advance.
	Observed bool
	// EventType is the type of the event that goes with a change of Ready, or empty for no event.
	EventType string
	// Err is what Reconcile returns: controller-runtime counts and logs it, and retries it unless it is terminal.
	Err error
}

// errHeld marks a pass in which a paused object would have been changed.
type errHeld struct{ message string }

func (e *errHeld) Error() string { return e.message }

// errOutdated marks a pass that read an older state than the API server's.
type errOutdated struct{ cause error }

func (e *errOutdated) Error() string { return "read an outdated state: " + e.cause.Error() }
func (e *errOutdated) Unwrap() error { return e.cause }

// Judge turns what a pass returned into a verdict. It is pure.
//
// The order of the cases matters: the most specific type in the chain of err wins, and an error of no type of this
// package is transient, since retrying what is hopeless costs little and giving up on what is not costs an outage.
func Judge(err error) Judgement {
	var (
		held      *errHeld
		wait      *WaitError
		stalled   *StalledError
		unknown   *UnknownError
		terminal  *TerminalError
		outdated  *errOutdated
		transient *TransientError
	)
	switch {
	case err == nil:
		return Judgement{Verdict: Done, Observed: true, EventType: corev1.EventTypeNormal}
	case errors.As(err, &held):
		return Judgement{
			Verdict: Held, Reason: v1alpha1.ReasonPaused, Message: held.message,
			Observed: true, EventType: corev1.EventTypeNormal,
		}
	case errors.As(err, &wait):
		return Judgement{
			Verdict: Waiting, Reason: wait.Reason, Message: wait.Message, RequeueAfter: wait.After,
			Observed: true, EventType: corev1.EventTypeNormal,
		}
	case errors.As(err, &stalled):
		return Judgement{
			Verdict: Blocked, Reason: stalled.Reason, Message: stalled.Message, RequeueAfter: stalled.After,
			Observed: true, EventType: corev1.EventTypeWarning,
		}
	case errors.As(err, &unknown):
		return Judgement{
			Verdict: Unclear, Reason: unknown.Reason, Message: unknown.Message, RequeueAfter: unknown.After,
			EventType: corev1.EventTypeWarning,
		}
	case errors.As(err, &terminal):
		return Judgement{
			Verdict: Failed, Reason: terminal.Reason, Message: terminal.Message,
			Observed: true, EventType: corev1.EventTypeWarning, Err: err,
		}
	case errors.As(err, &outdated):
		return Judgement{Verdict: Outdated}
	case errors.As(err, &transient):
		return Judgement{
			Verdict: Retrying, Reason: transient.Reason, Message: transient.Message,
			EventType: corev1.EventTypeWarning, Err: err,
		}
	}
	return Judgement{
		Verdict: Retrying, Reason: v1alpha1.ReasonAPIError, Message: "a pass failed and is made again; the operator's log has the error",
		EventType: corev1.EventTypeWarning, Err: err,
	}
}

// classify gives an error of the API server its type. what says what was tried: "apply StatefulSet a/b".
//
// The text of the cause stays out of the conditions: it may carry ports, request ids and times, and a message that
// differs each time would be a write each time.
func classify(err error, what string) error {
	reason := apierrors.ReasonForError(err)
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return err
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return &errOutdated{cause: err}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err), apierrors.IsRequestEntityTooLargeError(err):
		// The text of these is a function of the object alone, and the only thing that helps.
		return &StalledError{
			Reason: v1alpha1.ReasonAPIError, After: refusedRecheck,
			Message: fmt.Sprintf("%s: the API server refused it: %v", what, err),
		}
	case apierrors.IsForbidden(err):
		return Transient(err, v1alpha1.ReasonAPIError, "%s: forbidden: %v", what, err)
	case reason == "":
		return Transient(err, v1alpha1.ReasonAPIError, "%s: the API server could not be reached; it is tried again", what)
	}
	return Transient(err, v1alpha1.ReasonAPIError, "%s: the API server answered %s; it is tried again", what, reason)
}
