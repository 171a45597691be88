package leaseservice

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/controller/leaseservice/watch"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

var (
	now      = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	settings = desired.Settings{DefaultImage: "lease-service:v1", OperatorNamespace: "holdfast-system"}
)

// world is a LeaseService and all that is observed of it. The fixtures below change one that is well.
type world struct {
	ls       *v1alpha1.LeaseService
	observed Observation
}

type change func(*world)

// well is a LeaseService of three pods, all ready, locks-0 leading, with nothing to tell.
func well(changes ...change) *world {
	w := &world{
		ls: &v1alpha1.LeaseService{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "locks", UID: "ls", Generation: 1},
			Spec:       v1alpha1.LeaseServiceSpec{Replicas: 3, EtcdEndpoints: []string{"http://etcd-cluster:2379"}, LeaseTTLSeconds: 30},
		},
		observed: Observation{
			Set: &appsv1.StatefulSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "locks", UID: "set", Generation: 1},
				Spec:       appsv1.StatefulSetSpec{Replicas: new(int32(3))},
				Status: appsv1.StatefulSetStatus{
					ObservedGeneration: 1,
					CurrentRevision:    "locks-1st", UpdateRevision: "locks-1st",
				},
			},
			Reports: map[string]watch.Report{},
		},
	}
	for i := range 3 {
		name := fmt.Sprintf("locks-%d", i)
		w.observed.Pods = append(w.observed.Pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
				Labels: map[string]string{appsv1.StatefulSetRevisionLabel: "locks-1st"},
			},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.0.0.%d", i),
				Conditions: []corev1.PodCondition{
					{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
					{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))},
				},
				ContainerStatuses: []corev1.ContainerStatus{{Name: desired.ContainerName, Image: "lease-service:v1", Ready: true}},
			},
		})
		w.observed.Reports[name] = watch.Report{State: watch.Live, Serving: true, ActiveLeases: int64(i + 1), Version: "v1", Leader: i == 0, NamedLeader: "locks-0"}
	}
	for _, apply := range changes {
		apply(w)
	}
	return w
}

func (w *world) decide() (reconcile.Plan[*v1alpha1.LeaseService], v1alpha1.LeaseServiceStatus) {
	plan := decide(w.ls, w.observed, settings, now)
	after := w.ls.DeepCopy()
	plan.Status(after)
	return plan, after.Status
}

func pod(ordinal int, do func(*corev1.Pod)) change {
	return func(w *world) { do(w.observed.Pods[ordinal]) }
}

func unreadyFor(ordinal int, d time.Duration) change {
	return func(w *world) {
		p := w.observed.Pods[ordinal]
		p.Status.Conditions[1].Status = corev1.ConditionFalse
		p.Status.Conditions[1].LastTransitionTime = metav1.NewTime(now.Add(-d))
		p.Status.ContainerStatuses[0].Ready = false
	}
}

func waitingFor(ordinal int, reason string) change {
	return pod(ordinal, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodPending
		p.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: "at 12:00:01"}
	})
}

func crashed(ordinal int, state func(*corev1.ContainerStatus)) change {
	return pod(ordinal, func(p *corev1.Pod) {
		status := &p.Status.ContainerStatuses[0]
		status.RestartCount = 4
		status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error"}
		state(status)
	})
}

func unschedulable(ordinal int, since time.Duration) change {
	return func(w *world) {
		p := w.observed.Pods[ordinal]
		p.CreationTimestamp = metav1.NewTime(now.Add(-since))
		p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available: 1 Insufficient cpu."},
		}}
		delete(w.observed.Reports, p.Name)
	}
}

func report(ordinal int, report watch.Report) change {
	return func(w *world) { w.observed.Reports[fmt.Sprintf("locks-%d", ordinal)] = report }
}

func revision(update string, updated int32) change {
	return func(w *world) {
		w.observed.Set.Status.UpdateRevision = update
		for i := range updated {
			w.observed.Pods[2-i].Labels[appsv1.StatefulSetRevisionLabel] = update
		}
	}
}

