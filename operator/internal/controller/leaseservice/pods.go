package leaseservice

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/operator/internal/controller/leaseservice/watch"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
)

// maxReason bounds what is taken over from elsewhere into a status, in runes.
const maxReason = 256

// trouble is why a pod does not serve.
type trouble struct {
	// text is a clause about the pod ("its image ... cannot be pulled"). It names no times and no counts, and stays
	// the same while the trouble does: the kubelet alternates between several reasons for one cause.
	text string
	// start tells that the pod cannot start; otherwise it runs and is not ready.
	start bool
}

func isReady(pod *corev1.Pod) bool {
	condition := podCondition(pod, corev1.PodReady)
	return condition != nil && condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
}

// unreadySince is when a pod ceased to be ready, or was made.
func unreadySince(pod *corev1.Pod) time.Time {
	if condition := podCondition(pod, corev1.PodReady); condition != nil && !condition.LastTransitionTime.IsZero() {
		return condition.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// troubleOf says why a pod that is not ready is not.
func troubleOf(pod *corev1.Pod, report watch.Report) trouble {
	if pod.DeletionTimestamp != nil {
		return trouble{text: "it is stopping"}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return trouble{start: true, text: "it failed: " + firstOf(pod.Status.Message, pod.Status.Reason, "the kubelet gives no reason")}
	}
	if scheduled := podCondition(pod, corev1.PodScheduled); scheduled != nil && scheduled.Status == corev1.ConditionFalse {
		return trouble{start: true, text: "it cannot be scheduled: " + firstOf(scheduled.Message, scheduled.Reason, "the scheduler gives no reason")}
	}
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == desired.ContainerName {
			if found := containerTrouble(status); found != "" {
				return trouble{start: true, text: found}
			}
		}
	}
	switch {
	case pod.Status.Phase != corev1.PodRunning:
		return trouble{text: "it is starting"}
	case report.State == watch.Live && report.Reason != "":
		return trouble{text: "it runs and does not serve: " + firstOf(report.Reason)}
	}
	return trouble{text: "it runs and is not ready"}
}

// containerTrouble says why a container cannot start, or "".
func containerTrouble(status *corev1.ContainerStatus) string {
	if waiting := status.State.Waiting; waiting != nil {
		switch waiting.Reason {
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable",
			"ImageInspectError", "SignatureValidationFailed":
			return fmt.Sprintf("its image %q cannot be pulled", status.Image)
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return "its container cannot be created: " + waiting.Reason
		}
	}
	if status.Ready || status.RestartCount == 0 {
		return ""
	}
	// A crash loop shows as waiting, running and terminated in turn. What is common is the last end.
	last := status.LastTerminationState.Terminated
	if last == nil {
		last = status.State.Terminated
	}
	switch {
	case last == nil:
		return ""
	case last.Reason == "OOMKilled":
		return "it keeps being killed for lack of memory (OOMKilled)"
	}
	return fmt.Sprintf("it keeps crashing (exit code %d)", last.ExitCode)
}

func podCondition(pod *corev1.Pod, conditionType corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == conditionType {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text == "" {
			continue
		}
		if runes := []rune(text); len(runes) > maxReason {
			return string(runes[:maxReason-1]) + "…"
		}
		return text
	}
	return ""
}
