package testkit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/conditions"
)

// crashes stops the operator after each write of each stage, and starts a new one.
func crashes(tb testing.TB, env *Environment, subject Subject) {
	disturb(tb, env, subject, func(w *world, at int) {
		ctx, crash := context.WithCancel(w.ctx)
		defer crash()
		w.operator.gate = nth(at, func(_ context.Context, _ write, do func() error) error {
			defer crash()
			return do()
		})
		for round := 0; ctx.Err() == nil; round++ {
			if round == rounds {
				w.Fatalf("write %d did not come within %d rounds", at+1, rounds)
			}
			if result, _ := w.operator.reconcile(ctx); ctx.Err() == nil {
				w.simulate()
				w.clock.SetTime(w.clock.Now().Add(max(result.RequeueAfter, time.Second)))
			}
		}
		w.operator = w.newOperator()
	})
}

// lostResponses makes each write of each stage succeed and look like a failure.
func lostResponses(tb testing.TB, env *Environment, subject Subject) {
	disturb(tb, env, subject, func(w *world, at int) {
		w.operator.gate = nth(at, func(_ context.Context, _ write, do func() error) error {
			if err := do(); err != nil {
				return err
			}
			return errInjected
		})
	})
}

// requestErrors are what an API server answers, or what stands for it.
func requestErrors() []error {
	resource := schema.GroupResource{Resource: "things"}
	return []error{
		apierrors.NewConflict(resource, "thing", fmt.Errorf("changed")),
		apierrors.NewTooManyRequests("slow down", 1),
		apierrors.NewInternalError(fmt.Errorf("broken")),
		apierrors.NewServiceUnavailable("not now"),
		apierrors.NewTimeoutError("too late", 1),
		errInjected,
	}
}

// failures makes the first attempt of each different write fail: of those that make an object with each error, of those of
// the other stages with one error each.
func failures(tb testing.TB, env *Environment, subject Subject) {
	all := requestErrors()
	for number, s := range stages(subject) {
		want, writes := undisturbed(tb, env, subject, s)
		selected := all
		if number > 0 {
			selected = all[number%len(all):][:1]
		}
		for _, failure := range selected {
			w := newWorld(tb, env, subject)
			s.before(w)
			s.start(w)
			failed := map[string]bool{}
			from := len(w.operator.attempts)
			w.operator.gate = func(_ context.Context, wr write, do func() error) error {
				if failed[wr.String()] {
					return do()
				}
				failed[wr.String()] = true
				return failure
			}
			w.settle()
			w.demand(want, fmt.Sprintf("%s, with %q for the first attempt of each write", s.name, failure))
			// Each write once more for its failure, and a status that tells of it.
			if most, attempts := 3*len(writes)+3, len(w.operator.attempts)-from; attempts > most {
				w.Fatalf("%s, with %q: %d attempts where an undisturbed run takes %d writes: at most %d", s.name, failure, attempts, len(writes), most)
			}
		}
	}
}

// persistentFailure makes every write to the children fail for a while. The object must say so once, and try no more
// than one write a pass.
func persistentFailure(tb testing.TB, env *Environment, subject Subject) {
	want, _ := undisturbed(tb, env, subject, stages(subject)[0])
	w := newWorld(tb, env, subject)
	w.create()
	statuses := 0
	w.operator.gate = func(_ context.Context, wr write, do func() error) error {
		if wr.ref != w.object {
			return errInjected
		}
		if wr.verb == "patch status" {
			statuses++
		}
		return do()
	}
	const passes = 10
	errored := 0
	for range passes {
		_, err := w.operator.reconcile(w.ctx)
		if err != nil {
			errored++
		}
		w.clock.SetTime(w.clock.Now().Add(time.Minute))
	}
	obj := w.get()
	if obj == nil {
		w.Fatalf("the object is gone")
	}
	reconciling := conditions.Get(obj, v1alpha1.ConditionReconciling)
	if len(w.children()) == 0 && (reconciling == nil || errored == 0) {
		w.Fatalf("no child could be made, and neither an error (%d in %d passes) nor the conditions say so:\n%s", errored, passes, text(obj))
	}
	if statuses > 1+subject.Records {
		w.Fatalf("the status was written %d times in %d passes that failed alike: its message differs each time", statuses, passes)
	}
	if attempts := len(w.operator.attempts); attempts > passes+3+subject.Records {
		w.Fatalf("%d attempts in %d passes that failed alike: one write a pass is enough", attempts, passes)
	}
	w.operator.gate = nil
	w.settleReady()
	w.demand(want, "after writes work again")
}

