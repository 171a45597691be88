package testkit

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/conditions"
)

// converges: a new object becomes Ready, within the writes that it may take.
func converges(tb testing.TB, env *Environment, subject Subject) {
	w := newWorld(tb, env, subject)
	w.create()
	w.settleReady()
	tb.Logf("%d writes for %d children: %v", len(w.operator.attempts), len(w.children()), w.operator.attempts)
	if subject.MaxWrites > 0 && len(w.operator.attempts) > subject.MaxWrites {
		tb.Fatalf("%d writes to become Ready, at most %d are allowed: %v", len(w.operator.attempts), subject.MaxWrites, w.operator.attempts)
	}
	if len(w.operator.done) != len(w.operator.attempts) {
		tb.Fatalf("without any disturbance, %d of %d writes failed", len(w.operator.attempts)-len(w.operator.done), len(w.operator.attempts))
	}
	for r, child := range w.children() {
		if !metav1.IsControlledBy(child, w.get()) {
			tb.Fatalf("%s is not controlled by the object", r)
		}
	}
	if len(w.operator.recorder.events) == 0 {
		tb.Fatalf("no event told of the object becoming Ready")
	}
}

// rests: an object at rest is not written to, whatever starts a pass: time, resyncs, a restart.
func rests(tb testing.TB, env *Environment, subject Subject) {
	w := newWorld(tb, env, subject)
	w.create()
	w.settleReady()
	for _, s := range append([]Edit{{Name: "create"}}, subject.Edits...) {
		if s.Apply != nil {
			w.edit(s.Apply)
			w.settleReady()
		}
		from := len(w.operator.attempts)
		told := len(w.operator.recorder.events)
		for pass := range 12 {
			if pass == 6 {
				w.operator.restart()
			}
			if _, err := w.operator.reconcile(w.ctx); err != nil {
				tb.Fatalf("after %s, at rest: %v", s.Name, err)
			}
			w.clock.SetTime(w.clock.Now().Add(10 * time.Minute))
		}
		if writes := w.operator.attempts[from:]; len(writes) > 0 {
			tb.Fatalf("after %s, an object at rest was written to: %v\n%s", s.Name, writes, text(w.get()))
		}
		if events := w.operator.recorder.events[told:]; len(events) > 0 {
			tb.Fatalf("after %s, events about an object at rest: %v", s.Name, events)
		}
	}
}

// edits: a spec ends in the same state by every path: made so, edited to it, and edited away and back.
func edits(tb testing.TB, env *Environment, subject Subject) {
	original, _ := undisturbed(tb, env, subject, stages(subject)[0])
	for _, edit := range subject.Edits {
		fresh := newWorld(tb, env, subject)
		fresh.create(edit)
		fresh.settleReady()

		w := newWorld(tb, env, subject)
		w.create()
		w.settleReady()
		w.edit(edit.Apply)
		w.settleReady()
		w.demand(fresh.state(), edit.Name+", against an object that was made so")
		w.revert()
		w.settleReady()
		w.demand(original, edit.Name+", taken back")
	}
}

// pause: a paused object's children are left alone, whatever is done to the object and to them; afterwards all is made
// up for.
func pause(tb testing.TB, env *Environment, subject Subject) {
	if subject.Pause == nil {
		return
	}
	for _, edit := range subject.Edits {
		fresh := newWorld(tb, env, subject)
		fresh.create(edit)
		fresh.settleReady()

		w := newWorld(tb, env, subject)
		w.create()
		w.settleReady()
		held := w.children()
		w.edit(func(obj client.Object) {
			edit.Apply(obj)
			subject.Pause(obj, true)
		})
		w.settle()
		for r, old := range held {
			if now := w.server.contents[r]; now == nil || now.GetResourceVersion() != old.GetResourceVersion() {
				tb.Fatalf("%s: %s was changed while the object was paused", edit.Name, r)
			}
		}
		if ready := conditions.Get(w.get(), v1alpha1.ConditionReady); ready == nil || ready.Reason != v1alpha1.ReasonPaused {
			tb.Fatalf("%s: the object does not say that it is paused and out of date:\n%s", edit.Name, text(w.get()))
		}
		w.edit(func(obj client.Object) { subject.Pause(obj, false) })
		w.settleReady()
		w.demand(fresh.state(), edit.Name+", after a pause")
	}
}

// deletion: a deleted object goes, also while it is paused and while it is being made, and its children with it.
func deletion(tb testing.TB, env *Environment, subject Subject) {
	gone := func(w *world, when string) {
		w.settle()
		if w.get() != nil {
			w.Fatalf("deleted %s, the object is still there:\n%s", when, text(w.get()))
		}
		if left := w.children(); len(left) > 0 {
			w.Fatalf("deleted %s, children are left: %v", when, left)
		}
	}
	w := newWorld(tb, env, subject)
	w.create()
	w.settleReady()
	w.remove(w.object)
	gone(w, "at rest")

	w = newWorld(tb, env, subject)
	w.create()
	_, _ = w.operator.reconcile(w.ctx)
	w.remove(w.object)
	gone(w, "while it was made")

	if subject.Pause != nil {
		w = newWorld(tb, env, subject)
		w.create()
		w.settleReady()
		w.edit(func(obj client.Object) { subject.Pause(obj, true) })
		w.settle()
		w.remove(w.object)
		gone(w, "while it was paused")
	}
}

