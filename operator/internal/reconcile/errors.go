package reconcile

import (
	"fmt"
	"time"
)

// WaitError says that nothing is wrong and the world is still moving: the object is Reconciling. It is told apart
// by errors.As, however it is wrapped.
type WaitError struct {
	// Reason of the conditions, in CamelCase.
	Reason string
	// Message of the conditions. It carries no times and no random names: an equal state has an equal message.
	Message string
	// After is the time to the next pass. Zero: an event will start it.
	After time.Duration
}

// Error returns the message.
func (e *WaitError) Error() string { return e.Message }

// Wait makes a WaitError.
func Wait(after time.Duration, reason, format string, args ...any) error {
	return &WaitError{Reason: reason, Message: fmt.Sprintf(format, args...), After: after}
}

// StalledError says that no progress is possible until somebody changes the spec or what it refers to: the object
// is Stalled.
type StalledError struct {
	// Reason of the conditions, in CamelCase.
	Reason string
	// Message of the conditions; see WaitError.
	Message string
	// After is the time to the next look. Zero: only a change starts it.
	After time.Duration
}

// Error returns the message.
func (e *StalledError) Error() string { return e.Message }

// Stalled makes a StalledError.
func Stalled(reason, format string, args ...any) error {
	return &StalledError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// TransientError says that a request failed that may succeed when it is made again: it is retried with back-off.
// An error of no type of this package counts as one.
type TransientError struct {
	// Reason of the conditions, in CamelCase.
	Reason string
	// Message of the conditions; see WaitError. What the cause says goes to the log alone.
	Message string
	// Err is the cause.
	Err error
}

// Error returns the message and the cause.
func (e *TransientError) Error() string { return fmt.Sprintf("%s: %v", e.Message, e.Err) }

// Unwrap returns the cause.
func (e *TransientError) Unwrap() error { return e.Err }

// Transient makes a TransientError of a cause.
func Transient(err error, reason, format string, args ...any) error {
	return &TransientError{Reason: reason, Message: fmt.Sprintf(format, args...), Err: err}
}

// TerminalError says that a request failed and would fail again: it is not retried before something changes, the
// object is Stalled, and the failure counts as an error of the controller.
type TerminalError struct {
	// Reason of the conditions, in CamelCase.
	Reason string
	// Message of the conditions; see WaitError.
	Message string
	// Err is the cause.
	Err error
}

// Error returns the message and the cause.
func (e *TerminalError) Error() string { return fmt.Sprintf("%s: %v", e.Message, e.Err) }

// Unwrap returns the cause.
func (e *TerminalError) Unwrap() error { return e.Err }

// Terminal makes a TerminalError of a cause.
func Terminal(err error, reason, format string, args ...any) error {
	return &TerminalError{Reason: reason, Message: fmt.Sprintf(format, args...), Err: err}
}
