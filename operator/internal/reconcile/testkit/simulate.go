package testkit

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// collectGarbage deletes one object whose controller is gone.
func (w *world) collectGarbage(ctx context.Context, c client.Client, _ string) error {
	alive := map[string]bool{}
	for _, obj := range w.server.contents {
		alive[string(obj.GetUID())] = true
	}
	for _, r := range slices.SortedFunc(maps.Keys(w.server.contents), compare) {
		obj := w.server.contents[r]
		controller := metav1.GetControllerOf(obj)
		if controller == nil || alive[string(controller.UID)] || obj.GetDeletionTimestamp() != nil {
			continue
		}
		uid := obj.GetUID()
		return client.IgnoreNotFound(c.Delete(ctx, obj.DeepCopyObject().(client.Object), client.Preconditions{UID: &uid}, client.GracePeriodSeconds(0)))
	}
	return nil
}

// StatefulSets simulates the controller of StatefulSets and the kubelets: one step makes a pod, makes one ready, replaces
// one of an older revision (the highest first), removes one, or brings a status up to date. Ready, when given, decides
// whether a pod may become ready.
func StatefulSets(ready func(pod *corev1.Pod) bool) Simulator {
	return func(ctx context.Context, c client.Client, namespace string) error {
		var sets appsv1.StatefulSetList
		if err := c.List(ctx, &sets, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range sets.Items {
			set := &sets.Items[i]
			var pods corev1.PodList
			if err := c.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
				return err
			}
			pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, set) })
			if stepped, err := stepPods(ctx, c, set, pods.Items, ready); stepped || err != nil {
				return err
			}
		}
		return nil
	}
}

// stepPods makes one step for one StatefulSet, and tells whether there was one to make.
func stepPods(ctx context.Context, c client.Client, set *appsv1.StatefulSet, pods []corev1.Pod, ready func(*corev1.Pod) bool) (bool, error) {
	want := int(*set.Spec.Replicas)
	revision := revisionOf(set)
	byName := map[string]*corev1.Pod{}
	for i := range pods {
		byName[pods[i].Name] = &pods[i]
	}
	status := appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, UpdateRevision: revision, CurrentRevision: revision, CollisionCount: set.Status.CollisionCount}
	for _, pod := range byName {
		status.Replicas++
		if isReady(pod) {
			status.ReadyReplicas++
			status.AvailableReplicas++
		}
		if pod.Labels[appsv1.ControllerRevisionHashLabelKey] == revision {
			status.UpdatedReplicas++
			status.CurrentReplicas++
		}
	}
	if !sameStatus(status, set.Status) {
		set.Status = status
		return true, c.Status().Update(ctx, set)
	}
	for ordinal := range max(want, len(pods)) {
		if stepped, err := stepPod(ctx, c, set, byName[fmt.Sprintf("%s-%d", set.Name, ordinal)], ordinal, ready); stepped || err != nil {
			return stepped, err
		}
	}
	for ordinal := max(want, len(pods)) - 1; ordinal >= 0; ordinal-- {
		pod := byName[fmt.Sprintf("%s-%d", set.Name, ordinal)]
		if pod != nil && (ordinal >= want || pod.Labels[appsv1.ControllerRevisionHashLabelKey] != revision) {
			return true, c.Delete(ctx, pod, client.GracePeriodSeconds(0))
		}
	}
	return false, nil
}

// stepPod makes a pod that is missing, or makes one ready that is not.
func stepPod(ctx context.Context, c client.Client, set *appsv1.StatefulSet, pod *corev1.Pod, ordinal int, ready func(*corev1.Pod) bool) (bool, error) {
	switch {
	case ordinal >= int(*set.Spec.Replicas):
		return false, nil
	case pod == nil:
		return true, c.Create(ctx, newPod(set, ordinal))
	case !isReady(pod) && (ready == nil || ready(pod)):
		pod.Status.Phase = corev1.PodRunning
		pod.Status.PodIP = fmt.Sprintf("10.0.0.%d", ordinal+1)
		pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return true, c.Status().Update(ctx, pod)
	}
	return false, nil
}

func newPod(set *appsv1.StatefulSet, ordinal int) *corev1.Pod {
	template := set.Spec.Template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name, pod.Namespace = fmt.Sprintf("%s-%d", set.Name, ordinal), set.Namespace
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = revisionOf(set)
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	for _, claim := range set.Spec.VolumeClaimTemplates {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + pod.Name},
		}})
	}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	return pod
}

// revisionOf names the pod template, as the controller's revisions do.
func revisionOf(set *appsv1.StatefulSet) string {
	hash := fnv.New32a()
	fmt.Fprint(hash, indented(set.Spec.Template))
	return fmt.Sprintf("%s-%x", set.Name, hash.Sum32())
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func sameStatus(a, b appsv1.StatefulSetStatus) bool { return indented(a) == indented(b) }
