// Package conditions keeps the status conditions of every kind to one contract, the one of kstatus
// (sigs.k8s.io/cli-utils/pkg/kstatus), so that kubectl wait, Argo CD, Flux and Pulumi reach the same verdict:
//
//   - Ready is always there once an object was looked at, and summarises the others.
//   - Reconciling and Stalled are there only while they are true, and never both.
//   - Ready is True only when neither of the two is there; it is False only together with one of them, and then
//     carries its reason. It is Unknown when the controller holds back (a paused object that is out of date).
//   - Every condition carries the generation that it speaks of, and so does the status.
//
// The functions change the object that they are given, do no I/O, and are not safe for concurrent use of one object.
package conditions

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// Object is an object with conditions and an observed generation in its status.
type Object interface {
	metav1.Object
	// GetConditions returns the conditions of the status.
	GetConditions() []metav1.Condition
	// SetConditions replaces the conditions of the status.
	SetConditions(conditions []metav1.Condition)
	// GetObservedGeneration returns status.observedGeneration.
	GetObservedGeneration() int64
	// SetObservedGeneration sets status.observedGeneration.
	SetObservedGeneration(generation int64)
}

// MarkReady sets Ready to True and removes Reconciling and Stalled.
func MarkReady(obj Object, reason, message string, now time.Time) {
	summarise(obj, "", metav1.ConditionTrue, reason, message, now)
}

// MarkReconciling sets Reconciling to True and Ready to False, and removes Stalled.
func MarkReconciling(obj Object, reason, message string, now time.Time) {
	summarise(obj, v1alpha1.ConditionReconciling, metav1.ConditionFalse, reason, message, now)
}

// MarkStalled sets Stalled to True and Ready to False, and removes Reconciling.
func MarkStalled(obj Object, reason, message string, now time.Time) {
	summarise(obj, v1alpha1.ConditionStalled, metav1.ConditionFalse, reason, message, now)
}

// MarkUnknown sets Ready to Unknown, and removes Reconciling and Stalled.
func MarkUnknown(obj Object, reason, message string, now time.Time) {
	summarise(obj, "", metav1.ConditionUnknown, reason, message, now)
}

// summarise is the only writer of the three conditions, so that no order of calls leaves them in contradiction.
func summarise(obj Object, abnormal string, ready metav1.ConditionStatus, reason, message string, now time.Time) {
	for _, conditionType := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if conditionType != abnormal {
			Remove(obj, conditionType)
			continue
		}
		Set(obj, metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, Message: message}, now)
	}
	Set(obj, metav1.Condition{Type: v1alpha1.ConditionReady, Status: ready, Reason: reason, Message: message}, now)
}

// Get returns a copy of the condition of a type, or nil when the object has none. A missing condition means Unknown.
func Get(obj Object, conditionType string) *metav1.Condition {
	return meta.FindStatusCondition(clone(obj), conditionType)
}

// Set adds or updates a condition. It fills in the generation of the object, and the time of the last transition:
// now when the status differs from the one there, else what was there.
func Set(obj Object, condition metav1.Condition, now time.Time) {
	condition.ObservedGeneration = obj.GetGeneration()
	// The API server keeps whole seconds: with a fraction, what was read back would differ from what was written.
	condition.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	list := clone(obj)
	if old := meta.FindStatusCondition(list, condition.Type); old != nil && old.Status == condition.Status {
		condition.LastTransitionTime = old.LastTransitionTime
	}
	meta.SetStatusCondition(&list, condition)
	obj.SetConditions(list)
}

// Remove removes a condition, if it is there.
func Remove(obj Object, conditionType string) {
	list := clone(obj)
	if meta.RemoveStatusCondition(&list, conditionType) {
		obj.SetConditions(list)
	}
}

// clone keeps a caller's earlier copy of the list from being changed under it.
func clone(obj Object) []metav1.Condition {
	return append([]metav1.Condition(nil), obj.GetConditions()...)
}
