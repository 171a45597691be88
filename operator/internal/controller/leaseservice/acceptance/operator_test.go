package acceptance_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
)

func TestLifeOfALeaseService(t *testing.T) {
	s := newStage(t)
	started := time.Now()
	require.NoError(t, s.c.Create(t.Context(), example(t, "leaseservice.yaml", s.ns)))
	ls := s.until("locks", "Ready", ready)
	t.Logf("Ready after %v, with %d writes: %v", time.Since(started), len(s.writes.writes()), s.writes.writes())

	s.run("status", func(t *testing.T) {
		_, leader := s.kubelet.election()
		require.Equal(t, leader, ls.Status.Leader)
		require.EqualValues(t, 3, ls.Status.ActiveLeases)
		require.Equal(t, []int32{3, 3, 3}, []int32{ls.Status.Replicas, ls.Status.ReadyReplicas, ls.Status.UpdatedReplicas})
		require.Equal(t, "locks."+s.ns+".svc:7400", ls.Status.Endpoint)
		require.Len(t, ls.Status.Pods, 3)
		require.Empty(t, condition(ls, "Reconciling"))
		require.Empty(t, condition(ls, "Stalled"))
	})
	s.run("a steady state is not written to, by a new operator either", func(t *testing.T) {
		s.hasEvent("Ready: 3 of 3 pods are ready") // it is sent a moment after the status
		s.rests(3 * time.Second)
		s.stop()
		s.startOperator()
		s.rests(8 * time.Second) // longer than a silent pod is waited for, and than numbers are held back
		require.True(t, ready(s.get("locks")))
	})
	s.run("the leader is killed", s.leaderKilled)
	s.run("drift is put right", s.drift)
	s.run("the scale subresource", s.scale)
	s.run("an image that does not exist, and its correction", s.rollout)
	s.run("a field that is removed", func(t *testing.T) {
		s.edit("locks", func(spec *v1alpha1.LeaseServiceSpec) {
			spec.Scheduling = &v1alpha1.LeaseServiceScheduling{NodeSelector: map[string]string{"pool": "a"}, PriorityClassName: "system-cluster-critical"}
		})
		require.Equal(t, map[string]string{"pool": "a"}, s.setOf(s.until("locks", "Ready", ready)).Spec.Template.Spec.NodeSelector)
		s.edit("locks", func(spec *v1alpha1.LeaseServiceSpec) { spec.Scheduling = nil })
		pod := s.setOf(s.until("locks", "Ready", ready)).Spec.Template.Spec
		require.Empty(t, pod.NodeSelector)
		require.Empty(t, pod.PriorityClassName)
	})
	s.run("what is not wanted goes", func(t *testing.T) {
		s.edit("locks", func(spec *v1alpha1.LeaseServiceSpec) {
			spec.Replicas, spec.NetworkPolicy = 1, v1alpha1.NetworkPolicyNone
		})
		s.until("locks", "Ready", func(ls *v1alpha1.LeaseService) bool { return ready(ls) && ls.Status.Replicas == 1 })
		for _, obj := range []client.Object{&policyv1.PodDisruptionBudget{}, &networkingv1.NetworkPolicy{}} {
			require.True(t, poll(func() bool { return apierrors.IsNotFound(s.child(obj, "locks")) }), "%T", obj)
		}
	})
	s.run("deletion leaves nothing", s.deletion)
}

func (s *stage) child(obj client.Object, name string) error {
	return s.c.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, obj)
}

func (s *stage) setOf(ls *v1alpha1.LeaseService) *appsv1.StatefulSet {
	s.t.Helper()
	set := &appsv1.StatefulSet{}
	require.NoError(s.t, s.child(set, ls.Name))
	return set
}

