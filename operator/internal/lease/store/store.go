// Package store keeps leases, and who serves them, in etcd.
//
// Layout under a prefix that ends in '/':
//
//	meta                          the number of shards, fixed at first use
//	id                            a random id of this store, by which an emptied one is told from it
//	cluster/members/<session>     a live replica            } bound to the replica's etcd lease,
//	cluster/claims/<shard>        which replica owns a shard } its session
//	cluster/leader                which replica assigns shards
//	commits/<session>             while it is there, and as the replica left it, the replica may write
//	cluster/assignment            which replica shall own each shard
//	shards/<shard>                who owned a shard last, and how much of the journals is settled
//	journal/<session>/<sequence>  what one batch of a replica changed
//	leases/<shard>/<name>#<slot>  one hold
//
// A batch is one new key in the journal of the replica's session, whatever it changes. What still is so when the journal has grown
// is settled: written to lease keys. So the holds are what the lease keys say, changed by what the journals say in the order of
// their revisions, beginning for each shard with the revision up to which its record says that it is settled.
//
// Neither journals nor lease keys hang on an etcd lease: a replica that dies would free every lock it serves.
//
// Three rules keep writes in order. A batch compares the commit key of its session, and whoever claims a shard removes that of the
// owner before, unless it gave the shard up: a deposed owner cannot write. A batch compares that its journal key is not there
// yet: one whose fate is unknown can be sent again, because at most one of the copies applies. And whatever writes lease keys
// changes a key that it compares, so that a copy that was held up in the network applies no more once anything else has followed.
package store

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
)

// MaxBatchWrites is how many writes go into one batch at most. To etcd a batch is one write; the bound keeps it from taking so long that
// the next one has to wait.
const MaxBatchWrites = 1000

// MaxBatchBytes is how large one batch may be. etcd refuses requests of 1.5 MiB, and what is settled goes along.
const MaxBatchBytes = 1 << 20

// MaxShards bounds the number of shards.
const MaxShards = 120

// ErrSessionLost says that the session with the store is over, and with it every claim.
var ErrSessionLost = errors.New("the session with the store is lost")

// UnknownOutcomeError says that a batch may have been committed or not, or may still be. Sending it again finds out.
type UnknownOutcomeError struct{ Err error }

func (e *UnknownOutcomeError) Error() string { return "the store did not answer: " + e.Err.Error() }

// Unwrap returns the store's error.
func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// TooLargeError says that the store refuses a batch because of its size, and that nothing of it has happened. Parts of it may do.
type TooLargeError struct{ Err error }

func (e *TooLargeError) Error() string {
	return "the store refuses a request of this size: " + e.Err.Error()
}

// Unwrap returns the store's error.
func (e *TooLargeError) Unwrap() error { return e.Err }

// SessionID names a replica's session. 0 is none.
type SessionID int64

// Member is a live replica.
type Member struct {
	Session  SessionID
	Name     string
	Address  string
	Draining bool
	// Joined is the revision at which it joined, which orders members by age.
	Joined int64
}

// Claim is the ownership of a shard, or the leadership. The zero value is nobody's.
type Claim struct {
	Session SessionID
	// Revision is that at which the claim was made. It tells two claims of one member apart.
	Revision int64
}

// Cluster is who serves what at a revision. It is shared between goroutines and never modified.
type Cluster struct {
	Revision int64
	// Members is ordered by age, oldest first.
	Members []Member
	// Claims has one entry a shard.
	Claims []Claim
	Leader Claim
	// Assigned has one entry a shard: who shall own it.
	Assigned []SessionID
}

// Member returns a live member by its session.
func (c *Cluster) Member(id SessionID) (Member, bool) {
	for _, m := range c.Members {
		if m.Session == id {
			return m, true
		}
	}
	return Member{}, false
}

// Owner returns the live member that owns a shard.
func (c *Cluster) Owner(shard int) (Member, bool) {
	if c == nil || shard >= len(c.Claims) || c.Claims[shard].Session == 0 {
		return Member{}, false
	}
	return c.Member(c.Claims[shard].Session)
}

// BatchOp is one op of a shard.
type BatchOp struct {
	Shard int
	Claim Claim
	Op    core.Op
}

