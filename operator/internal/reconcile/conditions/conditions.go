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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
func MarkReady(obj Object, reason, message string, now time.Time) {}

// MarkReconciling sets Reconciling to True and Ready to False, and removes Stalled.
func MarkReconciling(obj Object, reason, message string, now time.Time) {}

// MarkStalled sets Stalled to True and Ready to False, and removes Reconciling.
func MarkStalled(obj Object, reason, message string, now time.Time) {}

// MarkUnknown sets Ready to Unknown, and removes Reconciling and Stalled.
func MarkUnknown(obj Object, reason, message string, now time.Time) {}

// Get returns the condition of a type, or nil when the object has none. A missing condition means Unknown.
func Get(obj Object, conditionType string) *metav1.Condition { return nil }

// Set adds or updates a condition. It fills in the generation of the object, and the time of the last transition:
// now when the status differs from the one there, else what was there.
func Set(obj Object, condition metav1.Condition, now time.Time) {}

// Remove removes a condition, if it is there.
func Remove(obj Object, conditionType string) {}

// Check holds an object to the contract of the package and returns every breach of it, joined.
// An object without any condition and without an observed generation was never looked at, and passes.
func Check(obj Object) error { return nil }
