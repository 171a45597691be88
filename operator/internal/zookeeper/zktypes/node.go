package zktypes

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

// Sum identifies data without holding it.
type Sum [sha256.Size]byte

// SumOf returns the sum of data.
func SumOf(data []byte) Sum { return sha256.Sum256(data) }

// Short is the first 12 hexadecimal digits, for people.
func (s Sum) Short() string { return hex.EncodeToString(s[:6]) }

// Node is what was seen of a znode at one moment. The zero value is a znode that does not exist.
type Node struct {
	// Exists tells whether the znode is there. The other fields are zero when it is not.
	Exists bool
	// Hidden tells that the server would not show data or access control list to this session: Size, Sum and ACL
	// are then zero.
	Hidden bool
	// Czxid is the transaction that created it: two znodes of one path that were created one after the other
	// differ in it.
	Czxid int64
	// Mzxid is the last transaction that changed the data.
	Mzxid int64
	// Version counts changes of the data, and starts at 0.
	Version int32
	// Aversion counts changes of the access control list, and starts at 0.
	Aversion int32
	// Children is the number of children when the znode was last read; changes of it alone are not noticed.
	Children int32
	// Ephemeral tells that it goes with the session that created it.
	Ephemeral bool
	// Size of the data in bytes.
	Size int
	// Sum of the data.
	Sum Sum
	// ACL is the access control list as the server returned it.
	ACL []ACL
	// Data is the content, for a znode that is watched with its data; otherwise nil.
	Data []byte
}

// Same tells whether two observations differ in nothing that matters to a watcher: the number of children does not.
func (n Node) Same(other Node) bool {
	return n.Exists == other.Exists && n.Hidden == other.Hidden && n.Czxid == other.Czxid && n.Mzxid == other.Mzxid &&
		n.Version == other.Version && n.Aversion == other.Aversion && n.Sum == other.Sum && slices.Equal(n.ACL, other.ACL)
}

// Untouched tells whether the znode is as it was created: neither data nor access control list changed since.
func (n Node) Untouched() bool { return n.Exists && n.Version == 0 && n.Aversion == 0 }
