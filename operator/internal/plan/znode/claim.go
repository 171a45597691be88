package znode

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// Claim says which change an object was about to make. It is written to the object before the change is made, and does
// two things: it is the only trace of a creation or adoption whose end was not seen; and since that write is refused when
// the object has changed meanwhile, an operator that decided on an outdated object does not get to the znode.
type Claim struct {
	// Connect is the normal form of the connect string.
	Connect string `json:"connect"`
	// Path below its chroot.
	Path string `json:"path"`
	// Content identifies data and access control list of a znode to be created.
	Content string `json:"content,omitempty"`
	// Takes is the czxid of a znode to be taken over.
	Takes string `json:"takes,omitempty"`
	// Sets names a change of a znode that exists: what to, and from which versions.
	Sets string `json:"sets,omitempty"`
	// After is the czxid on record at that time: once another is on record, the claim is spent.
	After string `json:"after,omitempty"`
}

// NewClaim makes the claim for a creation.
func NewClaim(connect, path string, want Want, record *Record) Claim {
	out := Claim{Connect: connect, Path: path, Content: contentOf(want.Sum, want.ACL)}
	if record != nil {
		out.After = FormatZxid(record.Czxid)
	}
	return out
}

// NewChange makes the claim for a change of a znode that exists. Unless that is the one on record, it is taken over.
func NewChange(connect, path string, want Want, node zktypes.Node, record *Record) Claim {
	out := Claim{
		Connect: connect, Path: path,
		Sets: fmt.Sprintf("%s from %d and %d", contentOf(want.Sum, want.ACL), node.Version, node.Aversion),
	}
	if record != nil {
		out.After = FormatZxid(record.Czxid)
	}
	if record == nil || record.Czxid != node.Czxid {
		out.Takes = FormatZxid(node.Czxid)
	}
	return out
}

// String is the claim as it is written to an object.
func (c Claim) String() string {
	out, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("marshal %#v: %v", c, err)) // four strings always marshal
	}
	return string(out)
}

// ParseClaim reads a claim; ok is false for none, and for a text that is no claim, which then covers nothing.
func ParseClaim(text string) (claim Claim, ok bool) {
	if err := json.Unmarshal([]byte(text), &claim); err != nil || claim.Path == "" {
		return Claim{}, false
	}
	return claim, true
}

// Covers tells whether a znode is the one that was about to be taken over, or the one that was about to be created: at
// that place, with that content, untouched; in both cases with nothing on record since.
//
// Somebody else may have created an equal znode in the moment between our look and our attempt. If the attempt was
// answered, we know; if a crash or a lost answer left it open, the znode is taken for ours. It has the content that the
// object declares, so what is at stake is only who deletes it.
func (c Claim) Covers(connect, path string, node zktypes.Node, record *Record) bool {
	after := ""
	if record != nil {
		after = FormatZxid(record.Czxid)
	}
	if !node.Exists || node.Ephemeral || c.Connect != connect || c.Path != path || c.After != after {
		return false
	}
	if c.Takes != "" {
		return c.Takes == FormatZxid(node.Czxid)
	}
	return c.Content != "" && node.Untouched() && !node.Hidden && c.Content == contentOf(node.Sum, node.ACL)
}

// contentOf is a short hash: it tells contents apart that were not made to collide.
func contentOf(sum zktypes.Sum, acl []zktypes.ACL) string {
	hash := sha256.New()
	hash.Write(sum[:])
	for _, entry := range zktypes.NormalizeACL(acl) {
		fmt.Fprintf(hash, "%q %q %d\n", entry.Scheme, entry.ID, entry.Perms)
	}
	return hex.EncodeToString(hash.Sum(nil)[:12])
}