// unheard is a world whose pods tell the operator nothing.
func unheard(state watch.State) change {
	return func(w *world) {
		for name := range w.observed.Reports {
			w.observed.Reports[name] = watch.Report{State: state, Problem: "it does not answer the operator on port 7400"}
		}
	}
}

func running(s *corev1.ContainerStatus) { s.State.Running = &corev1.ContainerStateRunning{} }
func backOff(s *corev1.ContainerStatus) {
	s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
}

func ended(s *corev1.ContainerStatus) {
	s.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error"}
}

// want is a verdict in short: its kind, reason, message and the time to the next look.
type want struct {
	kind, reason, message string
	after                 time.Duration
}

func verdict(err error) want {
	var wait *reconcile.WaitError
	var stalled *reconcile.StalledError
	switch {
	case errors.As(err, &wait):
		return want{"waiting", wait.Reason, wait.Message, wait.After}
	case errors.As(err, &stalled):
		return want{"stalled", stalled.Reason, stalled.Message, stalled.After}
	case err != nil:
		return want{kind: err.Error()}
	}
	return want{kind: "ready"}
}

func TestVerdict(t *testing.T) {
	ready := want{kind: "ready"}
	pull := `its image "lease-service:v1" cannot be pulled`
	for _, test := range []struct {
		why  string
		in   *world
		want want
	}{
		{"all is well", well(), ready},
		{
			"nothing is there yet", well(func(w *world) { w.observed = Observation{} }),
			want{"waiting", "Progressing", "the StatefulSet was made or changed, and its controller has not looked at it yet", 0},
		},
		{
			"its controller has not seen the change: its counts are of the old template",
			well(func(w *world) { w.observed.Set.Generation = 2 }),
			want{"waiting", "Progressing", "the StatefulSet was made or changed, and its controller has not looked at it yet", 0},
		},
		{
			"a pod has just been made", well(unreadyFor(1, 10*time.Second), pod(1, func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })),
			want{"waiting", "PodsNotReady", "2 of 3 pods are ready: pod locks-1: it is starting", 110 * time.Second},
		},
		{
			"a pod says itself why it does not serve",
			well(unreadyFor(1, 10*time.Second), report(1, watch.Report{State: watch.Live, Reason: "etcd does not answer"})),
			want{"waiting", "PodsNotReady", "2 of 3 pods are ready: pod locks-1: it runs and does not serve: etcd does not answer", 110 * time.Second},
		},
		{
			"a pod that cannot start is named at once",
			well(unreadyFor(1, 10*time.Second), waitingFor(1, "ErrImagePull")),
			want{"waiting", "PodsNotReady", "2 of 3 pods are ready: pod locks-1: " + pull, 110 * time.Second},
		},
		{
			"just before the deadline", well(unreadyFor(1, 119*time.Second), waitingFor(1, "ImagePullBackOff")),
			want{"waiting", "PodsNotReady", "2 of 3 pods are ready: pod locks-1: " + pull, time.Second},
		},
		{
			"at the deadline", well(unreadyFor(1, 120*time.Second), waitingFor(1, "ImagePullBackOff")),
			want{"stalled", "RolloutStuck", "pod locks-1 has not become ready within 2m0s: " + pull, 0},
		},
		{
			"the kubelet's other word for it changes nothing", well(unreadyFor(1, 130*time.Second), waitingFor(1, "ErrImagePull")),
			want{"stalled", "RolloutStuck", "pod locks-1 has not become ready within 2m0s: " + pull, 0},
		},
		{
			"a deadline of one's own",
			well(unreadyFor(1, 30*time.Second), waitingFor(1, "ErrImagePull"), func(w *world) { w.ls.Spec.ProgressDeadlineSeconds = 30 }),
			want{"stalled", "RolloutStuck", "pod locks-1 has not become ready within 30s: " + pull, 0},
		},
		{
			"the soonest of several deadlines", well(unreadyFor(1, 100*time.Second), unreadyFor(2, 110*time.Second)),
			want{"waiting", "PodsNotReady", "1 of 3 pods are ready: pod locks-1: it runs and is not ready", 10 * time.Second},
		},
		{
			"a crash loop while it waits", well(unreadyFor(0, 5*time.Minute), crashed(0, backOff)),
			want{"stalled", "RolloutStuck", "pod locks-0 has not become ready within 2m0s: it keeps crashing (exit code 2)", 0},
		},
		{
			"a crash loop while it runs", well(unreadyFor(0, 5*time.Minute), crashed(0, running)),
			want{"stalled", "RolloutStuck", "pod locks-0 has not become ready within 2m0s: it keeps crashing (exit code 2)", 0},
		},
		{
			"a crash loop just after a crash",
			well(unreadyFor(0, 5*time.Minute), crashed(0, func(s *corev1.ContainerStatus) {
				ended(s)
				s.LastTerminationState = corev1.ContainerState{}
			})),
			want{"stalled", "RolloutStuck", "pod locks-0 has not become ready within 2m0s: it keeps crashing (exit code 2)", 0},
		},
		{
			"too little memory",
			well(unreadyFor(0, 5*time.Minute), crashed(0, func(s *corev1.ContainerStatus) { s.LastTerminationState.Terminated.Reason = "OOMKilled" })),
			want{"stalled", "RolloutStuck", "pod locks-0 has not become ready within 2m0s: it keeps being killed for lack of memory (OOMKilled)", 0},
		},
		{
			"a container that cannot be made", well(unreadyFor(0, 5*time.Minute), waitingFor(0, "CreateContainerConfigError")),
			want{"stalled", "RolloutStuck", "pod locks-0 has not become ready within 2m0s: its container cannot be created: CreateContainerConfigError", 0},
		},
		{
			"an evicted pod",
			well(unreadyFor(0, 5*time.Minute), pod(0, func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" })),
			want{"stalled", "RolloutStuck", "pod locks-0 has not become ready within 2m0s: it failed: Evicted", 0},
		},
		{
			"no room: counted from its creation, since no kubelet has set a condition", well(unschedulable(2, 3*time.Minute)),
			want{"stalled", "RolloutStuck", "pod locks-2 has not become ready within 2m0s: it cannot be scheduled: 0/1 nodes are available: 1 Insufficient cpu.", 0},
		},
		{
			"runs for long and is not ready: no rollout is stuck, but nobody should go on waiting",
			well(unreadyFor(2, 3*time.Minute), report(2, watch.Report{State: watch.Live, Reason: "etcd does not answer"})),
			want{"stalled", "PodsNotReady", "pod locks-2 has not become ready within 2m0s: it runs and does not serve: etcd does not answer", 0},
		},
		{
			"a pod that is stopping is nobody's trouble, however long it has been unready",
			well(unreadyFor(2, 3*time.Minute), pod(2, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} })),
			want{"waiting", "PodsNotReady", "2 of 3 pods are ready: pod locks-2: it is stopping", 0},
		},
		{
			"a rollout", well(revision("locks-2nd", 1)),
			want{"waiting", "RollingOut", "1 of 3 pods are of the newest revision", 0},
		},
		{
			"a rollout whose new pod cannot start", well(revision("locks-2nd", 1), unreadyFor(2, 3*time.Minute), waitingFor(2, "ErrImagePull")),
			want{"stalled", "RolloutStuck", "pod locks-2 has not become ready within 2m0s: " + pull, 0},
		},
		{
			"a corrected rollout is not judged by the broken pod that it will replace",
			well(revision("locks-3rd", 0), unreadyFor(2, time.Hour), waitingFor(2, "ErrImagePull")),
			want{"waiting", "RollingOut", "0 of 3 pods are of the newest revision: pod locks-2: " + pull, 0},
		},
		{
			"scaling out", well(func(w *world) {
				w.ls.Spec.Replicas = 5
				w.observed.MissingSince = now.Add(-20 * time.Second)
			}),
			want{"waiting", "Progressing", "3 of 5 pods exist", 100 * time.Second},
		},
		{
			"pods that the set may not make", well(func(w *world) {
				w.ls.Spec.Replicas = 5
				w.observed.MissingSince = now.Add(-120 * time.Second)
			}),
			want{
				"stalled", "RolloutStuck",
				"3 of 5 pods exist, and the StatefulSet has made no more within 2m0s: its events say why (a quota, an admission policy)", 0,
			},
		},
		{
			"scaling in", well(func(w *world) { w.ls.Spec.Replicas = 2 }),
			want{"waiting", "Progressing", "3 pods exist, and 2 are to stay", 0},
		},
		{
			"ready pods without a leader",
			well(report(0, watch.Report{State: watch.Live, Serving: true})),
			want{"waiting", "NoLeader", "all pods are ready, and none of them says that it leads", 0},
		},
		{
			"nobody knows who leads: the pods' own probes decide", well(unheard(watch.Lost)), ready,
		},
		{
			"a new pod that was not heard yet", well(report(1, watch.Report{State: watch.Pending})),
			want{"waiting", "Progressing", "all pods are ready, and locks-1 has not told the operator its status yet", 0},
		},
		{
			"pods that another operator heard: all stays as it was",
			well(unheard(watch.Pending), func(w *world) {
				for i := range 3 {
					w.ls.Status.Pods = append(w.ls.Status.Pods, v1alpha1.LeaseServicePod{Name: fmt.Sprintf("locks-%d", i), Ready: true, Leader: i == 0})
				}
			}),
			ready,
		},
	} {
		t.Run(test.why, func(t *testing.T) {
			plan, _ := test.in.decide()
			require.Equal(t, test.want, verdict(plan.Unready))
			require.Len(t, plan.Children, 6)
		})
	}
}

