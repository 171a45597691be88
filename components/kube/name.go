package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// MaxNameLength is the length of the longest DNS label, which the names of most objects have to be.
const MaxNameLength = 63

const nameHashLength = 8

// Name joins the parts with "-". A result longer than limit is cut, and ends in a hash of the whole, so that two long
// names that begin alike stay apart.
func Name(limit int, parts ...string) string {
	full := strings.Join(parts, "-")
	if len(full) <= limit {
		return full
	}
	sum := sha256.Sum256([]byte(full))
	hash := hex.EncodeToString(sum[:])[:nameHashLength]
	head := strings.TrimRight(full[:limit-nameHashLength-1], "-.")
	return head + "-" + hash
}
