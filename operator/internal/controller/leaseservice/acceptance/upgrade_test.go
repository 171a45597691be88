package acceptance_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// An operator with another default image changes no pod before somebody approves it, and goes on keeping what there is.
func TestAnUpgradeOfTheOperator(t *testing.T) {
	s := newStage(t)
	require.NoError(t, s.c.Create(t.Context(), minimal(t, s.ns, "locks", `{replicas: 2, `+etcd+`}`)))
	before := s.until("locks", "Ready", ready)
	image := func() string { return s.setOf(before).Spec.Template.Spec.Containers[0].Image }
	s.stop()
	s.image = "lease-service:v2"
	s.startOperator()
	pending := s.until("locks", "PendingRollout", func(ls *v1alpha1.LeaseService) bool { return ls.Status.PendingRollout != nil })
	s.run("it is pending, and the pods are as they were", func(t *testing.T) {
		require.True(t, ready(pending))
		require.Equal(t, v1alpha1.ReasonOperatorChanged, condition(pending, v1alpha1.ConditionPendingRollout).Reason)
		require.Contains(t, pending.Status.PendingRollout.Message, "lease-service:v2")
		s.hasEvent(pending.Status.PendingRollout.ID)
		require.Equal(t, "lease-service:v1", image())
		require.Equal(t, before.Status.UpdateRevision, pending.Status.UpdateRevision)
		s.rests(3 * time.Second)
	})
	s.run("scaling brings no pod of another kind", func(t *testing.T) {
		s.edit("locks", func(spec *v1alpha1.LeaseServiceSpec) { spec.Replicas = 3 })
		ls := s.until("locks", "Ready", func(ls *v1alpha1.LeaseService) bool { return ready(ls) && ls.Status.Replicas == 3 })
		require.Equal(t, before.Status.UpdateRevision, ls.Status.UpdateRevision)
		require.NotNil(t, ls.Status.PendingRollout)
	})
	s.run("drift is put right, to what was applied", func(t *testing.T) {
		set := s.setOf(before)
		edited := set.DeepCopy()
		edited.Spec.Template.Spec.Containers[0].Image = "edited:by-hand"
		require.NoError(t, s.c.Patch(t.Context(), edited, client.MergeFrom(set)))
		require.True(t, poll(func() bool { return image() == "lease-service:v1" }), "it stays %s", image())
		require.NotNil(t, s.until("locks", "Ready", ready).Status.PendingRollout)
	})
	s.run("an approval lets it through", func(t *testing.T) {
		require.True(t, poll(func() bool {
			ls := s.get("locks")
			ls.Annotations = map[string]string{v1alpha1.AnnotationApproveRollout: pending.Status.PendingRollout.ID}
			return s.c.Update(t.Context(), ls) == nil
		}))
		ls := s.until("locks", "another revision", func(ls *v1alpha1.LeaseService) bool {
			return ready(ls) && ls.Status.CurrentRevision != before.Status.CurrentRevision
		})
		require.Equal(t, "lease-service:v2", image())
		require.Nil(t, ls.Status.PendingRollout)
		require.Empty(t, condition(ls, v1alpha1.ConditionPendingRollout))
	})
	s.run("a change of the spec takes the next one along", func(t *testing.T) {
		s.stop()
		s.image = "lease-service:v3"
		s.startOperator()
		s.until("locks", "PendingRollout", func(ls *v1alpha1.LeaseService) bool { return ls.Status.PendingRollout != nil })
		s.edit("locks", func(spec *v1alpha1.LeaseServiceSpec) { spec.LeaseTTLSeconds = 77 })
		ls := s.until("locks", "Ready", func(ls *v1alpha1.LeaseService) bool { return ready(ls) && image() == "lease-service:v3" })
		require.Nil(t, ls.Status.PendingRollout)
	})
}
