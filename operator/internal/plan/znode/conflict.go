package znode

import (
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// Claimant is an object that wants a znode.
type Claimant struct {
	// Namespace and Name of the object.
	Namespace, Name string
	// Created is when the object was.
	Created time.Time
	// Holds tells that the znode is on the object's record, or claimed by it.
	Holds bool
}

// Winner returns the one of several claimants to one znode that has it: whoever holds it already, then the oldest, then
// the first by namespace and name. That somebody holds it comes before age, for otherwise an older object that moves to
// a path would take the znode from the object that keeps it. It returns nil for no claimants.
func Winner(claimants []Claimant) *Claimant {
	var best *Claimant
	for i := range claimants {
		if best == nil || before(claimants[i], *best) {
			best = &claimants[i]
		}
	}
	return best
}

func before(a, b Claimant) bool {
	switch {
	case a.Holds != b.Holds:
		return a.Holds
	case !a.Created.Equal(b.Created):
		return a.Created.Before(b.Created)
	case a.Namespace != b.Namespace:
		return a.Namespace < b.Namespace
	}
	return a.Name < b.Name
}

// Grant lets namespaces write below paths of an ensemble.
type Grant struct {
	// Namespaces that it speaks of; "*" is every one.
	Namespaces []string
	// Ensembles are those that share a server with one of these. Empty: every one.
	Ensembles []zktypes.ConnectString
	// Paths as the ensemble sees them, chroot included: each allows itself and what is below. "{namespace}" in a
	// path stands for the namespace of the object.
	Paths []string
}

// Granted tells whether an object may have a znode. Without any grants everything is allowed; with one, only what a
// grant names.
func Granted(grants []Grant, namespace string, connect zktypes.ConnectString, path string) bool {
	if len(grants) == 0 {
		return true
	}
	full := connect.Full(path)
	for _, grant := range grants {
		if grant.speaksOf(namespace) && grant.reaches(connect) && grant.covers(namespace, full) {
			return true
		}
	}
	return false
}

func (g Grant) speaksOf(namespace string) bool {
	for _, name := range g.Namespaces {
		if name == "*" || name == namespace {
			return true
		}
	}
	return false
}

func (g Grant) reaches(connect zktypes.ConnectString) bool {
	for _, ensemble := range g.Ensembles {
		if ensemble.SharesServer(connect) {
			return true
		}
	}
	return len(g.Ensembles) == 0
}

func (g Grant) covers(namespace, full string) bool {
	for _, root := range g.Paths {
		if zktypes.Below(full, strings.ReplaceAll(root, "{namespace}", namespace)) {
			return true
		}
	}
	return false
}