func TestNoImageStallsAndTouchesNothing(t *testing.T) {
	w := well()
	plan := decide(w.ls, w.observed, desired.Settings{}, now)
	require.Equal(t, want{"stalled", "InvalidSpec", desired.ErrNoImage.Error(), 0}, verdict(plan.Unready))
	require.Empty(t, plan.Children)
	require.Empty(t, plan.Prune, "what runs goes on running")
}

func TestStatus(t *testing.T) {
	row := func(ordinal int, changes ...func(*v1alpha1.LeaseServicePod)) v1alpha1.LeaseServicePod {
		r := v1alpha1.LeaseServicePod{
			Name: fmt.Sprintf("locks-%d", ordinal), Ready: true, Leader: ordinal == 0, ActiveLeases: int64(ordinal + 1), Version: "v1",
		}
		for _, apply := range changes {
			apply(&r)
		}
		return r
	}
	unknown := func(message string) func(*v1alpha1.LeaseServicePod) {
		return func(r *v1alpha1.LeaseServicePod) {
			r.Leader, r.ActiveLeases, r.Version, r.Message = false, 0, "", message
		}
	}
	follower := func(r *v1alpha1.LeaseServicePod) { r.Leader = false }
	before := func(leader, previous string, rows ...v1alpha1.LeaseServicePod) change {
		return func(w *world) {
			w.ls.Status = v1alpha1.LeaseServiceStatus{Leader: leader, PreviousLeader: previous, Pods: rows}
		}
	}
	silent := "it does not answer the operator on port 7400"
	for _, test := range []struct {
		why              string
		in               *world
		leader, previous string
		leases           int64
		rows             []v1alpha1.LeaseServicePod
	}{
		{"all is well", well(), "locks-0", "", 6, []v1alpha1.LeaseServicePod{row(0), row(1), row(2)}},
		{"another led before", well(before("locks-1", "locks-2")), "locks-0", "locks-1", 6, []v1alpha1.LeaseServicePod{row(0), row(1), row(2)}},
		{"the same led before", well(before("locks-0", "locks-2")), "locks-0", "locks-2", 6, []v1alpha1.LeaseServicePod{row(0), row(1), row(2)}},
		{
			"the leader is gone",
			well(before("locks-0", ""), func(w *world) {
				w.observed.Pods = w.observed.Pods[1:]
				delete(w.observed.Reports, "locks-0")
			}),
			"", "locks-0", 5,
			[]v1alpha1.LeaseServicePod{row(1), row(2)},
		},
		{
			"a pod tells nothing", well(report(1, watch.Report{State: watch.Lost, Problem: silent})),
			"locks-0", "", 4,
			[]v1alpha1.LeaseServicePod{row(0), row(1, unknown(silent)), row(2)},
		},
		{
			"a stream has just ended: its last word holds",
			well(report(1, watch.Report{State: watch.Broken, Serving: true, ActiveLeases: 2, Version: "v1"})),
			"locks-0", "", 6,
			[]v1alpha1.LeaseServicePod{row(0), row(1), row(2)},
		},
		{
			"the operator has just started: everything stays as it was",
			well(unheard(watch.Pending), before("locks-0", "locks-1", row(0), row(1), row(2))),
			"locks-0", "locks-1", 6,
			[]v1alpha1.LeaseServicePod{row(0), row(1), row(2)},
		},
		{
			"the first pod that speaks leads by now, whatever the kept rows say",
			well(unheard(watch.Pending), before("locks-0", "", row(0), row(1), row(2)),
				report(1, watch.Report{State: watch.Live, Serving: true, Leader: true, ActiveLeases: 9, Version: "v2"})),
			"locks-1", "locks-0", 13,
			[]v1alpha1.LeaseServicePod{
				row(0, follower), row(1, func(r *v1alpha1.LeaseServicePod) { r.Leader, r.ActiveLeases, r.Version = true, 9, "v2" }), row(2),
			},
		},
		{
			"a new pod inherits no row: it was not ready in between",
			well(unheard(watch.Pending), before("", "locks-0", row(0, unknown("it is starting"), func(r *v1alpha1.LeaseServicePod) { r.Ready = false }), row(1), row(2))),
			"", "locks-0", 5,
			[]v1alpha1.LeaseServicePod{row(0, unknown(notHeardYet)), row(1), row(2)},
		},
		{
			"a pod that is not ready keeps no row",
			well(unreadyFor(0, time.Second), unheard(watch.Pending), before("locks-0", "", row(0), row(1), row(2))),
			"", "locks-0", 5,
			[]v1alpha1.LeaseServicePod{
				row(0, unknown("it runs and is not ready"), func(r *v1alpha1.LeaseServicePod) { r.Ready = false }), row(1), row(2),
			},
		},
	} {
		t.Run(test.why, func(t *testing.T) {
			input := test.in.ls.DeepCopy()
			_, status := test.in.decide()
			require.Equal(t, test.leader, status.Leader)
			require.Equal(t, test.previous, status.PreviousLeader)
			require.Equal(t, test.leases, status.ActiveLeases)
			require.Empty(t, cmp.Diff(test.rows, status.Pods))
			require.Equal(t, "locks.team-a.svc:7400", status.Endpoint)
			require.Equal(t, desired.Selector("locks"), status.Selector)
			require.Empty(t, cmp.Diff(input, test.in.ls), "a decision changes nothing that it was given")
		})
	}
}