// events plays each stage with events that are lost, late and repeated: passes, steps of the others, and what the cache
// sees come in a seeded random order.
func events(tb testing.TB, env *Environment, subject Subject) {
	const seeds = 2
	for number, s := range stages(subject) {
		want, _ := undisturbed(tb, env, subject, s)
		for seed := range uint64(seeds) {
			random := rand.New(rand.NewPCG(seed, uint64(number)))
			w := newWorld(tb, env, subject)
			s.before(w)
			s.start(w)
			for range 40 {
				w.operator.frozen = random.IntN(2) == 0
				switch random.IntN(4) {
				case 0:
					w.simulate()
				case 1:
					w.clock.SetTime(w.clock.Now().Add(time.Duration(random.IntN(3000)) * time.Millisecond))
				default:
					// An error is what a lagging cache may cause; the end is what counts.
					_, _ = w.operator.reconcile(w.ctx)
				}
			}
			w.operator.frozen = false
			w.settle()
			w.demand(want, fmt.Sprintf("%s, with events in the random order of seed %d", s.name, seed))
		}
	}
}

// outdatedCache stops the cache after each write of each stage, for a moment and for long, with the same operator and
// with one that remembers nothing.
func outdatedCache(tb testing.TB, env *Environment, subject Subject) {
	disturb(tb, env, subject, func(w *world, at int) {
		before := len(w.operator.attempts)
		for round := 0; len(w.operator.attempts) <= before+at && round < rounds; round++ {
			w.operator.gate = func(_ context.Context, _ write, do func() error) error {
				w.operator.frozen = len(w.operator.attempts) > before+at
				return do()
			}
			_, _ = w.operator.reconcile(w.ctx)
			if !w.operator.frozen {
				w.simulate()
				w.clock.SetTime(w.clock.Now().Add(time.Second))
			}
		}
		w.operator.gate = nil
		held := w.server.contents
		for pass := range 6 {
			if pass == 4 {
				w.operator.restart()
			}
			asked := len(w.operator.attempts)
			_, _ = w.operator.reconcile(w.ctx)
			if pass < 2 && len(w.operator.attempts) > asked {
				w.Fatalf("on a cache that has not seen its own write of a moment ago, it asks for: %v", w.operator.attempts[asked:])
			}
			w.clock.SetTime(w.clock.Now().Add([]time.Duration{0, time.Millisecond, time.Second, time.Minute, time.Minute, time.Minute}[pass]))
		}
		w.notWorse(held)
		w.operator.frozen = false
	})
}

// notWorse demands that passes on an outdated cache destroyed nothing and made nothing twice.
func (w *world) notWorse(before contents) {
	w.Helper()
	for r, old := range before {
		now := w.server.contents[r]
		if r != w.object && (now == nil || now.GetUID() != old.GetUID()) && metav1.GetControllerOf(old) != nil {
			deleted := false
			for _, done := range w.operator.done {
				deleted = deleted || (done.verb == "delete" && done.ref == r && done.before != nil && done.before.GetUID() == old.GetUID())
			}
			if !deleted {
				w.Fatalf("%s was lost", r)
			}
		}
	}
}

// twoOperators lets an operator that was stopped for a while wake up with what it saw before another one took over. None
// of its writes may have an effect.
func twoOperators(tb testing.TB, env *Environment, subject Subject) {
	for _, edit := range subject.Edits {
		w := newWorld(tb, env, subject)
		w.create()
		w.settleReady()
		w.edit(edit.Apply)
		// The first has seen the edit, and stops before it does anything about it.
		first := w.newOperator()
		first.frozen = true
		w.settleReady()
		w.revert()
		w.settleReady()
		want, held := w.state(), w.server.contents
		for range 4 {
			_, _ = first.reconcile(w.ctx)
			w.clock.SetTime(w.clock.Now().Add(time.Minute))
		}
		for r, obj := range w.server.contents {
			if old := held[r]; old == nil || old.GetResourceVersion() != obj.GetResourceVersion() {
				w.Fatalf("%s: an operator that was stopped meanwhile changed %s by %v", edit.Name, r, first.done)
			}
		}
		w.settleReady()
		w.demand(want, edit.Name+", after an outdated operator woke up")
	}
}
