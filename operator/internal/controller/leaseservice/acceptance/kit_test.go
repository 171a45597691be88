package acceptance_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/certs"
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
					Replicas:      1,
					EtcdEndpoints: []string{"http://etcd-cluster:2379"},
					Scheduling:    &v1alpha1.LeaseServiceScheduling{NodeSelector: map[string]string{"pool": "locks"}},
				},
			}
		},
		Edits: []testkit.Edit{
			edit("a second replica, its budget, and a field less", func(s *v1alpha1.LeaseServiceSpec) { s.Replicas, s.Scheduling = 2, nil }),
			edit("no TLS and no certificates", func(s *v1alpha1.LeaseServiceSpec) {
				s.TLS = &v1alpha1.LeaseServiceTLS{Mode: v1alpha1.TLSDisabled}
			}),
			edit("no policy and another image", func(s *v1alpha1.LeaseServiceSpec) {
				s.NetworkPolicy, s.Image = v1alpha1.NetworkPolicyNone, "lease-service:v2"
			}),
		},
		Pause: func(obj client.Object, paused bool) { obj.(*v1alpha1.LeaseService).Spec.Paused = paused },
		Owns: []client.Object{
			&corev1.ServiceAccount{}, &corev1.Service{}, &corev1.Secret{}, &networkingv1.NetworkPolicy{}, &policyv1.PodDisruptionBudget{}, &appsv1.StatefulSet{},
		},
		Reads:      []client.Object{&corev1.Pod{}},
		Simulators: []testkit.Simulator{testkit.StatefulSets(nil)},
		// Seven children, the status of a pod that is not there within three seconds, that of one that is late (the kit moves the
		// clock while nothing else moves), and that of one that is ready.
		MaxWrites: 10,
		// Revisions are hashes of a template that names the namespace, and each world has a namespace of its own.
		// Who led before depends on the path by design. Certificates and keys are drawn anew.
		Volatile: []string{"currentRevision", "updateRevision", "previousLeader", "ca.crt", "tls.crt", "tls.key"},
		Reconciler: func(d reconcile.Dependencies) (ctrlreconcile.Reconciler, error) {
			return reconcile.New(newKind(d), d)
		},
	}
}

func newKind(d reconcile.Dependencies) reconcile.Kind[*v1alpha1.LeaseService, leaseservice.Observation] {
	settings := desired.Settings{DefaultImage: "lease-service:v1", OperatorNamespace: "holdfast-system", IssueCertificates: true}
	issuer := leaseservice.Issuer{Seeds: [][]byte{bytes.Repeat([]byte{7}, certs.SeedSize)}, Lifetime: 90 * 24 * time.Hour}
	return leaseservice.NewKind(script{}, settings, issuer, d.Clock)
}

// The kit is worth something only if it notices what it is for. It does so for the reconciler with a kind of its own;
// here, for what LeaseService has to do itself.
func TestKitNoticesBrokenLeaseServices(t *testing.T) {
	type kind = reconcile.Kind[*v1alpha1.LeaseService, leaseservice.Observation]
	type plan = reconcile.Plan[*v1alpha1.LeaseService]
	var passes int64
	planned := func(change func(ls *v1alpha1.LeaseService, observed leaseservice.Observation, p *plan)) func(*kind) {
		return func(k *kind) {
			decide := k.Decide
			k.Decide = func(ls *v1alpha1.LeaseService, observed leaseservice.Observation, now time.Time) plan {
				p := decide(ls, observed, now)
				change(ls, observed, &p)
				return p
			}
		}
	}
	for _, mutant := range []struct {
		name, scenario, says string
		broken               func(*kind)
	}{
		{
			"leaves children that are not wanted any more", "edits", "the state is not that of an undisturbed run",
			planned(func(_ *v1alpha1.LeaseService, _ leaseservice.Observation, p *plan) { p.Prune = nil }),
		},
		{
			"does not hold back for a pause", "pause", "was changed while the object was paused",
			func(k *kind) { k.Paused = nil },
		},
		{
			"reports what differs in each pass", "rests", "no rest after",
			planned(func(_ *v1alpha1.LeaseService, _ leaseservice.Observation, p *plan) {
				status := p.Status
				p.Status = func(obj *v1alpha1.LeaseService) {
					status(obj)
					passes++
					obj.Status.ActiveLeases = passes
				}
			}),
		},
	} {
		t.Run(mutant.name, func(t *testing.T) {
			broken := subject(t)
			broken.Reconciler = func(d reconcile.Dependencies) (ctrlreconcile.Reconciler, error) {
				k := newKind(d)
				mutant.broken(&k)
				return reconcile.New(k, d)
			}
			for _, scenario := range testkit.Scenarios() {
				if scenario.Name == mutant.scenario {
					require.Contains(t, failureOf(t, func(tb testing.TB) { scenario.Run(tb, env, broken) }), mutant.says)
					return
				}
			}
			t.Fatalf("the kit has no scenario %q", mutant.scenario)
		})
	}
}

// failureOf returns what a failing test says, or an empty text when it passes.
func failureOf(t *testing.T, test func(testing.TB)) string {
	t.Helper()
	recorder := &recordingTB{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(recorder)
	}()
	<-done
	return recorder.said
}

// recordingTB is a testing.TB whose failure is no failure of the test around it.
type recordingTB struct {
	testing.TB
	said string
}

func (r *recordingTB) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recordingTB) Logf(string, ...any) {}

func TestKit(t *testing.T) { testkit.Run(t, env, subject(t)) }
