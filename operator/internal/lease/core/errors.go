package core

import "fmt"

// HeldError says that an acquire was not granted.
type HeldError struct {
	Name string
	// Holds are the present ones, at most 16.
	Holds []HoldView
	// Position is the place in line that was reached; 0: the request was not in line.
	Position int
	// Waiters is the length of the line.
	Waiters int
	// TimedOut says that the request waited as long as it wanted to.
	TimedOut bool
}

func (e *HeldError) Error() string {
	who := "waiting requests come first"
	if len(e.Holds) > 0 {
		who = fmt.Sprintf("held by %q with token %d", e.Holds[0].Holder, e.Holds[0].Token)
	}
	if e.TimedOut {
		return fmt.Sprintf("lease %q was not granted within the wait timeout: %s", e.Name, who)
	}
	return fmt.Sprintf("lease %q is not free: %s", e.Name, who)
}

// NotHeldError says that no live hold of the name has the token.
type NotHeldError struct {
	Name string
	// Token is the refused token; 0: any hold would have done.
	Token int64
}

func (e *NotHeldError) Error() string {
	if e.Token == 0 {
		return fmt.Sprintf("lease %q is not held", e.Name)
	}
	return fmt.Sprintf("lease %q is not held with token %d (any more)", e.Name, e.Token)
}

// ModeConflictError says that the name is in use in another way.
type ModeConflictError struct {
	Name string
	// Have and Want describe the two ways.
	Have, Want string
}

func (e *ModeConflictError) Error() string {
	return fmt.Sprintf("lease %q is in use as %s; it cannot be acquired as %s at the same time", e.Name, e.Have, e.Want)
}

// RequestEndedError says that the hold a request id got is over.
type RequestEndedError struct{ Name, RequestID string }

func (e *RequestEndedError) Error() string {
	return fmt.Sprintf("the hold of lease %q that request %q got is over; acquire with a new request id", e.Name, e.RequestID)
}

// RequestMismatchError says that a request id came a second time with other parameters.
type RequestMismatchError struct{ Name, RequestID string }

func (e *RequestMismatchError) Error() string {
	return fmt.Sprintf("request %q for lease %q was made before by another holder or in another mode", e.RequestID, e.Name)
}

// NoSuchCandidateError says that nobody of this name waits.
type NoSuchCandidateError struct{ Name, Candidate string }

func (e *NoSuchCandidateError) Error() string {
	return fmt.Sprintf("no candidate %q waits for lease %q", e.Candidate, e.Name)
}
