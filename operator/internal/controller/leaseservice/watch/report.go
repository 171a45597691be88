// Package watch knows what every lease service pod says of itself, as it says it: one connection and one status
// stream a pod, all in parallel. A controller asks it with Observe and is woken through Source when an answer would
// be another one.
package watch

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"
	"k8s.io/apimachinery/pkg/types"
)

// Target is a pod to listen to.
type Target struct {
	// Pod is the pod's name.
	Pod string
	// UID is the pod's. A pod of the same name and another UID is another pod: nothing that the first one said
	// holds for it.
	UID types.UID
	// Address is where it serves its status, as "host:port".
	Address string
	// Credentials of the connection. Nil: plain text. They are the same for as long as the pod is listened to.
	Credentials credentials.TransportCredentials
}

// State says how far a Report can be relied on.
type State int

const (
	// Pending is the state of a pod that has said nothing yet and has had little time to. Nothing else is known.
	Pending State = iota
	// Live is the state of a pod whose stream is open: the report is what it says now.
	Live
	// Broken is the state of a pod whose stream has just ended: the report is the last one.
	Broken
	// Lost is the state of a pod that has said nothing for longer than the grace. Problem says why.
	Lost
)

// Report is what a pod said last. It is comparable.
type Report struct {
	// State says how far the rest can be relied on.
	State State
	// Leader tells whether the pod says that it leads.
	Leader bool
	// NamedLeader is the pod that this one believes to lead. Empty: none.
	NamedLeader string
	// ClaimedAt is when it was first heard to lead, by the listener's clock. Zero unless Leader.
	ClaimedAt time.Time
	// ClaimSeen tells whether ClaimedAt is the moment of the pod's election, since it was heard not to lead
	// before. Otherwise the election was earlier, nobody knows how much.
	ClaimSeen bool
	// ActiveLeases is the number of leases that the pod serves.
	ActiveLeases int64
	// Serving tells whether the pod's session with its etcd is alive.
	Serving bool
	// Reason says why the pod does not serve. Empty when Serving.
	Reason string
	// Version of the pod's software.
	Version string
	// Problem says why nothing is heard from a Lost pod. It names no times and changes only with its kind.
	Problem string
}

// sameButCounts tells whether two reports differ in numbers at most.
func sameButCounts(a, b Report) bool {
	a.ActiveLeases, b.ActiveLeases = 0, 0
	return a == b
}

// Leader returns the name of the pod that leads, or "" when none says so. The reports are by pod name.
//
// For a moment two pods may say so: the old leader has not noticed that its session ended. A new leader is elected
// only after that end, so of elections that were seen the latest is right. Right after the listener started it has
// seen none of them; then the other pods decide, which follow the election in etcd. A claim on an open stream beats
// one whose stream has ended, and the claim of a pod that serves beats that of one that knows its session is gone.
func Leader(reports map[string]Report) string {
	type claim struct {
		pod string
		Report
		votes int
	}
	var claims []claim
	allSeen := true
	for pod, report := range reports {
		if report.Leader && (report.State == Live || report.State == Broken) {
			claims = append(claims, claim{pod: pod, Report: report, votes: votes(reports, pod)})
			allSeen = allSeen && report.ClaimSeen
		}
	}
	if len(claims) == 0 {
		return ""
	}
	return slices.MaxFunc(claims, func(a, b claim) int {
		byVotes := cmp.Compare(a.votes, b.votes)
		if allSeen {
			byVotes = 0
		}
		return cmp.Or(
			compareBool(a.State == Live, b.State == Live),
			compareBool(a.Serving, b.Serving),
			byVotes,
			a.ClaimedAt.Compare(b.ClaimedAt),
			cmp.Compare(a.pod, b.pod),
		)
	}).pod
}

func votes(reports map[string]Report, pod string) int {
	n := 0
	for _, report := range reports {
		if report.State == Live && report.NamedLeader == pod {
			n++
		}
	}
	return n
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