func (s *stage) leaderKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 3 {
		_, old := s.kubelet.election()
		statuses, err := s.c.Watch(ctx, &v1alpha1.LeaseServiceList{}, client.InNamespace(s.ns))
		require.NoError(t, err)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: old}}
		require.NoError(t, s.c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
		var seen time.Time
		var leader string
		for event := range statuses.ResultChan() {
			ls, ok := event.Object.(*v1alpha1.LeaseService)
			require.True(t, ok, "%v", event)
			if leader = ls.Status.Leader; leader != "" && leader != old {
				seen = time.Now()
				break
			}
		}
		statuses.Stop()
		elected, now := s.kubelet.election()
		require.Equal(t, now, leader)
		require.Less(t, seen.Sub(elected), time.Second)
		t.Logf("status.leader was right %v after the election", seen.Sub(elected))
		s.hasEvent("LeaderChanged: pod " + leader + " leads now, after pod " + old)
		s.until("locks", "Ready", ready)
	}
}

func (s *stage) drift(t *testing.T) {
	for _, obj := range []client.Object{
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "locks"}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "locks-peers"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "locks-lease-service"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "locks-server-tls"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "locks-client-tls"}},
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "locks"}},
		&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "locks"}},
		&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "locks"}},
	} {
		name := obj.GetName()
		require.NoError(t, s.child(obj, name))
		old := obj.GetUID()
		require.NoError(t, s.c.Delete(t.Context(), obj))
		require.True(t, poll(func() bool { return s.child(obj, name) == nil && obj.GetUID() != old }), "%T %s did not come back", obj, name)
	}
	s.until("locks", "Ready", ready)

	set := s.setOf(s.get("locks"))
	patch := client.MergeFrom(set.DeepCopy())
	set.Spec.Template.Spec.Containers[0].Image = "somebody-elses:v9"
	set.Spec.Template.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem = new(false)
	require.NoError(t, s.c.Patch(t.Context(), set, patch))
	require.True(t, poll(func() bool {
		c := s.setOf(s.get("locks")).Spec.Template.Spec.Containers[0]
		return c.Image == "lease-service:v1" && *c.SecurityContext.ReadOnlyRootFilesystem
	}))
	s.until("locks", "Ready", ready)
}

func (s *stage) scale(t *testing.T) {
	scale := &autoscalingv1.Scale{}
	require.NoError(t, s.c.SubResource("scale").Get(t.Context(), s.get("locks"), scale))
	require.EqualValues(t, 3, scale.Status.Replicas)
	require.Equal(t, desired.Selector("locks"), scale.Status.Selector)
	scale.Spec.Replicas, scale.ResourceVersion = 4, ""
	require.NoError(t, s.c.SubResource("scale").Update(t.Context(), s.get("locks"), client.WithSubResourceBody(scale)))
	s.until("locks", "four pods", func(ls *v1alpha1.LeaseService) bool { return ready(ls) && ls.Status.ReadyReplicas == 4 })
	s.edit("locks", func(spec *v1alpha1.LeaseServiceSpec) { spec.Replicas = 3 })
	s.until("locks", "three pods", func(ls *v1alpha1.LeaseService) bool { return ready(ls) && ls.Status.Replicas == 3 })
}

func (s *stage) rollout(t *testing.T) {
	s.edit("locks", func(spec *v1alpha1.LeaseServiceSpec) { spec.Image, spec.ProgressDeadlineSeconds = "missing:v2", 2 })
	ls := s.until("locks", "a verdict", func(ls *v1alpha1.LeaseService) bool {
		require.False(t, ready(ls), "the rollout has not even begun")
		return condition(ls, "Stalled").Status == metav1.ConditionTrue
	})
	require.Equal(t, "RolloutStuck", condition(ls, "Stalled").Reason)
	require.Equal(t, `pod locks-2 has not become ready within 2s: its image "missing:v2" cannot be pulled`, condition(ls, "Stalled").Message)
	require.EqualValues(t, 2, ls.Status.ReadyReplicas, "one pod at a time, so the others go on")
	s.hasEvent("RolloutStarted: ")
	s.hasEvent("RolloutStuck: pod locks-2")

	generation := ls.Generation
	s.edit("locks", func(spec *v1alpha1.LeaseServiceSpec) { spec.Image = "lease-service:v3" })
	ls = s.until("locks", "the correction", func(ls *v1alpha1.LeaseService) bool {
		stalled := condition(ls, "Stalled")
		require.False(t, stalled.Status == metav1.ConditionTrue && stalled.ObservedGeneration > generation,
			"the corrected spec was called stalled by the pod that it replaces: %s", stalled.Message)
		return ready(ls) && ls.Status.UpdatedReplicas == 3
	})
	s.until("locks", "the end of the rollout", func(ls *v1alpha1.LeaseService) bool { return ls.Status.CurrentRevision == ls.Status.UpdateRevision })
	require.Equal(t, "lease-service:v3", s.setOf(ls).Spec.Template.Spec.Containers[0].Image)
	s.hasEvent("RolloutFinished: ")
}