// Event is one change of a hold.
type Event struct {
	Name string
	// Hold is the hold after the change, for an end as it was last.
	Hold core.Hold
	// Granted says that the hold is new; otherwise Ended, or if that is 0 too, it changed.
	Granted bool
	// Over says that the hold ended, Ended why: 0 if that is not known.
	Over     bool
	Ended    core.EndReason
	Revision int64
}

// Update is one step of a watch: a part of a snapshot, or events, or if it has neither, progress.
type Update struct {
	// Revision is the one up to which everything has been passed on; 0 within a snapshot.
	Revision int64
	Snapshot *Snapshot
	Events   []Event
}

// Snapshot is a part of the watched state.
type Snapshot struct {
	// Compacted says that it stands for changes that are no longer kept.
	Compacted bool
	Leases    []core.LeaseView
	Complete  bool
}

// Target is what a watch is about: one name, or if it is empty, all that begin with Prefix.
type Target struct {
	Name   string
	Prefix string
}

// Store is what the engine needs of a store. Methods return when their context ends, with its error.
type Store interface {
	// Shards returns the number of shards, which becomes want at the first use of the prefix.
	Shards(ctx context.Context, want int) (int, error)

	// OpenSession begins a session that ends unless it is kept, and returns the TTL granted. It fails with *ReplacedError, once, when
	// the store is not the one of the session before.
	OpenSession(ctx context.Context, ttl time.Duration) (SessionID, time.Duration, error)
	// KeepSession gives the session its TTL anew, or fails with ErrSessionLost or *ReplacedError.
	KeepSession(ctx context.Context, id SessionID) error
	// EndSession gives up all the session has.
	EndSession(ctx context.Context, id SessionID) error

	// Join makes the session a member. It may be called again to change the record; the cursor of the first
	// call stays the valid one, and later calls return nil.
	Join(ctx context.Context, member Member, first bool) (*Cursor, error)
	// Lead claims the leadership if nobody has it.
	Lead(ctx context.Context, id SessionID) (Claim, bool, error)
	// Resign gives the leadership up.
	Resign(ctx context.Context, leader Claim) error
	// Assign says who shall own which shard, and returns false if leader does not lead any more.
	Assign(ctx context.Context, leader Claim, owners []SessionID) (bool, error)
	// Claim makes the session the owner of a shard if nobody is.
	Claim(ctx context.Context, id SessionID, shard int) (Claim, bool, error)
	// Settle prepares to give a shard up: nothing of it may be in flight, or follow.
	Settle(ctx context.Context, cursor *Cursor, shard int, claim Claim) error
	// Unclaim gives a shard up that is settled.
	Unclaim(ctx context.Context, shard int, claim Claim) error
	// Load reads the holds of a shard. Only its owner may, before it commits anything of it.
	Load(ctx context.Context, shard int, claim Claim) ([]core.Record, error)
	// Collect removes what dead sessions left behind once nobody needs it, and returns of how many sessions it did, and of how many
	// something is left.
	Collect(ctx context.Context) (collected, left int, err error)

	// Commit makes ops true in one transaction and returns its revision. After ErrSessionLost nothing of
	// the batch has happened or ever will. After *UnknownOutcomeError the same batch must be sent again, and no other. After *TooLargeError
	// any other batch may follow. A batch may have no ops; see Cursor.Overdue.
	Commit(ctx context.Context, cursor *Cursor, ops []BatchOp) (int64, error)

	// WatchCluster passes on each state of the cluster, beginning with the present one, until the context
	// ends. It is to be begun anew with each session: revisions of a replaced store may be lower, and it would wait for those of
	// the store before. Under load it may leave states out, never the last one.
	WatchCluster(ctx context.Context, shards int, pass func(*Cluster)) error
	// Watch passes on the changes after a revision in order, or with 0 a snapshot first, until pass fails or
	// the context ends. Shards is the number of shards. When the store is replaced, or is not as far as that revision, a snapshot
	// follows that is marked as compacted.
	Watch(ctx context.Context, shards int, target Target, after int64, pass func(Update) error) error
	// Seen returns the newest revision that is known here without asking; 0: none is.
	Seen() int64
}