// What was decided once is decided the same again on what it led to: otherwise a steady state would be written to.
func TestStatusIsStable(t *testing.T) {
	for why, w := range map[string]*world{
		"well":     well(),
		"stuck":    well(unreadyFor(1, time.Hour), waitingFor(1, "ErrImagePull")),
		"rollout":  well(revision("locks-2nd", 2)),
		"unheard":  well(unheard(watch.Lost)),
		"pending":  well(unheard(watch.Pending)),
		"no pods":  well(func(w *world) { w.observed = Observation{} }),
		"replaced": well(func(w *world) { w.ls.Status.Leader = "locks-2" }),
	} {
		first, once := w.decide()
		w.ls.Status = once
		plan, twice := w.decide()
		require.Empty(t, cmp.Diff(once, twice), why)
		require.Empty(t, plan.Events, "%s: the same is told twice", why)
		require.Equal(t, verdict(first.Unready), verdict(plan.Unready), why)
	}
}

func TestMessagesDoNotChangeWithTime(t *testing.T) {
	for why, w := range map[string]*world{
		"waiting": well(unreadyFor(1, 10*time.Second)),
		"stuck":   well(unreadyFor(1, time.Hour), crashed(1, backOff)),
	} {
		early := decide(w.ls, w.observed, settings, now)
		late := decide(w.ls, w.observed, settings, now.Add(time.Minute))
		require.Equal(t, verdict(early.Unready).message, verdict(late.Unready).message, why)
	}
}

