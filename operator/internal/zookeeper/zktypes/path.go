// Package zktypes holds ZooKeeper's values (paths, connect strings, access control lists, what was seen of a znode)
// and the pure functions on them, so that decisions can be made of them without a client.
package zktypes

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of a znode.
const (
	// MaxPathLength is the length, in bytes, of the longest path that is accepted. ZooKeeper has no limit of its
	// own but that of a packet.
	MaxPathLength = 1024
	// MaxDataSize is the size, in bytes, of the largest data that a server takes with its default settings
	// (jute.maxbuffer is 1,048,575 bytes) with room for the path and the access control list in the same packet.
	MaxDataSize = 1<<20 - 16<<10
)

// Reserved is the subtree that ZooKeeper keeps for itself.
const Reserved = "/zookeeper"

// ErrReserved says that a path is in the subtree that ZooKeeper keeps for itself.
var ErrReserved = errors.New("it is " + Reserved + " or below, which ZooKeeper keeps for itself")

// ValidatePath tells what is wrong with a path: it must be absolute and not the root, without empty parts, without
// "." and "..", without a final slash, of valid UTF-8 and printable characters, and not reserved.
func ValidatePath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return fmt.Errorf("path %q is not absolute: it must begin with /", path)
	case path == "/":
		return errors.New("path is /, the root, which always exists and is nobody's")
	case len(path) > MaxPathLength:
		return fmt.Errorf("path has %d bytes, at most %d are allowed", len(path), MaxPathLength)
	case !utf8.ValidString(path):
		return fmt.Errorf("path %q is not valid UTF-8", path)
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		switch part {
		case "":
			return fmt.Errorf("path %q has an empty part: no // and no / at the end", path)
		case ".", "..":
			return fmt.Errorf("path %q has the part %q: relative parts are not allowed", path, part)
		}
	}
	for _, char := range path {
		if refused(char) {
			return fmt.Errorf("path %q has the character %U, which ZooKeeper refuses", path, char)
		}
	}
	if Below(path, Reserved) {
		return fmt.Errorf("path %q: %w", path, ErrReserved)
	}
	return nil
}

// refused are the characters that the server refuses: control characters, surrogates and the private use area.
func refused(char rune) bool {
	return char <= 0x1f || (char >= 0x7f && char <= 0x9f) || (char >= 0xd800 && char <= 0xf8ff) || (char >= 0xfff0 && char <= 0xffff)
}

// Below tells whether path is root or a descendant of it. The root "/" has every path below it.
func Below(path, root string) bool {
	root = strings.TrimSuffix(root, "/")
	return path == root || strings.HasPrefix(path, root+"/") || root == ""
}

// Ancestors returns the paths above path, the topmost first, without the root: "/a" and "/a/b" for "/a/b/c".
func Ancestors(path string) []string {
	var out []string
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			out = append(out, path[:i])
		}
	}
	return out
}

// Parent returns the path above path: "/a" for "/a/b", "/" for "/a".
func Parent(path string) string {
	if at := strings.LastIndexByte(path, '/'); at > 0 {
		return path[:at]
	}
	return "/"
}
