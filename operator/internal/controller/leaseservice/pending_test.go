package leaseservice

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

// upgraded is a LeaseService that is well, and that was made by an operator with another default image.
func upgraded(t *testing.T, changes ...change) *world {
	t.Helper()
	w := well()
	before := settings
	before.DefaultImage = "lease-service:v0"
	plan := decide(w.ls, w.observed, before, now)
	w.observed.Set.Annotations = setOf(t, plan).Annotations
	for _, apply := range changes {
		apply(w)
	}
	return w
}

func setOf(t *testing.T, plan reconcile.Plan[*v1alpha1.LeaseService]) *appsv1.StatefulSet {
	t.Helper()
	for _, child := range plan.Children {
		if set, ok := child.(*appsv1.StatefulSet); ok {
			return set
		}
	}
	t.Fatal("the plan has no StatefulSet")
	return nil
}

func rollouts(policy v1alpha1.OperatorChangePolicy, window *v1alpha1.LeaseServiceWindow) change {
	return func(w *world) {
		w.ls.Spec.Rollouts = &v1alpha1.LeaseServiceRollouts{OperatorChanges: policy, Window: window}
	}
}

func TestAnUpgradeOfTheOperatorIsPending(t *testing.T) {
	w := upgraded(t)
	plan, status := w.decide()
	require.NotNil(t, status.PendingRollout)
	require.Equal(t, "the image from lease-service:v0 to lease-service:v1", status.PendingRollout.Message)
	require.Equal(t, "lease-service:v0", setOf(t, plan).Spec.Template.Spec.Containers[0].Image)
	require.Empty(t, plan.Prune, "what the older pods refer to stays")
	require.NoError(t, plan.Unready, "the pods serve as they are")
	require.Len(t, plan.Conditions, 1)
	require.Equal(t, v1alpha1.ConditionPendingRollout, plan.Conditions[0].Type)
	require.Equal(t, metav1.ConditionTrue, plan.Conditions[0].Status)
	require.Contains(t, plan.Conditions[0].Message, "dist.system/approve-rollout="+status.PendingRollout.ID)
	require.Equal(t, v1alpha1.ReasonOperatorChanged, plan.Events[0].Reason)
	require.Zero(t, plan.RequeueAfter, "nothing but a change ends it")

	w.ls.Status = status
	plan, _ = w.decide()
	require.Empty(t, plan.Events, "it is told once")

	w.ls.Annotations = map[string]string{v1alpha1.AnnotationApproveRollout: status.PendingRollout.ID}
	plan, status = w.decide()
	require.Nil(t, status.PendingRollout)
	require.Empty(t, plan.Conditions)
	require.NotEmpty(t, plan.Prune)
	require.Equal(t, "lease-service:v1", setOf(t, plan).Spec.Template.Spec.Containers[0].Image)
}

// now is a Sunday, at noon.
func TestWhenOperatorChangesAreDue(t *testing.T) {
	window := func(start string, minutes int32, days ...string) *v1alpha1.LeaseServiceWindow {
		return &v1alpha1.LeaseServiceWindow{Start: start, DurationMinutes: minutes, Days: days}
	}
	for _, test := range []struct {
		name    string
		change  change
		pending bool
		wait    time.Duration
	}{
		{"automatically", rollouts(v1alpha1.OperatorChangesAutomatic, nil), false, 0},
		{"with an approval", rollouts(v1alpha1.OperatorChangesApprove, nil), true, 0},
		{"when the spec says nothing: with an approval", rollouts("", nil), true, 0},
		{"in the window", rollouts(v1alpha1.OperatorChangesWindow, window("11:30", 45)), false, 0},
		{"not before the window", rollouts(v1alpha1.OperatorChangesWindow, window("12:30", 45)), true, 30 * time.Minute},
		{"not on another day", rollouts(v1alpha1.OperatorChangesWindow, window("12:00", 60, "Mon")), true, 24 * time.Hour},
		{"in an hour, when the window says no length", rollouts(v1alpha1.OperatorChangesWindow, window("11:01", 0)), false, 0},
		{"an approval of another change is none", func(w *world) {
			w.ls.Annotations = map[string]string{v1alpha1.AnnotationApproveRollout: "0123456789"}
		}, true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, status := upgraded(t, test.change).decide()
			require.Equal(t, test.pending, status.PendingRollout != nil)
			require.Equal(t, test.wait, plan.RequeueAfter)
		})
	}
}

func TestAnOperatorThatRollsByItself(t *testing.T) {
	w := upgraded(t)
	by := settings
	by.RollOperatorChanges = true
	plan := decide(w.ls, w.observed, by, now)
	require.Equal(t, "lease-service:v1", setOf(t, plan).Spec.Template.Spec.Containers[0].Image)
	rollouts(v1alpha1.OperatorChangesApprove, nil)(w)
	plan = decide(w.ls, w.observed, by, now)
	require.Equal(t, "lease-service:v0", setOf(t, plan).Spec.Template.Spec.Containers[0].Image, "what the spec says comes first")
}