func TestEvents(t *testing.T) {
	type status = v1alpha1.LeaseServiceStatus
	for _, test := range []struct {
		why           string
		before, after status
		want          []string
	}{
		{"the first leader is no change", status{}, status{Leader: "a"}, nil},
		{"the same leader", status{Leader: "a"}, status{Leader: "a"}, nil},
		{"a change", status{Leader: "a"}, status{Leader: "b"}, []string{"LeaderChanged: pod b leads now, after pod a"}},
		{"a leader is lost: told when there is another", status{Leader: "a"}, status{PreviousLeader: "a"}, nil},
		{"a change with a moment in between", status{PreviousLeader: "a"}, status{Leader: "b", PreviousLeader: "a"}, []string{"LeaderChanged: pod b leads now, after pod a"}},
		{"the same one again", status{PreviousLeader: "a"}, status{Leader: "a", PreviousLeader: "a"}, nil},
		{"the first revision is no rollout", status{}, status{CurrentRevision: "1", UpdateRevision: "1"}, nil},
		{
			"a rollout begins",
			status{CurrentRevision: "1", UpdateRevision: "1"},
			status{CurrentRevision: "1", UpdateRevision: "2"},
			[]string{"RolloutStarted: revision 2 of the pods replaces 1"},
		},
		{
			"it is corrected before it ends",
			status{CurrentRevision: "1", UpdateRevision: "2"},
			status{CurrentRevision: "1", UpdateRevision: "3"},
			[]string{"RolloutStarted: revision 3 of the pods replaces 2"},
		},
		{"it goes on", status{CurrentRevision: "1", UpdateRevision: "2"}, status{CurrentRevision: "1", UpdateRevision: "2"}, nil},
		{
			"it ends",
			status{CurrentRevision: "1", UpdateRevision: "2"},
			status{CurrentRevision: "2", UpdateRevision: "2"},
			[]string{"RolloutFinished: every pod is of revision 2"},
		},
		{"the set is deleted by hand", status{CurrentRevision: "1", UpdateRevision: "2"}, status{}, nil},
	} {
		t.Run(test.why, func(t *testing.T) {
			var got []string
			for _, event := range eventsOf(&test.before, &test.after) {
				require.Equal(t, corev1.EventTypeNormal, event.Type)
				got = append(got, event.Reason+": "+event.Message)
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestPodsAreOrderedByOrdinal(t *testing.T) {
	require.Negative(t, comparePodNames("locks-2", "locks-10"))
	require.Positive(t, comparePodNames("locks-3", "locks-2"))
	require.Zero(t, comparePodNames("locks-2", "locks-2"))
}

func TestLongTextIsCut(t *testing.T) {
	long := make([]rune, 1000)
	for i := range long {
		long[i] = 'ä'
	}
	require.Len(t, []rune(firstOf("", string(long))), maxReason)
}

// A StatefulSet that gather did not see is made, and never changed: nobody has settled what its pods run.
func TestSetThatWasNotSeenIsNotChanged(t *testing.T) {
	plan, _ := well(func(w *world) { w.observed = Observation{Absent: true} }).decide()
	require.Len(t, plan.Absent, 1)
	require.IsType(t, &appsv1.StatefulSet{}, plan.Absent[0])
	require.Contains(t, plan.Children, plan.Absent[0])
	plan, _ = well().decide()
	require.Empty(t, plan.Absent)
}
