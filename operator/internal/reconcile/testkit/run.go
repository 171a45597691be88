package testkit

import (
	"context"
	"fmt"
	"testing"
)

// Scenario is one thing that a kind must live through. It fails tb when the kind does not.
type Scenario struct {
	// Name of the subtest.
	Name string
	// Run plays it.
	Run func(tb testing.TB, env *Environment, subject Subject)
}

// Scenarios returns all scenarios, in the order in which Run plays them.
func Scenarios() []Scenario {
	return []Scenario{
		{"converges", converges},
		{"rests", rests},
		{"edits", edits},
		{"crash after each write", crashes},
		{"lost response of each write", lostResponses},
		{"failing requests", failures},
		{"a request that always fails", persistentFailure},
		{"lost and repeated events", events},
		{"outdated cache", outdatedCache},
		{"two operators", twoOperators},
		{"same name, new UID", recreated},
		{"orphans", orphans},
		{"objects of somebody else", foreign},
		{"replaced child", replacedChild},
		{"edits by hand", drift},
		{"pause", pause},
		{"deletion", deletion},
	}
}

// Run plays every scenario as a subtest, several at a time: each has namespaces of its own. It returns when all are
// through.
func Run(t *testing.T, env *Environment, subject Subject) {
	t.Helper()
	t.Run("kit", func(t *testing.T) {
		for _, scenario := range Scenarios() {
			t.Run(scenario.Name, func(t *testing.T) {
				t.Parallel()
				scenario.Run(t, env, subject)
			})
		}
	})
}

// stage is one step in the life of an object, from a state of rest to the next.
type stage struct {
	name string
	// before brings the world to the state of rest in which the stage starts.
	before func(w *world)
	// start is what a user does then.
	start func(w *world)
}

// stages are the life of an object: it is made, edited in each way, and deleted.
func stages(subject Subject) []stage {
	ready := func(w *world) {
		w.create()
		w.settleReady()
	}
	list := []stage{{name: "create", before: func(*world) {}, start: func(w *world) { w.create() }}}
	for _, edit := range subject.Edits {
		list = append(list, stage{name: edit.Name, before: ready, start: func(w *world) { w.edit(edit.Apply) }})
	}
	return append(list, stage{name: "delete", before: ready, start: func(w *world) { w.remove(w.object) }})
}

// undisturbed plays a stage without any fault, and returns the state at its end and the writes it took.
func undisturbed(tb testing.TB, env *Environment, subject Subject, s stage) (map[string]string, []write) {
	tb.Helper()
	w := newWorld(tb, env, subject)
	s.before(w)
	from := len(w.operator.attempts)
	s.start(w)
	w.settle()
	return w.state(), w.operator.attempts[from:]
}

// disturb plays each stage once for each write that it takes, with a gate that disturbs that write, and demands that
// the end is the same.
func disturb(tb testing.TB, env *Environment, subject Subject, how func(w *world, at int)) {
	tb.Helper()
	for _, s := range stages(subject) {
		want, writes := undisturbed(tb, env, subject, s)
		for at := range writes {
			w := newWorld(tb, env, subject)
			s.before(w)
			s.start(w)
			how(w, at)
			w.settle()
			w.demand(want, fmt.Sprintf("%s, disturbed at write %d (%s)", s.name, at+1, writes[at]))
		}
	}
}

// nth returns a gate that lets every write through but the one with the index at, counted from now.
func nth(at int, special gate) gate {
	count := 0
	return func(ctx context.Context, w write, do func() error) error {
		count++
		if count-1 == at {
			return special(ctx, w, do)
		}
		return do()
	}
}
