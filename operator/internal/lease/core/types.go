// Package core is the lease state machine of one shard: which names are held by whom, who waits, what
// expires when, and which writes make it so.
//
// It does no I/O, starts no goroutine and has no clock. Its caller gives it the present instant with
// every command and gets an Output back: replies to deliver, and at most one Op a name to be committed.
// Until the caller reports that an Op was committed (Shard.Committed), nothing of it is visible: nobody
// is told of a grant, and a hold that is about to end still excludes others. A caller that cannot
// commit an Op must throw the whole Shard away; whoever owns it next loads it from the store.
//
// A Shard is not safe for concurrent use.
package core

import "time"

// Instant is a moment on a monotonic clock, in nanoseconds since an epoch of the caller's choice.
type Instant int64

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from o to i.
func (i Instant) Sub(o Instant) time.Duration { return time.Duration(i - o) }

// Mode is how holds share a name. The zero value is no mode.
type Mode int8

// The modes.
const (
	Exclusive Mode = iota + 1
	Shared
	Permits
)

// EndReason is why a hold ended. The zero value: it did not.
type EndReason int8

// The reasons. The values are those of leasev1.EndReason.
const (
	Released EndReason = iota + 1
	Expired
	Revoked
	Transferred
	Abandoned
)

// Ticket names a caller who waits for a reply. Zero is no ticket.
type Ticket uint64

// Revocation asks a holder to let go.
type Revocation struct {
	// Reason is for people.
	Reason string
	// RequestedBy is who asks.
	RequestedBy string
	// Period is how long the holder has. 0: until it chooses to.
	Period time.Duration
	// Force ends the hold after Period.
	Force bool
}

// Hold is one holder's share of a name, as the store keeps it.
type Hold struct {
	// Slot tells the holds of one name apart in the store. Exclusive holds have slot 0.
	Slot int32
	// Token is the fencing token: the store's revision of the transaction that granted the hold.
	Token int64
	// Holder is the label the holder gave itself.
	Holder string
	// Identity is the authenticated identity; empty without authentication.
	Identity string
	// RequestID is the request that acquired it.
	RequestID string
	// Mode, PermitsHeld and PermitsTotal say how it is held; the numbers are 0 unless Mode is Permits.
	Mode         Mode
	PermitsHeld  int32
	PermitsTotal int32
	// TTL is how long it lives without a keepalive.
	TTL time.Duration
	// AcquiredAt is for people to read.
	AcquiredAt time.Time
	// Metadata and Value are the holder's.
	Metadata map[string]string
	Value    []byte
	// Revocation is set when the holder has been asked to let go.
	Revocation *Revocation
}

// Size is about how many bytes the hold takes in the store, and not less.
func (h *Hold) Size() int {
	const numbers = 64
	size := numbers + len(h.Value) + len(h.Holder) + len(h.Identity) + len(h.RequestID)
	for k, v := range h.Metadata {
		size += len(k) + len(v) + 8
	}
	if r := h.Revocation; r != nil {
		size += numbers/2 + len(r.Reason) + len(r.RequestedBy)
	}
	return size
}

// HoldView is a hold at a moment.
type HoldView struct {
	Hold
	// ExpiresIn is how long it lives from now; never negative.
	ExpiresIn time.Duration
	// RevokeIn is how long its revocation gives it from now. Meaningless without one.
	RevokeIn time.Duration
}

// WaiterView is a waiting request at a moment.
type WaiterView struct {
	Holder    string
	Identity  string
	RequestID string
	Mode      Mode
	Permits   int32
	Waited    time.Duration
}

// LeaseView is a name at a moment.
type LeaseView struct {
	Name string
	// Holds is ordered by token.
	Holds []HoldView
	// Queue is only filled when asked for.
	Queue   []WaiterView
	Waiters int
	// Revision is that of the last known change; 0 when none is known.
	Revision int64
	// GraceFor is how long the shard's new owner still serves out full TTLs; 0: no longer.
	GraceFor time.Duration
}

