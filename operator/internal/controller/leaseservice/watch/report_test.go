package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func at(seconds float64) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

func TestLeader(t *testing.T) {
	follower := func(named string) Report { return Report{State: Live, Serving: true, NamedLeader: named} }
	claim := func(self string, claimed float64, seen bool) Report {
		return Report{State: Live, Serving: true, Leader: true, NamedLeader: self, ClaimedAt: at(claimed), ClaimSeen: seen}
	}
	with := func(report Report, changes ...func(*Report)) Report {
		for _, change := range changes {
			change(&report)
		}
		return report
	}
	broken := func(r *Report) { r.State = Broken }
	lost := func(r *Report) { r.State = Lost }
	deposed := func(r *Report) { r.Serving = false }
	for _, test := range []struct {
		why     string
		reports map[string]Report
		want    string
	}{
		{"nobody was heard", nil, ""},
		{"nobody claims, whatever the others believe", map[string]Report{"a": follower("b"), "b": follower("b")}, ""},
		{"one claims", map[string]Report{"a": follower(""), "b": claim("b", 1, true)}, "b"},
		{
			"the later of two elections that were seen",
			map[string]Report{"a": claim("a", 2, true), "b": claim("b", 1, true)},
			"a",
		},
		{
			"the later election, though a third pod has not noticed it",
			map[string]Report{"a": claim("a", 2, true), "b": claim("b", 1, true), "c": follower("b")},
			"a",
		},
		{
			"after a start nothing was seen: the others decide, not the order of hearing",
			map[string]Report{"a": claim("a", 1, false), "b": claim("b", 2, false), "c": follower("a")},
			"a",
		},
		{
			"nothing was seen and the others say nothing: the one heard last",
			map[string]Report{"a": claim("a", 1, false), "b": claim("b", 2, false)},
			"b",
		},
		{
			"heard at the same moment: any, but always the same",
			map[string]Report{"a": claim("a", 1, false), "b": claim("b", 1, false)},
			"b",
		},
		{
			"a claim on an open stream beats a later one that can be a dead pod's last word",
			map[string]Report{"a": claim("a", 1, true), "b": with(claim("b", 2, true), broken)},
			"a",
		},
		{
			"the last word counts while it is fresh",
			map[string]Report{"a": follower(""), "b": with(claim("b", 2, true), broken)},
			"b",
		},
		{"and not when it is old", map[string]Report{"b": with(claim("b", 2, true), lost)}, ""},
		{
			"a pod that knows its session is gone loses to one that serves",
			map[string]Report{"a": claim("a", 1, true), "b": with(claim("b", 2, true), deposed)},
			"a",
		},
		{
			"a broken stream's vote does not count",
			map[string]Report{
				"a": claim("a", 1, false), "b": claim("b", 2, false),
				"c": with(follower("a"), broken),
			},
			"b",
		},
	} {
		t.Run(test.why, func(t *testing.T) {
			require.Equal(t, test.want, Leader(test.reports))
		})
	}
}

