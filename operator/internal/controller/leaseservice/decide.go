package leaseservice

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/controller/leaseservice/watch"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

// owned are the types of the children. Each is pruned as well: a child that the spec does not want any more goes.
func owned() []client.Object {
	return []client.Object{
		&corev1.ServiceAccount{}, &corev1.Service{}, &corev1.Secret{}, &networkingv1.NetworkPolicy{}, &policyv1.PodDisruptionBudget{}, &appsv1.StatefulSet{},
	}
}

// decide is the whole decision about one LeaseService.
func decide(ls *v1alpha1.LeaseService, observed Observation, settings desired.Settings, now time.Time) reconcile.Plan[*v1alpha1.LeaseService] {
	status := statusOf(ls, observed)
	if mode, err := desired.TLSMode(ls, settings); err == nil && mode == v1alpha1.TLSManaged {
		status.ClientSecret = desired.ClientSecretName(ls)
	}
	plan := reconcile.Plan[*v1alpha1.LeaseService]{
		Status: func(obj *v1alpha1.LeaseService) { apply(&obj.Status, status) },
		Events: eventsOf(&ls.Status, &status),
	}
	children, err := desired.Children(ls, settings, observed.Certificates.Certificates, observed.Account.login())
	if err != nil {
		// Nothing is applied and nothing pruned: pods that run already go on running.
		plan.Unready = reconcile.Stalled(v1alpha1.ReasonInvalidSpec, "%s", err)
		return plan
	}
	if account := observed.Account; account != nil {
		if account.invalid != nil {
			plan.Unready = reconcile.Stalled(v1alpha1.ReasonInvalidSpec, "%s", account.invalid)
			return plan
		}
		if !account.granted {
			plan.Effect = &reconcile.Effect{What: "make its user of etcd", Run: account.grant}
		}
	}
	pending, wait, err := settle(ls, children, observed.Set, settings, now)
	if err != nil {
		plan.Unready = reconcile.Stalled(v1alpha1.ReasonInvalidSpec, "%s", err)
		return plan
	}
	for _, child := range children {
		plan.Children = append(plan.Children, child)
		if set, ok := child.(*appsv1.StatefulSet); ok && observed.Absent {
			// What settle kept from the pods of a set that it did not see would otherwise reach them.
			plan.Absent = append(plan.Absent, set)
		}
	}
	plan.Prune = owned()
	if next := observed.Certificates.Next; !next.IsZero() {
		plan.RequeueAfter = max(next.Sub(now), time.Second)
	}
	if pending != nil {
		// What pods of the older template refer to stays, too.
		plan.Prune = nil
		plan.RequeueAfter = sooner(plan.RequeueAfter, wait)
		status.PendingRollout = pending
		plan.Conditions = append(plan.Conditions, pendingCondition(pending))
	}
	plan.Events = eventsOf(&ls.Status, &status)
	plan.Progress = status.Leader == ls.Status.Leader
	plan.Unready = unready(ls, observed, &status, now)
	plan.Message = fmt.Sprintf("%d of %d pods are ready", status.ReadyReplicas, desired.Replicas(ls))
	if unheard := unheardPods(observed); unheard > 0 {
		plan.Message += fmt.Sprintf("; %d of them do not tell the operator their status", unheard)
	}
	return plan
}

// unready is what keeps the LeaseService from being Ready, the most telling first: a pod that is stuck says more than
// that a rollout is not finished, which in turn says more than that pods are not ready.
func unready(ls *v1alpha1.LeaseService, observed Observation, status *v1alpha1.LeaseServiceStatus, now time.Time) error {
	want, set := desired.Replicas(ls), observed.Set
	if set == nil || set.Status.ObservedGeneration < set.Generation || set.Status.UpdateRevision == "" {
		return reconcile.Wait(0, v1alpha1.ReasonProgressing, "the StatefulSet was made or changed, and its controller has not looked at it yet")
	}
	next, late := stuckPods(ls, observed, now)
	switch {
	case observed.Certificates.Missing != "":
		return reconcile.Stalled(v1alpha1.ReasonSourceMissing, "%s", observed.Certificates.Missing)
	case late != nil:
		return late
	case status.UpdatedReplicas < want && status.UpdateRevision != status.CurrentRevision:
		return reconcile.Wait(next, v1alpha1.ReasonRollingOut, "%d of %d pods are of the newest revision%s",
			status.UpdatedReplicas, want, firstTrouble(observed))
	case status.Replicas < want:
		return reconcile.Wait(next, v1alpha1.ReasonProgressing, "%d of %d pods exist%s", status.Replicas, want, firstTrouble(observed))
	case status.Replicas > want:
		return reconcile.Wait(next, v1alpha1.ReasonProgressing, "%d pods exist, and %d are to stay%s", status.Replicas, want, firstTrouble(observed))
	case status.ReadyReplicas < want:
		return reconcile.Wait(next, v1alpha1.ReasonPodsNotReady, "%d of %d pods are ready%s", status.ReadyReplicas, want, firstTrouble(observed))
	case newcomer(ls, observed) != "":
		return reconcile.Wait(0, v1alpha1.ReasonProgressing, "all pods are ready, and %s has not told the operator its status yet", newcomer(ls, observed))
	case status.Leader == "" && !allUnheard(observed):
		return reconcile.Wait(0, v1alpha1.ReasonNoLeader, "all pods are ready, and none of them says that it leads")
	}
	return nil
}

