package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/conditions"
)

// report ends every pass: it judges what the pass returned, writes the status if it differs from the one there, emits
// events if that succeeded, and says when the next pass is due. Nothing else writes a status.
func (r *Reconciler[T, O]) report(ctx context.Context, p *pass[T, O], outcome error) (ctrl.Result, error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return r.interrupted()
	}
	judgement := Judge(outcome)
	r.deps.Metrics.judged(r.kind.Name, judgement.Verdict)
	if judgement.Verdict == Outdated {
		p.log.V(1).Info("the pass read an outdated state and is made again", "cause", outcome.Error())
		return ctrl.Result{RequeueAfter: r.outdated.When(p.req)}, nil
	}
	r.outdated.Forget(p.req)
	if r.gone(p) {
		return ctrl.Result{}, nil
	}

	r.describe(p, judgement)
	if wait := r.pace(p, judgement); wait > 0 {
		return ctrl.Result{RequeueAfter: sooner(wait, sooner(judgement.RequeueAfter, p.plan.RequeueAfter))}, nil
	}
	changed, err := r.writeStatus(ctx, p)
	if outdated := new(*errOutdated); errors.As(err, outdated) {
		p.log.V(1).Info("the status was decided on an outdated state and is computed again", "cause", err.Error())
		return ctrl.Result{RequeueAfter: r.outdated.When(p.req)}, nil
	}
	if errors.Is(ctx.Err(), context.Canceled) && err != nil {
		return r.interrupted()
	}
	if err != nil {
		return ctrl.Result{}, errors.Join(judgement.Err, err)
	}
	if changed {
		r.ledger.stated(p.req.NamespacedName, p.plan.Progress && judgement.Verdict == Waiting, p.now)
	}
	r.tell(p, judgement, changed)
	return r.next(p, judgement)
}

// interrupted ends a pass that the operator's stop cut off: the next one, of this or another operator, starts from what is
// there.
func (r *Reconciler[T, O]) interrupted() (ctrl.Result, error) {
	r.deps.Metrics.judged(r.kind.Name, Interrupted)
	return ctrl.Result{}, nil
}

// pace is the time that the status has to wait, since it says only how far something has got and another one was written a
// moment ago, or none ever was: an object that is Ready within that moment has one status in all. Until then it is in progress
// for everybody, by the default of its observedGeneration. A status that is Ready, Stalled or Unknown, or of another
// generation, and one with something to tell never wait.
func (r *Reconciler[T, O]) pace(p *pass[T, O], judgement Judgement) time.Duration {
	moving := conditions.Get(p.before, v1alpha1.ConditionReconciling) != nil && p.before.GetObservedGeneration() == p.obj.GetGeneration()
	first := conditions.Get(p.before, v1alpha1.ConditionReady) == nil
	if !p.plan.Progress || judgement.Verdict != Waiting || !moving && !first || len(p.plan.Events) > 0 {
		return 0
	}
	return r.ledger.paced(p.req.NamespacedName, first, p.now)
}

// gone tells whether the pass removed the last finalizer, so that there is no status to write.
func (r *Reconciler[T, O]) gone(p *pass[T, O]) bool {
	return p.obj.GetDeletionTimestamp() != nil && !r.protects(p.obj)
}

// describe computes the status.
func (r *Reconciler[T, O]) describe(p *pass[T, O], judgement Judgement) {
	if p.plan.Status != nil {
		p.plan.Status(p.obj)
	}
	if p.decided {
		r.describeKind(p)
	}
	reason, message := judgement.Reason, judgement.Message
	switch {
	case p.obj.GetDeletionTimestamp() != nil && judgement.Verdict == Waiting:
		conditions.MarkReconciling(p.obj, v1alpha1.ReasonDeleting, message, p.now)
	case judgement.Verdict == Done:
		if message = p.plan.Message; message == "" {
			message = "everything is in effect"
		}
		conditions.MarkReady(p.obj, v1alpha1.ReasonReady, message, p.now)
	case judgement.Verdict == Held, judgement.Verdict == Unclear:
		conditions.MarkUnknown(p.obj, reason, message, p.now)
	case judgement.Verdict == Waiting, judgement.Verdict == Retrying:
		conditions.MarkReconciling(p.obj, reason, message, p.now)
	default:
		conditions.MarkStalled(p.obj, reason, message, p.now)
	}
	if judgement.Observed {
		p.obj.SetObservedGeneration(p.obj.GetGeneration())
	}
}

