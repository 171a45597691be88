package zktypes

import (
	"crypto/sha1" //nolint:gosec // the digest scheme of ZooKeeper is defined by SHA-1; it is a wire format, not a choice
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
)

// Perms is a set of permissions on a znode. The zero value grants nothing.
type Perms int32

// The permissions, as ZooKeeper numbers them. Create and Delete speak of children, the others of the znode itself.
const (
	PermRead Perms = 1 << iota
	PermWrite
	PermCreate
	PermDelete
	PermAdmin
	// PermAll is every permission.
	PermAll = PermRead | PermWrite | PermCreate | PermDelete | PermAdmin
)

// letters are the permissions in the order and spelling of ZooKeeper's own shell.
const letters = "cdrwa"

var permOf = map[rune]Perms{'c': PermCreate, 'd': PermDelete, 'r': PermRead, 'w': PermWrite, 'a': PermAdmin}

// ParsePerms reads permissions as ZooKeeper's shell writes them: letters of "cdrwa", in any order, at least one.
func ParsePerms(text string) (Perms, error) {
	var out Perms
	for _, letter := range text {
		perm, known := permOf[letter]
		if !known {
			return 0, fmt.Errorf("permissions %q: %q is none of the letters %q (create, delete, read, write, admin)", text, letter, letters)
		}
		out |= perm
	}
	if out == 0 {
		return 0, fmt.Errorf("permissions are empty: use letters of %q (create, delete, read, write, admin)", letters)
	}
	return out, nil
}

// String writes permissions as ZooKeeper's shell does: "cdrwa".
func (p Perms) String() string {
	var out strings.Builder
	for _, letter := range letters {
		if p&permOf[letter] != 0 {
			out.WriteRune(letter)
		}
	}
	return out.String()
}

// The schemes of an ACL entry that have a meaning of their own here.
const (
	SchemeWorld  = "world"
	SchemeDigest = "digest"
	SchemeIP     = "ip"
	SchemeX509   = "x509"
	SchemeSASL   = "sasl"
)

// AnyoneID is the one identity of the scheme world.
const AnyoneID = "anyone"

// ACL is one entry of a znode's access control list.
type ACL struct {
	// Scheme says how ID is to be read: one of the Scheme constants, or one that a plugin of the server brings.
	Scheme string
	// ID is the identity. For digest "user:hash", see DigestID.
	ID string
	// Perms are what it grants.
	Perms Perms
}

// String writes the entry as ZooKeeper's shell does.
func (a ACL) String() string { return a.Scheme + ":" + a.ID + ":" + a.Perms.String() }

// DigestID is the identity that the server computes of a user and a password under the scheme digest.
func DigestID(user, password string) string {
	sum := sha1.Sum([]byte(user + ":" + password)) //nolint:gosec // see the import
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

// NormalizeACL returns the list with one entry an identity, ordered. What a list grants does not depend on its order,
// and the server keeps whatever order a client sent, so lists are compared in this form alone.
func NormalizeACL(list []ACL) []ACL {
	merged := map[[2]string]Perms{}
	for _, entry := range list {
		merged[[2]string{entry.Scheme, entry.ID}] |= entry.Perms
	}
	out := make([]ACL, 0, len(merged))
	for who, perms := range merged {
		out = append(out, ACL{Scheme: who[0], ID: who[1], Perms: perms})
	}
	slices.SortFunc(out, func(a, b ACL) int {
		if order := strings.Compare(a.Scheme, b.Scheme); order != 0 {
			return order
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out
}

// EqualACL tells whether two lists grant the same.
func EqualACL(a, b []ACL) bool { return slices.Equal(NormalizeACL(a), NormalizeACL(b)) }

// GrantedTo returns what a list certainly grants to whoever holds the identities (Perms of which are ignored).
// Entries that depend on where a connection comes from, such as ip, count for nobody.
func GrantedTo(list, identities []ACL) Perms {
	var out Perms
	for _, entry := range list {
		if entry.Scheme == SchemeWorld && entry.ID == AnyoneID {
			out |= entry.Perms
			continue
		}
		if slices.ContainsFunc(identities, func(id ACL) bool { return id.Scheme == entry.Scheme && id.ID == entry.ID }) {
			out |= entry.Perms
		}
	}
	return out
}

// ACLStrings writes each entry of the normalized list as ZooKeeper's shell does, with the hash of a digest cut
// short: it identifies the password for whoever wants to guess it.
func ACLStrings(list []ACL) []string {
	normal := NormalizeACL(list)
	out := make([]string, 0, len(normal))
	for _, entry := range normal {
		if user, _, found := strings.Cut(entry.ID, ":"); found && entry.Scheme == SchemeDigest {
			entry.ID = user + ":***"
		}
		out = append(out, entry.String())
	}
	return out
}