// stuckPods returns an error when a pod of the newest revision has been unready for longer than the deadline, or when
// pods have been missing for as long; otherwise when that will be the case (zero: nothing is unready). Pods of older
// revisions are not looked at: the StatefulSet replaces them, and they say nothing about the present spec.
func stuckPods(ls *v1alpha1.LeaseService, observed Observation, now time.Time) (next time.Duration, stuck error) {
	limit := deadline(ls)
	for _, pod := range observed.Pods {
		if isReady(pod) || pod.DeletionTimestamp != nil || pod.Labels[appsv1.StatefulSetRevisionLabel] != observed.Set.Status.UpdateRevision {
			continue
		}
		left := unreadySince(pod).Add(limit).Sub(now)
		if left > 0 {
			next = sooner(next, left)
			continue
		}
		found := troubleOf(pod, observed.Reports[pod.Name])
		reason := v1alpha1.ReasonPodsNotReady
		if found.start {
			reason = v1alpha1.ReasonRolloutStuck
		}
		return 0, reconcile.Stalled(reason, "pod %s has not become ready within %s: %s", pod.Name, limit, found.text)
	}
	if observed.MissingSince.IsZero() {
		return next, nil
	}
	left := observed.MissingSince.Add(limit).Sub(now)
	if left > 0 {
		return sooner(next, left), nil
	}
	return 0, reconcile.Stalled(v1alpha1.ReasonRolloutStuck,
		"%d of %d pods exist, and the StatefulSet has made no more within %s: its events say why (a quota, an admission policy)",
		len(observed.Pods), desired.Replicas(ls), limit)
}

func deadline(ls *v1alpha1.LeaseService) time.Duration {
	if ls.Spec.ProgressDeadlineSeconds > 0 {
		return time.Duration(ls.Spec.ProgressDeadlineSeconds) * time.Second
	}
	return v1alpha1.DefaultProgressDeadlineSeconds * time.Second
}

func sooner(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// firstTrouble names the first pod that is not ready, with a colon before it, or is empty.
func firstTrouble(observed Observation) string {
	for _, pod := range observed.Pods {
		if !isReady(pod) {
			return fmt.Sprintf(": pod %s: %s", pod.Name, troubleOf(pod, observed.Reports[pod.Name]).text)
		}
	}
	return ""
}

// newcomer returns a ready pod that the operator has just begun to listen to and knows nothing of, or "". It is waited for
// (as long as the listener's grace at most), so that a Ready object has a status that tells of all of its pods.
func newcomer(ls *v1alpha1.LeaseService, observed Observation) string {
	for _, pod := range observed.Pods {
		report, asked := observed.Reports[pod.Name]
		if _, kept := keptRow(ls, pod.Name); asked && report.State == watch.Pending && isReady(pod) && !kept {
			return pod.Name
		}
	}
	return ""
}

// unheardPods counts the ready pods that tell the operator nothing.
func unheardPods(observed Observation) int {
	n := 0
	for _, pod := range observed.Pods {
		if report, ok := observed.Reports[pod.Name]; isReady(pod) && (!ok || report.State == watch.Lost) {
			n++
		}
	}
	return n
}

// allUnheard tells whether no pod can say who leads: then nobody knows that there is no leader. Whether the service
// works is for the pods' readiness to say, and the operator's own troubles in asking them take nothing away from it.
func allUnheard(observed Observation) bool { return unheardPods(observed) == len(observed.Pods) }
