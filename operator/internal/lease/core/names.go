package core

import (
	"fmt"
	"strings"
)

// MaxNameLength is the longest lease name, in bytes.
const MaxNameLength = 512

// nameCharset lists, for messages, what names are made of.
const nameCharset = "letters, digits and - _ . : @ = + ~ in segments divided by /"

// NameError says why a name or prefix is refused.
type NameError struct {
	// Name is the refused name.
	Name string
	// Reason says what is wrong with it and what is allowed.
	Reason string
}

func (e *NameError) Error() string { return "lease name " + e.Problem() }

// Problem is the error without saying that it is about a name.
func (e *NameError) Problem() string {
	name := e.Name
	if len(name) > 64 {
		name = name[:64] + "..."
	}
	return fmt.Sprintf("%q %s", name, e.Reason)
}

// ValidateName refuses, with a *NameError, what is no lease name: names are 1 to MaxNameLength bytes of
// letters, digits and - _ . : @ = + ~, in segments divided by '/', none of which is empty, "." or "..".
//
// The charset keeps '#' and everything that sorts before '+' out of names: store keys are made of a
// name, '#' and a slot, and their order must be that of the names.
func ValidateName(name string) error {
	if name == "" {
		return &NameError{Name: name, Reason: "is empty; 1 to 512 bytes are allowed"}
	}
	if err := validateChars(name); err != nil {
		return err
	}
	for segment := range strings.SplitSeq(name, "/") {
		switch segment {
		case "":
			return &NameError{Name: name, Reason: "has an empty segment; segments divided by / must not be empty"}
		case ".", "..":
			return &NameError{Name: name, Reason: fmt.Sprintf("has the segment %q, which is not allowed", segment)}
		}
	}
	return nil
}

// ValidatePrefix refuses, with a *NameError, what no lease name can begin with. The empty prefix is valid
// and means all names.
func ValidatePrefix(prefix string) error {
	if err := validateChars(prefix); err != nil {
		return err
	}
	if strings.HasPrefix(prefix, "/") || strings.Contains(prefix, "//") {
		return &NameError{Name: prefix, Reason: "has an empty segment; segments divided by / must not be empty"}
	}
	segments := strings.Split(prefix, "/")
	for _, segment := range segments[:len(segments)-1] {
		if segment == "." || segment == ".." {
			return &NameError{Name: prefix, Reason: fmt.Sprintf("has the segment %q, which is not allowed", segment)}
		}
	}
	return nil
}

func validateChars(name string) error {
	if len(name) > MaxNameLength {
		return &NameError{Name: name, Reason: fmt.Sprintf("has %d bytes; 1 to %d are allowed", len(name), MaxNameLength)}
	}
	for i := range len(name) {
		if !nameByte(name[i]) {
			return &NameError{Name: name, Reason: fmt.Sprintf("has the byte %q at offset %d; allowed are %s", name[i], i, nameCharset)}
		}
	}
	return nil
}

func nameByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("-_.:@=+~/", c) >= 0
}

// ShardOf returns the shard of a name, in [0, shards). It is public in the API (ShardMap), so it never
// changes: FNV-1a, 64 bits, its halves folded.
func ShardOf(name string, shards int) int {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * prime
	}
	return int((h ^ h>>32) % uint64(shards))
}