// describeKind sets the kind's own conditions and drops those that the plan no longer has.
func (r *Reconciler[T, O]) describeKind(p *pass[T, O]) {
	keep := []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled}
	for _, condition := range p.plan.Conditions {
		keep = append(keep, condition.Type)
		conditions.Set(p.obj, condition, p.now)
	}
	for _, condition := range p.before.GetConditions() {
		if !slices.Contains(keep, condition.Type) {
			conditions.Remove(p.obj, condition.Type)
		}
	}
}

// writeStatus patches the status when it differs, and tells whether it did. The lock on the resource version makes the
// API server refuse a status that was decided on an object that has changed since.
func (r *Reconciler[T, O]) writeStatus(ctx context.Context, p *pass[T, O]) (bool, error) {
	diff, err := client.MergeFrom(p.before).Data(p.obj)
	if err != nil {
		return false, fmt.Errorf("compare the status: %w", err)
	}
	if bytes.Equal(diff, []byte("{}")) {
		return false, nil
	}
	patch := client.MergeFromWithOptions(p.before, client.MergeFromWithOptimisticLock{})
	if err := r.deps.Client.Status().Patch(ctx, p.obj, patch, client.FieldOwner(FieldManager)); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return false, nil
		}
		return false, classify(err, "write the status")
	}
	r.wrote(p, keyOf(r.gvk, p.obj), "patch_status", p.obj.GetResourceVersion())
	return true, nil
}

// tell logs the verdict and emits the events of a pass whose status was written. A pass that changed no status emits
// none: it decided nothing new. An object whose first status is Ready has no event for that beside those of its kind: ten
// thousand new objects are ten thousand writes less. A crash between the status and the events loses them; the other order would repeat
// them, and tell of what did not happen.
func (r *Reconciler[T, O]) tell(p *pass[T, O], judgement Judgement, changed bool) {
	level := 1
	if changed {
		level = 0
	}
	now, old := conditions.Get(p.obj, v1alpha1.ConditionReady), conditions.Get(p.before, v1alpha1.ConditionReady)
	// An error that is returned is logged by controller-runtime.
	if judgement.Err == nil {
		p.log.V(level).Info("pass", "verdict", judgement.Verdict, "reason", now.Reason, "message", now.Message)
	}
	if !changed {
		return
	}
	for _, event := range p.plan.Events {
		r.emit(p, event)
		r.deps.Metrics.told(r.kind.Name, p.req.Namespace, event.Reason)
	}
	if old == nil && judgement.Verdict == Done && len(p.plan.Events) > 0 {
		return // what was done for it says that it is done
	}
	if differs(old, now) {
		r.emit(p, Event{Type: judgement.EventType, Reason: now.Reason, Message: now.Message})
	}
}

func differs(old, now *metav1.Condition) bool {
	return old == nil || old.Status != now.Status || old.Reason != now.Reason
}

func (r *Reconciler[T, O]) emit(p *pass[T, O], event Event) {
	r.deps.Recorder.Eventf(p.obj, nil, event.Type, event.Reason, "Reconcile", "%s", event.Message)
}

// next says when the next pass is due.
func (r *Reconciler[T, O]) next(p *pass[T, O], judgement Judgement) (ctrl.Result, error) {
	if judgement.Verdict == Failed {
		return ctrl.Result{}, ctrlreconcile.TerminalError(judgement.Err)
	}
	if judgement.Err != nil {
		return ctrl.Result{}, judgement.Err
	}
	return ctrl.Result{RequeueAfter: sooner(judgement.RequeueAfter, p.plan.RequeueAfter)}, nil
}

// sooner returns the shorter of two times of which zero means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}
