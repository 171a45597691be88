package leaseservice

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
	"github.com/holdfast-io/holdfast/operator/internal/plan/window"
)

// settle keeps changes of the operator's from the pods until they are due. It returns the change that is kept, and the time
// until the maintenance window opens (zero: there is none).
func settle(ls *v1alpha1.LeaseService, children []desired.Object, live *appsv1.StatefulSet, settings desired.Settings, now time.Time) (*v1alpha1.LeaseServicePendingRollout, time.Duration, error) {
	open, wait, err := operatorChanges(ls, settings, now)
	if err != nil {
		return nil, 0, err
	}
	for _, child := range children {
		set, ok := child.(*appsv1.StatefulSet)
		if !ok {
			continue
		}
		pending, err := desired.Settle(ls, set, live, func(p desired.Pending) bool {
			return open || ls.Annotations[v1alpha1.AnnotationApproveRollout] == p.ID
		})
		if pending == nil || err != nil {
			return nil, 0, err
		}
		return &v1alpha1.LeaseServicePendingRollout{ID: pending.ID, Message: pending.What}, wait, nil
	}
	return nil, 0, nil
}

// operatorChanges tells whether they need no approval now, and otherwise the time until that may be so.
func operatorChanges(ls *v1alpha1.LeaseService, settings desired.Settings, now time.Time) (open bool, wait time.Duration, err error) {
	rollouts := ls.Spec.Rollouts
	if rollouts == nil || rollouts.OperatorChanges == "" {
		return settings.RollOperatorChanges, 0, nil
	}
	if rollouts.OperatorChanges != v1alpha1.OperatorChangesWindow || rollouts.Window == nil {
		return rollouts.OperatorChanges == v1alpha1.OperatorChangesAutomatic, 0, nil
	}
	minutes := rollouts.Window.DurationMinutes
	if minutes == 0 {
		minutes = v1alpha1.DefaultWindowMinutes
	}
	w, err := window.Parse(rollouts.Window.Days, rollouts.Window.Start, time.Duration(minutes)*time.Minute)
	if err != nil {
		return false, 0, fmt.Errorf("spec.rollouts.window: %w", err)
	}
	open, wait = w.Open(now)
	return open, wait, nil
}

func approval(p *v1alpha1.LeaseServicePendingRollout) string {
	return fmt.Sprintf("the annotation %s=%s approves it", v1alpha1.AnnotationApproveRollout, p.ID)
}

func pendingCondition(p *v1alpha1.LeaseServicePendingRollout) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.ConditionPendingRollout, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOperatorChanged,
		Message: fmt.Sprintf("the operator would change %s; %s", p.Message, approval(p)),
	}
}
