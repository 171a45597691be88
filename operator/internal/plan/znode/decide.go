// Package znode decides what is to be done about a znode: a pure function of what is wanted, what was seen, and what
// is on record. It does no I/O and reads no clock.
//
// Whose a znode is, is the question behind every dangerous step, and it is never answered by the path alone:
//
//   - It is ours if it was created by the transaction that the record names. A znode that somebody deletes and creates
//     again has another.
//   - It is ours if we were about to create it (a claim, written before), and it is as we would have created it and
//     untouched since, or if we were about to take it over: the record was lost with a crash.
//   - It becomes ours by adoption, as far as the object allows that.
//   - Otherwise it is somebody else's, and nothing is done to it.
//
// Only what is ours is changed, and only what is ours is deleted. That a znode could not be seen says nothing about it:
// there is no decision without an observation.
package znode

import (
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// Adoption says which existing znodes may be taken over. The zero value takes none.
type Adoption string

// The adoptions.
const (
	AdoptNever   Adoption = ""
	AdoptIfEqual Adoption = "IfEqual"
	AdoptForce   Adoption = "Force"
)

// Want is the znode as it should be.
type Want struct {
	// Sum and Size of the data.
	Sum  zktypes.Sum
	Size int
	// ACL is the whole list.
	ACL []zktypes.ACL
	// ParentACL is the list that the operator gives the parents that it creates.
	ParentACL []zktypes.ACL
	// CreateOnly leaves a znode that exists as it is.
	CreateOnly bool
	// ReportOnly leaves what somebody else changed as it is.
	ReportOnly bool
	// Adoption says which existing znodes may be taken over.
	Adoption Adoption
	// Identities are what ZooKeeper takes the operator for, and will from now on. Previous are what it takes it for beside that
	// until a rotation of the credential is over.
	Identities, Previous []zktypes.ACL
}

// Record is what is on record of the znode that the object has.
type Record struct {
	// Czxid is the transaction that created it.
	Czxid int64
	// Version and Aversion are those of data and access control list when they were last as wanted.
	Version, Aversion int32
}

// Verb is what is to be done next.
type Verb string

const (
	// Nothing: the znode is as wanted.
	Nothing Verb = "Nothing"
	// Create the znode.
	Create Verb = "Create"
	// SetACL: replace the access control list.
	SetACL Verb = "SetACL"
	// SetData: replace the data.
	SetData Verb = "SetData"
	// Report that the znode differs, and leave it.
	Report Verb = "Report"
	// Leave a znode that exists and is not ours, as the object wants it.
	Leave Verb = "Leave"
	// Refuse: nothing can be done until somebody changes something.
	Refuse Verb = "Refuse"
)

// Cause is why.
type Cause string

const (
	// ByNew: the znode never existed for the object.
	ByNew Cause = "New"
	// BySpec: the object was changed.
	BySpec Cause = "Spec"
	// ByDrift: somebody else changed the znode.
	ByDrift Cause = "Drift"
	// ByAdoption: a znode that existed is taken over.
	ByAdoption Cause = "Adoption"
)

// Refusal is why nothing can be done.
type Refusal string

const (
	// Exists: the znode is somebody else's, and may not be adopted.
	Exists Refusal = "Exists"
	// LockOut: the wanted list would keep the operator from its work.
	LockOut Refusal = "LockOut"
	// Hidden: the server does not show the znode to the operator.
	Hidden Refusal = "Hidden"
)

// Decision is what is to be done next. Before a change, its Claim is to be on record. After it was done, the znode is looked at and decided on again.
type Decision struct {
	// Verb is what is to be done.
	Verb Verb
	// Cause is why. Empty for Nothing, Leave and Refuse.
	Cause Cause
	// Refusal, for Refuse.
	Refusal Refusal
	// Ours tells that the znode is the object's, so that it belongs on record once nothing is left to do.
	Ours bool
	// Detail says it in words: what differs, or what is in the way. It has no content of the znode.
	Detail string
}

// needed is what the operator needs of a znode: to see it, to correct it, and to correct its list.
const needed = zktypes.PermRead | zktypes.PermWrite | zktypes.PermAdmin

// Decide decides on a znode that was observed. record is nil when none is on record for this path; claimed tells that a
// claim for this very znode is on record (Claim.Covers).
func Decide(want Want, node zktypes.Node, record *Record, claimed bool) Decision {
	if refusal := lockOut(want); refusal != nil {
		return *refusal
	}
	switch {
	case !node.Exists:
		return decideAbsent(want, record)
	case node.Ephemeral:
		return Decision{Verb: Refuse, Refusal: Exists, Detail: "it is ephemeral: it belongs to somebody's session, and goes with that"}
	case record != nil && record.Czxid == node.Czxid:
		return decideOurs(want, node, *record)
	case want.CreateOnly && !claimed:
		return Decision{Verb: Leave, Detail: "it exists, and syncPolicy is createOnly"}
	case node.Hidden:
		return hidden(want, record != nil || claimed)
	case claimed:
		// Nobody touched it since, as far as can be known; what is wanted may have changed meanwhile.
		return decideOurs(want, node, Record{Czxid: node.Czxid, Version: node.Version, Aversion: node.Aversion})
	case record != nil:
		return decideReplaced(want, node)
	}
	return decideForeign(want, node)
}

func lockOut(want Want) *Decision {
	have := zktypes.GrantedTo(want.ACL, want.Identities)
	missing := needed &^ have
	if missing == 0 {
		return nil
	}
	detail := fmt.Sprintf("the access control list would not leave the operator, which connects %s, the permissions %q", who(want), missing)
	if needed&^zktypes.GrantedTo(want.ACL, want.Previous) == 0 {
		detail += ": it names the previous credential"
	}
	return &Decision{Verb: Refuse, Refusal: LockOut, Detail: detail}
}

func who(want Want) string {
	if len(want.Identities) == 0 {
		return "without a credential"
	}
	user, _, _ := strings.Cut(want.Identities[0].ID, ":")
	return "as user " + user
}

// hidden refuses a znode that cannot be read. One that is ours could be once: then the credential is most likely another.
func hidden(want Want, ours bool) Decision {
	detail := fmt.Sprintf("its access control list does not let the operator, which connects %s, read it", who(want))
	if ours {
		detail += fmt.Sprintf("; if the credential was replaced by another, put the former one beside it (%s, %s) until the lists are replaced as well",
			zktypes.KeyPreviousUsername, zktypes.KeyPreviousPassword)
	}
	return Decision{Verb: Refuse, Refusal: Hidden, Detail: detail}
}

func decideAbsent(want Want, record *Record) Decision {
	switch {
	case record == nil:
		return Decision{Verb: Create, Cause: ByNew, Detail: "it does not exist"}
	case want.ReportOnly:
		return Decision{Verb: Report, Cause: ByDrift, Ours: true, Detail: "it was deleted"}
	}
	return Decision{Verb: Create, Cause: ByDrift, Detail: "it was deleted"}
}

// decideOurs compares a znode of ours with what is wanted. The version on record tells who made the difference: it
// rises with each change, so at the version on record the znode is as we left it, and the object was changed.
func decideOurs(want Want, node zktypes.Node, record Record) Decision {
	if want.CreateOnly {
		return Decision{Verb: Nothing, Ours: true}
	}
	if node.Hidden {
		return hidden(want, true)
	}
	// The list first: it may be what keeps us from writing.
	for _, side := range []struct {
		verb    Verb
		differs bool
		touched bool
		detail  string
	}{
		{SetACL, !zktypes.EqualACL(want.ACL, node.ACL), node.Aversion != record.Aversion, aclDetail(want, node)},
		{SetData, want.Sum != node.Sum, node.Version != record.Version, dataDetail(want, node)},
	} {
		switch {
		case !side.differs:
		case !side.touched:
			return Decision{Verb: side.verb, Cause: BySpec, Ours: true, Detail: side.detail}
		case want.ReportOnly:
			return Decision{Verb: Report, Cause: ByDrift, Ours: true, Detail: allDetails(want, node)}
		default:
			return Decision{Verb: side.verb, Cause: ByDrift, Ours: true, Detail: side.detail}
		}
	}
	return Decision{Verb: Nothing, Ours: true}
}

// decideReplaced is for a path that the object has, where somebody deleted our znode and created another.
func decideReplaced(want Want, node zktypes.Node) Decision {
	verb := differing(want, node)
	switch {
	case verb == Nothing:
		return Decision{Verb: Nothing, Ours: true, Cause: ByDrift, Detail: "it was deleted and created again, as declared"}
	case want.ReportOnly:
		return Decision{Verb: Report, Cause: ByDrift, Detail: "it was deleted and created again: " + allDetails(want, node)}
	}
	return Decision{Verb: verb, Cause: ByDrift, Detail: "it was deleted and created again: " + allDetails(want, node)}
}

func decideForeign(want Want, node zktypes.Node) Decision {
	verb := differing(want, node)
	equal := verb == Nothing
	// An empty znode with the list that we give to parents is one: an object below came first. There is nothing in
	// it that could be lost, and refusing it would make it matter in which order objects arrive.
	parent := node.Size == 0 && node.Untouched() && zktypes.EqualACL(node.ACL, want.ParentACL)
	allowed := parent || want.Adoption == AdoptForce || (want.Adoption == AdoptIfEqual && equal)
	if !allowed {
		detail := "it exists and was not created by this object; adoption is Never"
		if want.Adoption == AdoptIfEqual {
			detail = "it exists, was not created by this object, and differs: " + allDetails(want, node)
		}
		return Decision{Verb: Refuse, Refusal: Exists, Detail: detail}
	}
	cause := ByAdoption
	if parent {
		cause = ByNew
	}
	return Decision{Verb: verb, Cause: cause, Ours: equal, Detail: allDetails(want, node)}
}

func differing(want Want, node zktypes.Node) Verb {
	switch {
	case !zktypes.EqualACL(want.ACL, node.ACL):
		return SetACL
	case want.Sum != node.Sum:
		return SetData
	}
	return Nothing
}

func dataDetail(want Want, node zktypes.Node) string {
	if want.Sum == node.Sum {
		return ""
	}
	return fmt.Sprintf("data: %d bytes (sha256 %s) instead of %d bytes (sha256 %s)", node.Size, node.Sum.Short(), want.Size, want.Sum.Short())
}

func aclDetail(want Want, node zktypes.Node) string {
	if zktypes.EqualACL(want.ACL, node.ACL) {
		return ""
	}
	is, should := strings.Join(zktypes.ACLStrings(node.ACL), " "), strings.Join(zktypes.ACLStrings(want.ACL), " ")
	if is == should {
		return "acl: another password of a digest user"
	}
	return fmt.Sprintf("acl: %s instead of %s", is, should)
}

func allDetails(want Want, node zktypes.Node) string {
	var out []string
	for _, detail := range []string{dataDetail(want, node), aclDetail(want, node)} {
		if detail != "" {
			out = append(out, detail)
		}
	}
	return strings.Join(out, "; ")
}
