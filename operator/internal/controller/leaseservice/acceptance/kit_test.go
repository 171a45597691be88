package acceptance_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/controller/leaseservice"
	"github.com/holdfast-io/holdfast/operator/internal/controller/leaseservice/watch"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
)

// script is what the pods say in the kit, where none of them runs: the first of them leads.
type script struct{}

func (script) Observe(_ types.NamespacedName, _ types.UID, targets []watch.Target) map[string]watch.Report {
	reports := map[string]watch.Report{}
	for i, target := range targets {
		reports[target.Pod] = watch.Report{State: watch.Live, Leader: i == 0, Serving: true, ActiveLeases: 2, Version: "v1"}
	}
	return reports
}

func (script) Forget(types.NamespacedName, types.UID) {}

func subject(t testing.TB) testkit.Subject {
	edit := func(name string, change func(*v1alpha1.LeaseServiceSpec)) testkit.Edit {
		return testkit.Edit{Name: name, Apply: func(obj client.Object) { change(&obj.(*v1alpha1.LeaseService).Spec) }}
	}
	return testkit.Subject{
		Scheme: newScheme(t),
		Object: func() reconcile.Object {
			return &v1alpha1.LeaseService{
				ObjectMeta: metav1.ObjectMeta{Name: "locks"},
				Spec: v1alpha1.LeaseServiceSpec{
					Replicas:      2,
					EtcdEndpoints: []string{"http://etcd-cluster:2379"},
					Scheduling:    &v1alpha1.LeaseServiceScheduling{NodeSelector: map[string]string{"pool": "locks"}},
				},
			}
		},
		Edits: []testkit.Edit{
			edit("one replica, and so no budget", func(s *v1alpha1.LeaseServiceSpec) { s.Replicas = 1 }),
			edit("no policy and another image", func(s *v1alpha1.LeaseServiceSpec) {
				s.NetworkPolicy, s.Image = v1alpha1.NetworkPolicyNone, "lease-service:v2"
			}),
			edit("a field less", func(s *v1alpha1.LeaseServiceSpec) { s.Scheduling = nil }),
		},
		Pause: func(obj client.Object, paused bool) { obj.(*v1alpha1.LeaseService).Spec.Paused = paused },
		Owns: []client.Object{
			&corev1.ServiceAccount{}, &corev1.Service{}, &networkingv1.NetworkPolicy{}, &policyv1.PodDisruptionBudget{}, &appsv1.StatefulSet{},
		},
		Reads:      []client.Object{&corev1.Pod{}},
		Simulators: []testkit.Simulator{testkit.StatefulSets(nil)},
		// Six children, and a status for each step of the two pods: made, counted, ready, counted.
		MaxWrites: 16,
		// Revisions are hashes of a template that names the namespace, and each world has a namespace of its own.
		// Who led before depends on the path by design.
		Volatile: []string{"currentRevision", "updateRevision", "previousLeader"},
		Reconciler: func(d reconcile.Dependencies) (ctrlreconcile.Reconciler, error) {
			return reconcile.New(leaseservice.NewKind(script{}, desired.Settings{DefaultImage: "lease-service:v1", OperatorNamespace: "holdfast-system"}, d.Clock), d)
		},
	}
}

func TestKit(t *testing.T) { testkit.Run(t, env, subject(t)) }
