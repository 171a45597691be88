package acceptance_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/holdfast-io/holdfast/crds"
	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/controller/leaseservice"
	statuswatch "github.com/holdfast-io/holdfast/operator/internal/controller/leaseservice/watch"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
	"github.com/holdfast-io/holdfast/operator/internal/secrets"
)

// patience bounds every wait. It only ends a test that has failed already.
const patience = time.Minute

// requests counts what an operator asks of the API server, by method.
type requests struct {
	next http.RoundTripper
	mu   sync.Mutex
	made []string
}

func (r *requests) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet {
		r.mu.Lock()
		r.made = append(r.made, request.Method+" "+request.URL.Path)
		r.mu.Unlock()
	}
	return r.next.RoundTrip(request)
}

func (r *requests) writes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.made)
}

// stage is a namespace with the real controllers, pretended kubelets, and the operator in a manager of its own.
type stage struct {
	t       *testing.T // the subtest that is running
	root    *testing.T // the test that the stage lasts for
	c       client.WithWatch
	ns      string
	own     string // the operator's own namespace
	kubelet *kubelet
	writes  *requests
	stop    func()

	lifetime    time.Duration // of certificates
	image       string        // that the operator has for LeaseServices without one
	administers bool          // the operator keeps users of etcd
}

func newStage(t *testing.T, changes ...func(*stage)) *stage {
	t.Helper()
	c, err := client.NewWithWatch(env.Config, client.Options{Scheme: newScheme(t)})
	require.NoError(t, err)
	s := &stage{t: t, root: t, c: c, image: "lease-service:v1", ns: newNamespace(t, c), own: newNamespace(t, c)}
	for _, apply := range changes {
		apply(s)
	}
	startControllers(t)
	s.kubelet = startKubelet(t, c, s.ns)
	s.grant(s.ns, crds.TenantRules())
	s.grant(s.own, crds.OperatorRules())
	s.grantCluster(crds.ClusterRules())
	s.startOperator()
	t.Cleanup(func() { s.stop() })
	return s
}

const account = "system:serviceaccount:holdfast-system:holdfast-operator"

// grant gives the operator exactly the permissions that it is installed with, in one namespace.
func (s *stage) grant(namespace string, rules []rbacv1.PolicyRule) {
	s.t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "holdfast-operator"}
	require.NoError(s.t, s.c.Create(s.t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}))
	require.NoError(s.t, s.c.Create(s.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: account}},
	}))
}

// grantCluster gives it what it has in no namespace. All stages share that.
func (s *stage) grantCluster(rules []rbacv1.PolicyRule) {
	s.t.Helper()
	meta := metav1.ObjectMeta{Name: "holdfast-operator"}
	require.NoError(s.t, client.IgnoreAlreadyExists(s.c.Create(s.t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules})))
	require.NoError(s.t, client.IgnoreAlreadyExists(s.c.Create(s.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: account}},
	})))
}

// startOperator starts the kind as the operator's binary does. Call stop before it is started again.
func (s *stage) startOperator() {
	s.t.Helper()
	restConfig := rest.CopyConfig(env.Config)
	restConfig.Impersonate = rest.ImpersonationConfig{UserName: account, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	s.writes = &requests{}
	restConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
		s.writes.next = next
		return s.writes
	})
	options := leaseservice.Options{
		Settings:            desired.Settings{DefaultImage: s.image, OperatorNamespace: "holdfast-system", IssueCertificates: true},
		Seed:                types.NamespacedName{Namespace: s.own, Name: crds.SeedSecret},
		CertificateLifetime: s.lifetime,
		Watch:               statuswatch.Options{Dial: s.kubelet.dial},
		CollectEvery:        200 * time.Millisecond,
	}
	if s.administers {
		options.EtcdAdmin = types.NamespacedName{Namespace: s.own, Name: crds.EtcdAdminAccess}
	}
	part := leaseservice.Component(options)
	byObject := map[client.Object]cache.ByObject{&corev1.Secret{}: secrets.ByObject()}
	maps.Copy(byObject, part.Cache)
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:  newScheme(s.t),
		Logger:  testr.NewWithOptions(s.root, testr.Options{}),
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{s.ns: {}}, ByObject: byObject, ReaderFailOnMissingInformer: true},
		Metrics: metricsserver.Options{BindAddress: "0"},
		// A second operator in one process would be refused for its controller's name.
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(s.root.Context())
	require.NoError(s.t, part.Setup(ctx, mgr))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(s.root, <-done)
		closing, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(s.root, part.Stop(closing))
	})
}

// run plays a subtest, in which the helpers of the stage fail the subtest.
func (s *stage) run(name string, test func(t *testing.T)) {
	parent := s.t
	defer func() { s.t = parent }()
	parent.Run(name, func(t *testing.T) {
		s.t = t
		test(t)
	})
}

func (s *stage) get(name string) *v1alpha1.LeaseService {
	s.t.Helper()
	ls := &v1alpha1.LeaseService{}
	require.NoError(s.t, s.c.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, ls))
	return ls
}

// until waits for a LeaseService to be as wanted.
func (s *stage) until(name, what string, ok func(*v1alpha1.LeaseService) bool) *v1alpha1.LeaseService {
	s.t.Helper()
	var ls *v1alpha1.LeaseService
	if !poll(func() bool { ls = s.get(name); return ok(ls) }) {
		require.FailNow(s.t, "waiting for "+what, "%+v", ls.Status)
	}
	return ls
}

func poll(ok func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		if ok() {
			return true
		}
	}
	return false
}

func condition(ls *v1alpha1.LeaseService, conditionType string) metav1.Condition {
	for _, c := range ls.Status.Conditions {
		if c.Type == conditionType {
			return c
		}
	}
	return metav1.Condition{}
}

func ready(ls *v1alpha1.LeaseService) bool {
	return condition(ls, "Ready").Status == metav1.ConditionTrue && ls.Status.ObservedGeneration == ls.Generation
}

// edit changes the spec, as kubectl edit does.
func (s *stage) edit(name string, change func(*v1alpha1.LeaseServiceSpec)) {
	s.t.Helper()
	require.True(s.t, poll(func() bool {
		ls := s.get(name)
		change(&ls.Spec)
		err := s.c.Update(s.t.Context(), ls)
		require.True(s.t, err == nil || apierrors.IsConflict(err), "%v", err)
		return err == nil
	}))
}

// events are the reasons and notes of all events about LeaseServices.
func (s *stage) events() []string {
	s.t.Helper()
	list := &eventsv1.EventList{}
	require.NoError(s.t, s.c.List(s.t.Context(), list, client.InNamespace(s.ns)))
	var out []string
	for _, e := range list.Items {
		if e.Regarding.Kind == "LeaseService" {
			out = append(out, e.Reason+": "+e.Note)
		}
	}
	return out
}

func (s *stage) hasEvent(part string) {
	s.t.Helper()
	require.True(s.t, poll(func() bool {
		return slices.ContainsFunc(s.events(), func(e string) bool { return strings.Contains(e, part) })
	}), "no event %q in %v", part, s.events())
}

// rests demands that nothing is written for a while.
func (s *stage) rests(d time.Duration) {
	s.t.Helper()
	before := len(s.writes.writes())
	<-time.After(d)
	require.Empty(s.t, s.writes.writes()[before:], "the operator wrote in a steady state")
}
