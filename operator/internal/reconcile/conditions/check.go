package conditions

import (
	"errors"
	"fmt"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

var camelCase = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// Check holds an object to the contract of the package and returns every breach of it, joined.
// An object without any condition and without an observed generation was never looked at, and passes.
func Check(obj Object) error {
	list := obj.GetConditions()
	if len(list) == 0 {
		if observed := obj.GetObservedGeneration(); observed != 0 && observed != v1alpha1.NeverObserved {
			return fmt.Errorf("status.observedGeneration is %d, but there are no conditions", observed)
		}
		return nil
	}
	breaches := []error{checkObserved(obj)}
	seen := map[string]*metav1.Condition{}
	for i := range list {
		condition := &list[i]
		if _, twice := seen[condition.Type]; twice {
			breaches = append(breaches, fmt.Errorf("condition %s is there twice", condition.Type))
		}
		seen[condition.Type] = condition
		breaches = append(breaches, checkOne(obj, condition))
	}
	return errors.Join(append(breaches, checkSummary(seen), checkGenerations(obj, seen))...)
}

// checkObserved lets an object through that has conditions and was never observed: every pass so far failed.
func checkObserved(obj Object) error {
	if observed := obj.GetObservedGeneration(); observed < v1alpha1.NeverObserved || observed > obj.GetGeneration() {
		return fmt.Errorf("status.observedGeneration is %d, but the generation is %d", observed, obj.GetGeneration())
	}
	return nil
}

func checkOne(obj Object, c *metav1.Condition) error {
	var breaches []error
	breach := func(format string, args ...any) {
		breaches = append(breaches, fmt.Errorf("condition "+c.Type+": "+format, args...))
	}
	switch c.Status {
	case metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown:
	default:
		breach("status is %q, not True, False or Unknown", c.Status)
	}
	if !camelCase.MatchString(c.Reason) {
		breach("reason is %q, not a word in CamelCase", c.Reason)
	}
	if c.LastTransitionTime.IsZero() {
		breach("lastTransitionTime is missing")
	}
	if c.ObservedGeneration < 1 || c.ObservedGeneration > obj.GetGeneration() {
		breach("observedGeneration is %d, but the generation is %d", c.ObservedGeneration, obj.GetGeneration())
	}
	if abnormal := c.Type == v1alpha1.ConditionReconciling || c.Type == v1alpha1.ConditionStalled; abnormal && c.Status != metav1.ConditionTrue {
		breach("status is %s: the condition is only there while it is True", c.Status)
	}
	return errors.Join(breaches...)
}

func checkSummary(seen map[string]*metav1.Condition) error {
	ready, reconciling, stalled := seen[v1alpha1.ConditionReady], seen[v1alpha1.ConditionReconciling], seen[v1alpha1.ConditionStalled]
	if ready == nil {
		return errors.New("condition Ready is missing, though others are there")
	}
	if reconciling != nil && stalled != nil {
		return errors.New("conditions Reconciling and Stalled are both there")
	}
	cause := reconciling
	if cause == nil {
		cause = stalled
	}
	switch {
	case cause == nil && ready.Status == metav1.ConditionFalse:
		return errors.New("condition Ready is False, but neither Reconciling nor Stalled says why")
	case cause != nil && ready.Status != metav1.ConditionFalse:
		return fmt.Errorf("condition Ready is %s, but %s is there", ready.Status, cause.Type)
	case cause != nil && ready.Reason != cause.Reason:
		return fmt.Errorf("condition Ready has reason %s, but %s has %s", ready.Reason, cause.Type, cause.Reason)
	}
	return nil
}

// checkGenerations refuses a verdict (Ready or Stalled) on a generation that the status doesn't claim to have seen:
// kstatus would call such an object InProgress for ever.
func checkGenerations(obj Object, seen map[string]*metav1.Condition) error {
	for _, c := range []*metav1.Condition{seen[v1alpha1.ConditionReady], seen[v1alpha1.ConditionStalled]} {
		final := c != nil && c.Status == metav1.ConditionTrue
		if final && c.ObservedGeneration != obj.GetObservedGeneration() {
			return fmt.Errorf("condition %s speaks of generation %d, but status.observedGeneration is %d",
				c.Type, c.ObservedGeneration, obj.GetObservedGeneration())
		}
	}
	return nil
}
