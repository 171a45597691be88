package znode

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// Claim says which change an object was about to make. It is written to the object before the change is made, and does
// two things: it is the only trace of a creation or adoption whose end was not seen; and since that write is refused when
// the object has changed meanwhile, an operator that decided on an outdated object does not get to the znode.
type Claim struct {
	// UID is that of the object. Annotations are copied (to another object, or from a backup), and a claim says nothing about
	// what anybody but this very object was about to do.
	UID string `json:"uid"`
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
	// Reach says how the ensemble is reached.
	Reach Reach `json:"reach,omitzero"`
}

// Reach says with which Secrets and how an ensemble is spoken to. The zero value: with the operator's own credential, over plain
// TCP.
type Reach struct {
	// Auth names the Secret of the credential. Empty: the operator's own.
	Auth string `json:"auth,omitempty"`
	// TLS tells that it is spoken to over TLS, TLSSecret names the Secret of that, and ServerName is what the server's
	// certificate is verified for. Both may be empty.
	TLS        bool   `json:"tls,omitempty"`
	TLSSecret  string `json:"tlsSecret,omitempty"`
	ServerName string `json:"serverName,omitempty"`
}

// NewClaim makes the claim for a creation.
func NewClaim(uid, connect, path string, want Want, record *Record) Claim {
	out := Claim{UID: uid, Connect: connect, Path: path, Content: contentOf(want.Sum, want.ACL)}
	if record != nil {
		out.After = FormatZxid(record.Czxid)
	}
	return out
}

// NewChange makes the claim for a change of a znode that exists. Unless that is the one on record, it is taken over.
func NewChange(uid, connect, path string, want Want, node zktypes.Node, record *Record) Claim {
	out := Claim{
		UID: uid, Connect: connect, Path: path,
		Sets: fmt.Sprintf(setsFormat, dataOf(want.Sum), listOf(want.ACL), node.Version, node.Aversion),
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
		panic(fmt.Sprintf("marshal %#v: %v", c, err)) // strings always marshal
	}
	return string(out)
}

// ParseClaim reads the claim of an object. ok is false for none, for a text that is no claim, and for that of another object:
// none of them covers anything.
func ParseClaim(text, uid string) (claim Claim, ok bool) {
	if err := json.Unmarshal([]byte(text), &claim); err != nil || claim.Path == "" || claim.UID != uid {
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
	if !node.Exists || node.Ephemeral || c.Connect != connect || c.Path != path || c.Spent(record) {
		return false
	}
	if c.Takes != "" {
		return c.Takes == FormatZxid(node.Czxid)
	}
	return c.Content != "" && node.Untouched() && !node.Hidden && c.Content == contentOf(node.Sum, node.ACL)
}

// Spent tells whether another znode is on record than was at the time: what became of the claim is known.
func (c Claim) Spent(record *Record) bool {
	if record == nil {
		return c.After != ""
	}
	return c.After != FormatZxid(record.Czxid)
}

// Begun tells whether anything was done by the claim to a znode that it covers: one that was to be taken over, and is as it was
// found, is still nobody's but its maker's.
func (c Claim) Begun(node zktypes.Node) bool {
	_, _, version, aversion, ok := c.sets()
	return c.Takes == "" || !ok || node.Version != version || node.Aversion != aversion
}

// setsFormat is what Claim.Sets is written and read by: data, list, and the versions of both before.
const setsFormat = "%s %s from %d and %d"

// Moved returns a record with the versions that the change has left behind which the claim names, as far as it was made: a
// crash may have come between it and the record. Without this, an object that was changed again meanwhile would take its own
// change for somebody else's, and report it for ever when that is its policy.
func (c Claim) Moved(node zktypes.Node, record Record) Record {
	data, list, version, aversion, ok := c.sets()
	if !ok || c.Takes != "" || c.After != FormatZxid(record.Czxid) || node.Czxid != record.Czxid || node.Hidden {
		return record
	}
	// Either part may have been as wanted before, or have been set by a change before this one.
	if (node.Version == version || node.Version == version+1) && dataOf(node.Sum) == data {
		record.Version = node.Version
	}
	if (node.Aversion == aversion || node.Aversion == aversion+1) && listOf(node.ACL) == list {
		record.Aversion = node.Aversion
	}
	return record
}

// sets reads what a change sets, and from which versions.
func (c Claim) sets() (data, list string, version, aversion int32, ok bool) {
	_, err := fmt.Sscanf(c.Sets, setsFormat, &data, &list, &version, &aversion)
	return data, list, version, aversion, err == nil
}

// contentOf is a short hash: it tells contents apart that were not made to collide.
func contentOf(sum zktypes.Sum, acl []zktypes.ACL) string {
	hash := sha256.New()
	hash.Write(sum[:])
	writeList(hash, acl)
	return hex.EncodeToString(hash.Sum(nil)[:12])
}

// dataOf and listOf are such hashes of either part.
func dataOf(sum zktypes.Sum) string {
	hash := sha256.Sum256(sum[:])
	return hex.EncodeToString(hash[:8])
}

func listOf(acl []zktypes.ACL) string {
	hash := sha256.New()
	writeList(hash, acl)
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

func writeList(to io.Writer, acl []zktypes.ACL) {
	for _, entry := range zktypes.NormalizeACL(acl) {
		fmt.Fprintf(to, "%q %q %d\n", entry.Scheme, entry.ID, entry.Perms)
	}
}
