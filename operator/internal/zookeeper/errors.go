package zookeeper

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// The errors of the server that callers decide by; use errors.Is. Every other error of a request is returned as it
// came, wrapped with what was tried.
var (
	// ErrNoNode says that the znode, or the parent of one to be created, does not exist.
	ErrNoNode = zk.ErrNoNode
	// ErrNodeExists says that the znode to be created exists.
	ErrNodeExists = zk.ErrNodeExists
	// ErrBadVersion says that the znode changed since the version that the request named.
	ErrBadVersion = zk.ErrBadVersion
	// ErrNotEmpty says that the znode to be deleted has children.
	ErrNotEmpty = zk.ErrNotEmpty
	// ErrNoAuth says that the access control list does not admit this session.
	ErrNoAuth = zk.ErrNoAuth
	// ErrInvalidACL says that the server does not accept an access control list: an unknown scheme, a malformed
	// identity, or an empty list.
	ErrInvalidACL = zk.ErrInvalidACL
)

// ErrTooManySessions says that a target has no session yet, and that there are as many as there may be. One that nobody uses
// any more is closed after a while.
var ErrTooManySessions = errors.New("there are as many sessions with ZooKeeper as there may be")

// UnavailableError says that the ensemble could not be asked, or that its answer did not arrive: a write may or may
// not have happened. It is told apart by errors.As.
type UnavailableError struct {
	// Ensemble is the list of servers.
	Ensemble string
	// Open tells whether the circuit breaker refused the request: it was not sent, and whoever watches something
	// on the ensemble is notified when it is back.
	Open bool
	// Err is the cause.
	Err error
}

// Error names the ensemble and the cause.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("ZooKeeper %s is unavailable: %v", e.Ensemble, e.Err)
}

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

var (
	errBreakerOpen = errors.New("the circuit breaker is open after repeated failures")
	errDeadline    = errors.New("no answer within the deadline of a request")
	errClosed      = errors.New("the session was closed")
	errNoSession   = errors.New("no session could be established within the deadline of a request")
	errFailing     = errors.New("no session could be established in several attempts")
)

// connectivity tells whether an error of the library says that the server was not heard, rather than what it said.
func connectivity(err error) bool {
	for _, lost := range []error{
		zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionExpired, zk.ErrSessionMoved, zk.ErrClosing,
		errDeadline, errNoSession, errFailing,
	} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return false
}

// answered tells whether err is something that the server said about the znode.
func answered(err error) bool {
	for _, said := range []error{
		zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNotEmpty, zk.ErrNoAuth, zk.ErrInvalidACL,
		zk.ErrNoChildrenForEphemerals, zk.ErrInvalidPath, zk.ErrAPIError, zk.ErrBadArguments,
	} {
		if errors.Is(err, said) {
			return true
		}
	}
	return false
}
