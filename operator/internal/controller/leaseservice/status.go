package leaseservice

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/controller/leaseservice/watch"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

// notHeardYet is the message of a ready pod that the operator knows nothing of.
const notHeardYet = "it has not told the operator its status yet"

// statusOf computes the kind's own part of the status; conditions and the observed generation are left empty.
//
// Pods are counted here and not taken from the StatefulSet's status, which says the same a moment later: the numbers
// then always agree with the table of pods, and each step of a pod is one write and not two.
func statusOf(ls *v1alpha1.LeaseService, observed Observation) v1alpha1.LeaseServiceStatus {
	status := v1alpha1.LeaseServiceStatus{
		Endpoint: desired.Endpoint(ls),
		Selector: desired.Selector(ls.Name),
	}
	if set := observed.Set; set != nil {
		status.CurrentRevision = set.Status.CurrentRevision
		status.UpdateRevision = set.Status.UpdateRevision
	}
	for _, pod := range observed.Pods {
		status.Replicas++
		if isReady(pod) {
			status.ReadyReplicas++
		}
		if pod.Labels[appsv1.StatefulSetRevisionLabel] == status.UpdateRevision {
			status.UpdatedReplicas++
		}
	}
	status.Pods = rows(ls, observed)
	for _, row := range status.Pods {
		status.ActiveLeases += row.ActiveLeases
	}
	status.Leader = leader(status.Pods, observed)
	status.PreviousLeader = ls.Status.PreviousLeader
	if old := ls.Status.Leader; old != "" && old != status.Leader {
		status.PreviousLeader = old
	}
	return status
}

// rows has a row a pod.
//
// A pod that the operator has just begun to listen to keeps the row that it had: after a restart of the operator
// nothing is known for a moment, and a status that said so would be written twice for every object. Only a pod that
// is ready and was ready keeps it. One that was made anew in between is not, and what was said of its predecessor
// does not hold for it.
func rows(ls *v1alpha1.LeaseService, observed Observation) []v1alpha1.LeaseServicePod {
	var out []v1alpha1.LeaseServicePod
	for _, pod := range observed.Pods {
		report, asked := observed.Reports[pod.Name]
		row := v1alpha1.LeaseServicePod{Name: pod.Name, Ready: isReady(pod)}
		if before, kept := keptRow(ls, pod.Name); asked && report.State == watch.Pending && row.Ready && kept {
			out = append(out, before)
			continue
		}
		if report.State == watch.Live || report.State == watch.Broken {
			row.ActiveLeases = report.ActiveLeases
			row.Version = firstOf(report.Version)
		}
		switch {
		case !row.Ready:
			row.Message = troubleOf(pod, report).text
		case report.State == watch.Lost:
			row.Message = report.Problem
		case asked && report.State == watch.Pending:
			row.Message = notHeardYet
		}
		out = append(out, row)
	}
	return out
}

// keptRow is the row that a pod has in the status that is there, and whether it says something of a ready pod.
func keptRow(ls *v1alpha1.LeaseService, pod string) (v1alpha1.LeaseServicePod, bool) {
	for _, row := range ls.Status.Pods {
		if row.Name == pod {
			return row, row.Ready && row.Message != notHeardYet
		}
	}
	return v1alpha1.LeaseServicePod{}, false
}

// leader returns the name of the leader, and marks its row. Claims come from the reports, and from the rows that were
// kept only while no report claims: what is said now outweighs what was said to an operator before this one.
func leader(rows []v1alpha1.LeaseServicePod, observed Observation) string {
	name := watch.Leader(observed.Reports)
	for _, row := range rows {
		if name == "" && row.Leader {
			name = row.Name
		}
	}
	for i := range rows {
		rows[i].Leader = rows[i].Name == name
	}
	return name
}

// apply copies the kind's own part of a status, and leaves the conditions and the observed generation.
func apply(to *v1alpha1.LeaseServiceStatus, from v1alpha1.LeaseServiceStatus) {
	from.Conditions, from.ObservedGeneration = to.Conditions, to.ObservedGeneration
	*to = from
}

// eventsOf tells the differences between two statuses that a person would ask about. That the object became ready, or
// stalled, is told with the conditions.
func eventsOf(before, after *v1alpha1.LeaseServiceStatus) []reconcile.Event {
	var events []reconcile.Event
	tell := func(reason, format string, args ...any) {
		events = append(events, reconcile.Event{Type: corev1.EventTypeNormal, Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	// Between two leaders there is a moment without one, which may or may not have been written.
	if old := firstOf(before.Leader, before.PreviousLeader); after.Leader != "" && before.Leader != after.Leader && old != "" && old != after.Leader {
		tell(v1alpha1.ReasonLeaderChanged, "pod %s leads now, after pod %s", after.Leader, old)
	}
	if now := after.PendingRollout; now != nil && (before.PendingRollout == nil || before.PendingRollout.ID != now.ID) {
		tell(v1alpha1.ReasonOperatorChanged, "a rollout is pending, since the operator would change %s; %s", now.Message, approval(now))
	}
	if before.UpdateRevision != "" && after.UpdateRevision != "" && before.UpdateRevision != after.UpdateRevision {
		tell(v1alpha1.ReasonRolloutStarted, "revision %s of the pods replaces %s", after.UpdateRevision, before.UpdateRevision)
	}
	if before.CurrentRevision != before.UpdateRevision && after.UpdateRevision != "" && after.CurrentRevision == after.UpdateRevision {
		tell(v1alpha1.ReasonRolloutFinished, "every pod is of revision %s", after.UpdateRevision)
	}
	return events
}