// recreated deletes the object and makes it again under its name while the operator still sees the old one, alive and
// going.
func recreated(tb testing.TB, env *Environment, subject Subject) {
	want, _ := undisturbed(tb, env, subject, stages(subject)[0])
	for _, seen := range []string{"alive", "going"} {
		w := newWorld(tb, env, subject)
		w.create()
		w.settleReady()
		old := w.get()
		stale := w.newOperator()
		stale.frozen = true
		w.remove(w.object)
		if seen == "going" {
			stale.seen = w.server.contents
		}
		for round := 0; w.get() != nil; round++ {
			if round == rounds {
				w.Fatalf("the deleted object does not go:\n%s", text(w.get()))
			}
			_, _ = w.operator.reconcile(w.ctx)
			w.clock.SetTime(w.clock.Now().Add(time.Second))
		}
		w.create()
		// The new object has what it needs (its finalizer, say) when the outdated passes come.
		_, _ = w.operator.reconcile(w.ctx)
		held := w.get()
		for range 3 {
			_, _ = stale.reconcile(w.ctx)
			w.clock.SetTime(w.clock.Now().Add(time.Minute))
		}
		now := w.get()
		if now == nil || now.GetUID() != held.GetUID() || now.GetDeletionTimestamp() != nil || now.GetResourceVersion() != held.GetResourceVersion() {
			w.Fatalf("an operator that saw the old object %s changed the new one by %v:\n%s", seen, stale.done, text(now))
		}
		w.settleReady()
		w.demand(want, "made again under its name")
		for r, child := range w.children() {
			if !metav1.IsControlledBy(child, w.get()) || metav1.IsControlledBy(child, old) {
				w.Fatalf("%s is not controlled by the new object", r)
			}
		}
	}
}

// orphans deletes the object with --cascade=orphan and makes it again: its children are taken up as they are, so that nothing
// restarts.
func orphans(tb testing.TB, env *Environment, subject Subject) {
	w := newWorld(tb, env, subject)
	w.create()
	w.settleReady()
	want, held := w.state(), w.children()
	w.remove(w.object)
	for r := range held {
		obj := w.server.contents[r].DeepCopyObject().(client.Object)
		obj.SetOwnerReferences(nil)
		if err := w.others.Update(w.ctx, obj); err != nil {
			tb.Fatalf("orphan %s: %v", r, err)
		}
	}
	w.settle()
	if w.get() != nil {
		tb.Fatalf("the deleted object is still there:\n%s", text(w.get()))
	}
	w.create()
	w.settleReady()
	w.demand(want, "made again over its orphans")
	for r, old := range held {
		if now := w.server.contents[r]; now == nil || now.GetUID() != old.GetUID() {
			tb.Fatalf("%s was made anew, though the orphan could have been taken up", r)
		}
	}
}

// replacedChild replaces a child that the operator is about to delete by one of somebody else, which the operator does not
// see yet.
func replacedChild(tb testing.TB, env *Environment, subject Subject) {
	for _, edit := range subject.Edits {
		_, writes := undisturbed(tb, env, subject, stage{
			before: func(w *world) { w.create(); w.settleReady() }, start: func(w *world) { w.edit(edit.Apply) },
		})
		for _, deleted := range writes {
			if deleted.verb == "delete" {
				replaceBefore(tb, env, subject, edit, deleted.ref)
			}
		}
	}
}

func replaceBefore(tb testing.TB, env *Environment, subject Subject, edit Edit, victim ref) {
	tb.Helper()
	w := newWorld(tb, env, subject)
	w.create()
	w.settleReady()
	victim.name.Namespace = w.namespace
	w.edit(edit.Apply)
	w.operator.seen = w.server.contents
	var other client.Object
	w.operator.frozen = true
	w.operator.gate = func(_ context.Context, wr write, do func() error) error {
		if wr.verb == "delete" && wr.ref == victim && other == nil {
			child := w.server.contents[victim]
			w.remove(victim)
			other = w.foreignOf(child)
		}
		return do()
	}
	for range 5 {
		_, _ = w.operator.reconcile(w.ctx)
		w.clock.SetTime(w.clock.Now().Add(time.Minute))
	}
	if other == nil {
		tb.Fatalf("%s: %s was not deleted as in the run before", edit.Name, victim)
	}
	if now := w.server.contents[victim]; now == nil || now.GetUID() != other.GetUID() {
		tb.Fatalf("%s: the operator deleted a %s that somebody else had made meanwhile", edit.Name, victim)
	}
	w.operator.frozen, w.operator.gate = false, nil
	w.settle()
	if !w.untouched(other) {
		tb.Fatalf("%s: the operator touched a %s that somebody else had made meanwhile", edit.Name, victim)
	}
}
