package znode

import (
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// FormatZxid writes a transaction id as ZooKeeper's tools do.
func FormatZxid(zxid int64) string { return "0x" + strconv.FormatUint(uint64(zxid), 16) }

// ParseZxid reads what FormatZxid writes; what cannot be read is 0, which no znode was created by.
func ParseZxid(text string) int64 {
	if len(text) < 3 || text[:2] != "0x" {
		return 0
	}
	out, err := strconv.ParseUint(text[2:], 16, 64)
	if err != nil {
		return 0
	}
	return int64(out)
}

// Parting is what happens to a znode that its object no longer wants.
type Parting string

const (
	// Gone: nothing is left to do. The znode does not exist, or is not ours.
	Gone Parting = "Gone"
	// Delete the znode, at the version that was seen.
	Delete Parting = "Delete"
	// Await: it cannot be deleted now; look again.
	Await Parting = "Await"
	// Orphan: leave it behind, by policy or because the deadline has passed.
	Orphan Parting = "Orphan"
)

// Release is what is known of a znode that its object no longer wants.
type Release struct {
	// Keep leaves the znode by policy.
	Keep bool
	// Czxid is the transaction that created our znode; 0 when none of ours is known.
	Czxid int64
	// Claimed tells that a claim covers the znode.
	Claimed bool
	// Obstacle says why the znode could not be seen, or could not be deleted when that was tried. Empty: nothing.
	Obstacle string
	// Node is what was seen; it means nothing while there is an Obstacle to seeing it.
	Node zktypes.Node
	// Unseen tells that it could not be seen.
	Unseen bool
	// Since is when the object stopped wanting it, and Deadline how long it may take.
	Since    time.Time
	Deadline time.Duration
}

// Part decides, and says why in words. After Await, wait is the time until the deadline.
func Part(r Release, now time.Time) (parting Parting, detail string, wait time.Duration) {
	switch {
	case r.Keep && (r.Czxid != 0 || r.Claimed):
		return Orphan, "deletionPolicy is Orphan", 0
	case r.Keep, r.Czxid == 0 && !r.Claimed && !r.Unseen:
		return Gone, "no znode is on record", 0
	case r.Obstacle == "" && !r.Unseen:
		return partSeen(r)
	}
	if wait = r.Since.Add(r.Deadline).Sub(now); wait > 0 {
		return Await, r.Obstacle, wait
	}
	return Orphan, r.Obstacle, 0
}

func partSeen(r Release) (Parting, string, time.Duration) {
	switch {
	case !r.Node.Exists:
		return Gone, "it does not exist", 0
	case r.Node.Ephemeral, r.Node.Czxid != r.Czxid && !r.Claimed:
		return Gone, "somebody deleted it and created another, which is left alone", 0
	}
	return Delete, "", 0
}