func (s *stage) deletion(t *testing.T) {
	require.NoError(t, s.c.Delete(t.Context(), s.get("locks")))
	for _, kind := range []string{"LeaseService.dist.system/v1alpha1", "StatefulSet.apps/v1", "Service./v1", "PodDisruptionBudget.policy/v1", "NetworkPolicy.networking.k8s.io/v1", "Secret./v1", "Pod./v1"} {
		name, rest, _ := strings.Cut(kind, ".")
		list := &unstructured.UnstructuredList{}
		group, version, _ := strings.Cut(rest, "/")
		list.SetAPIVersion(strings.TrimPrefix(group+"/"+version, "/"))
		list.SetKind(name + "List")
		require.True(t, poll(func() bool {
			require.NoError(t, s.c.List(t.Context(), list, client.InNamespace(s.ns)))
			return len(list.Items) == 0
		}), "%s: %v", kind, list.Items)
	}
}

func TestSpecsThatCannotWorkSayWhy(t *testing.T) {
	s := newStage(t)
	s.run("a request above its limit is the API server's to refuse", func(t *testing.T) {
		require.NoError(t, s.c.Create(t.Context(), minimal(t, s.ns, "greedy", `
  `+etcd+`
  resources: {requests: {cpu: "2"}, limits: {cpu: "1"}}`)))
		ls := s.until("greedy", "Stalled", func(ls *v1alpha1.LeaseService) bool { return condition(ls, "Stalled").Status == metav1.ConditionTrue })
		require.Contains(t, condition(ls, "Stalled").Message, "must be less than or equal to cpu limit of 1")
		s.edit("greedy", func(spec *v1alpha1.LeaseServiceSpec) {
			spec.Resources.Requests[corev1.ResourceCPU] = *spec.Resources.Limits.Cpu()
		})
		s.until("greedy", "Ready", ready)
	})
	s.run("a Service that somebody else has is left alone", func(t *testing.T) {
		theirs := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "taken"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		require.NoError(t, s.c.Create(t.Context(), theirs))
		require.NoError(t, s.c.Create(t.Context(), minimal(t, s.ns, "taken", `{`+etcd+`}`)))
		ls := s.until("taken", "Stalled", func(ls *v1alpha1.LeaseService) bool { return condition(ls, "Stalled").Status == metav1.ConditionTrue })
		require.Equal(t, v1alpha1.ReasonConflict, condition(ls, "Stalled").Reason)
		require.Contains(t, condition(ls, "Stalled").Message, "Service taken exists and was not made by this operator")
	})
	s.run("paused", func(t *testing.T) {
		require.NoError(t, s.c.Create(t.Context(), minimal(t, s.ns, "asleep", `{paused: true, `+etcd+`}`)))
		ls := s.until("asleep", "a verdict", func(ls *v1alpha1.LeaseService) bool { return condition(ls, "Ready").Reason == v1alpha1.ReasonPaused })
		require.Equal(t, metav1.ConditionUnknown, condition(ls, "Ready").Status)
		require.True(t, apierrors.IsNotFound(s.child(&appsv1.StatefulSet{}, "asleep")))
		s.edit("asleep", func(spec *v1alpha1.LeaseServiceSpec) { spec.Paused = false })
		s.until("asleep", "Ready", ready)
	})
}