// Summary is a name at a moment in short: the hold with the largest token, if there is any, and how many there are.
type Summary struct {
	// Token is 0 when the name is free.
	Token          int64
	Holder         string
	Mode           Mode
	Holds, Waiters int
	ExpiresIn      time.Duration
	// Revision is that of the last known change; 0 when none is known.
	Revision int64
}

// AcquireRequest asks for a hold. It must be valid: the Shard checks nothing but the present state.
type AcquireRequest struct {
	Name         string
	Holder       string
	Identity     string
	RequestID    string
	Mode         Mode
	Permits      int32
	PermitsTotal int32
	TTL          time.Duration
	Metadata     map[string]string
	Value        []byte
	// Wait makes the request wait in line, for WaitFor at most; 0 is without end. Waited is how long it has waited already, where the name
	// was served before: the line is in the order in which waits began.
	Wait            bool
	WaitFor, Waited time.Duration
}

// Grant is the reply to an acquire.
type Grant struct {
	Hold HoldView
	// Revision is that of the name's last change.
	Revision int64
	Waited   time.Duration
	GraceFor time.Duration
}

// ReleaseResult is the reply to a release.
type ReleaseResult struct {
	// Released says whether the hold ended by release, and not otherwise or before.
	Released bool
	// Revision is that of the end; 0 when it was before.
	Revision int64
}

// CheckResult is the reply to a token check.
type CheckResult struct {
	// Current says whether a live hold has the token.
	Current bool
	// Newest is the largest token of the live holds; 0 when the name is free.
	Newest int64
	// ExpiresIn is how long the checked hold lives from now.
	ExpiresIn time.Duration
}

// KeepAliveResult is the reply to a keepalive.
type KeepAliveResult struct {
	Hold     HoldView
	GraceFor time.Duration
}

// ChangeResult is the reply to a changed value, a revocation or a transfer.
type ChangeResult struct {
	// Holds are those that were changed or ended; after a transfer, the new one.
	Holds    []HoldView
	Revision int64
	// Ended says that the holds are over.
	Ended bool
}

// Reply answers a ticket: with an error, or else with a result of the command's type.
type Reply struct {
	Ticket Ticket
	Result any
	Err    error
	// Committed says that the result is what a transaction just made true. Everything else is read from
	// memory, and is only worth something while the shard is certainly still its owner's.
	Committed bool
}

// Write is one change of the store: hold at the slot of a name, or, when Hold is nil, its deletion.
// A hold whose Token is 0 gets the revision of the transaction as its token.
type Write struct {
	Slot int32
	Hold *Hold
}

// End is a hold, as it was last, that a transaction removes or replaces, and why it ended.
type End struct {
	Slot   int32
	Reason EndReason
	Hold   Hold
}

// Op is what must be committed in one transaction before anything else of the same name is.
type Op struct {
	Name   string
	Writes []Write
	Ends   []End
}

// Notice is something a holder should hear of although it did not ask.
type Notice struct {
	Name  string
	Token int64
	// Ended is why the hold is over. 0: it is not, and Revocation asks for it.
	Ended      EndReason
	Revocation *Revocation
}

// Output is what a command leads to.
type Output struct {
	Replies []Reply
	Ops     []Op
	Notices []Notice
}

// Reset empties the output and keeps its memory.
func (o *Output) Reset() {
	clear(o.Replies)
	clear(o.Ops)
	clear(o.Notices)
	o.Replies, o.Ops, o.Notices = o.Replies[:0], o.Ops[:0], o.Notices[:0]
}

func (o *Output) reply(t Ticket, result any) {
	if t != 0 {
		o.Replies = append(o.Replies, Reply{Ticket: t, Result: result})
	}
}

func (o *Output) commit(t Ticket, result any) {
	if t != 0 {
		o.Replies = append(o.Replies, Reply{Ticket: t, Result: result, Committed: true})
	}
}

func (o *Output) fail(t Ticket, err error) {
	if t != 0 {
		o.Replies = append(o.Replies, Reply{Ticket: t, Err: err})
	}
}