// A history of one board: what happens when, and what readers see of it.
func TestBoard(t *testing.T) {
	says := func(leader bool, leases int64) Report {
		return Report{Leader: leader, ActiveLeases: leases, Serving: true, Version: "v1"}
	}
	b := newBoard(3*time.Second, 5*time.Second)
	steps := []struct {
		why     string
		at      float64
		do      func(now time.Time)
		changed bool
		wake    float64 // 0: never
		states  map[string]State
		leases  int64
	}{
		{
			why: "a new pod is pending until its grace ends", at: 0,
			do:      func(now time.Time) { b.add(Target{Pod: "a", UID: "ua"}, now) },
			changed: true, wake: 3, states: map[string]State{"a": Pending},
		},
		{
			why: "its first word is published at once", at: 1,
			do:      func(now time.Time) { b.hear("ua", says(false, 7), now) },
			changed: true, states: map[string]State{"a": Live}, leases: 7,
		},
		{
			why: "a number waits for the interval", at: 2,
			do:      func(now time.Time) { b.hear("ua", says(false, 8), now) },
			changed: false, wake: 6, states: map[string]State{"a": Live}, leases: 7,
		},
		{
			why: "more numbers do not put it off", at: 5.9,
			do:      func(now time.Time) { b.hear("ua", says(false, 9), now) },
			changed: false, wake: 6, states: map[string]State{"a": Live}, leases: 7,
		},
		{
			why: "and then the last is published", at: 6,
			do:      func(time.Time) {},
			changed: true, states: map[string]State{"a": Live}, leases: 9,
		},
		{
			why: "leadership is published at once, with the number that waited", at: 7,
			do: func(now time.Time) {
				b.hear("ua", says(false, 10), now)
				b.hear("ua", says(true, 11), now)
			},
			changed: true, states: map[string]State{"a": Live}, leases: 11,
		},
		{
			why: "saying the same again changes nothing", at: 30,
			do:      func(now time.Time) { b.hear("ua", says(true, 11), now) },
			changed: false, states: map[string]State{"a": Live}, leases: 11,
		},
		{
			why: "a broken stream keeps the last word", at: 40,
			do:      func(now time.Time) { b.lose("ua", "no answer", now) },
			changed: true, wake: 43, states: map[string]State{"a": Broken}, leases: 11,
		},
		{
			why: "failing again does not prolong the grace", at: 42,
			do:      func(now time.Time) { b.lose("ua", "no answer", now) },
			changed: false, wake: 43, states: map[string]State{"a": Broken}, leases: 11,
		},
		{
			why: "then the pod is lost", at: 43,
			do:      func(time.Time) {},
			changed: true, states: map[string]State{"a": Lost}, leases: 0,
		},
		{
			why: "it comes back", at: 50,
			do:      func(now time.Time) { b.hear("ua", says(false, 1), now) },
			changed: true, states: map[string]State{"a": Live}, leases: 1,
		},
		{
			why: "a pod that is gone is forgotten at once", at: 51,
			do:      func(time.Time) { b.remove("ua") },
			changed: false, states: map[string]State{},
		},
		{
			why: "and cannot speak any more", at: 52,
			do: func(now time.Time) {
				b.hear("ua", says(true, 5), now)
				b.lose("ua", "no answer", now)
				b.remove("ua")
			},
			changed: false, states: map[string]State{},
		},
	}
	for _, step := range steps {
		step.do(at(step.at))
		changed, wake := b.publish(at(step.at))
		require.Equal(t, step.changed, changed, step.why)
		if step.wake == 0 {
			require.Zero(t, wake, step.why)
		} else {
			require.Equal(t, at(step.wake), wake, step.why)
		}
		states := map[string]State{}
		var leases int64
		for pod, report := range b.published {
			states[pod] = report.State
			leases += report.ActiveLeases
		}
		require.Equal(t, step.states, states, step.why)
		require.Equal(t, step.leases, leases, step.why)
	}
}

func TestBoardKnowsWhichElectionsWereSeen(t *testing.T) {
	b := newBoard(3*time.Second, 5*time.Second)
	claim := Report{Leader: true, Serving: true}
	b.add(Target{Pod: "a", UID: "ua"}, at(0))
	b.hear("ua", claim, at(1))
	require.Equal(t, []any{at(1), false}, []any{b.rows["ua"].report.ClaimedAt, b.rows["ua"].report.ClaimSeen}, "it led when it was first heard")
	b.hear("ua", claim, at(2))
	require.Equal(t, at(1), b.rows["ua"].report.ClaimedAt, "it still leads")
	b.hear("ua", Report{Serving: true}, at(3))
	require.Zero(t, b.rows["ua"].report.ClaimedAt)
	b.hear("ua", claim, at(4))
	require.Equal(t, []any{at(4), true}, []any{b.rows["ua"].report.ClaimedAt, b.rows["ua"].report.ClaimSeen}, "this election was seen")
	b.hear("ua", Report{Serving: true}, at(5))
	b.lose("ua", "no answer", at(6))
	b.hear("ua", claim, at(7))
	require.False(t, b.rows["ua"].report.ClaimSeen, "it was elected while nothing was heard, nobody knows when")
}
