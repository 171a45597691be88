// Package acceptance holds the tests of the kind ReleaseGuard that need a real API server.
package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/holdfast-io/holdfast/crds"
	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/argocd"
	"github.com/holdfast-io/holdfast/operator/internal/argocd/argocdtest"
	"github.com/holdfast-io/holdfast/operator/internal/controller/releaseguard"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/conditions"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
)

var (
	env    *testkit.Environment
	direct client.WithWatch // without a cache
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		installed := append(crds.All(), argocdtest.CRD())
		var err error
		if env, err = testkit.Start(installed...); err == nil {
			direct, err = client.NewWithWatch(env.Config, client.Options{Scheme: schemeOfAll()})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		if err := env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

func schemeOfAll() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme, argocd.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

func newScheme(testing.TB) *runtime.Scheme { return schemeOfAll() }

func noQuery(context.Context, string, string) ([]float64, error) {
	return nil, errors.New("nobody is to be asked")
}

// fixture is one namespace of Argo CD, with an operator that may do there what ReleaseGuardRules say and no more.
type fixture struct {
	*testing.T
	ctx    context.Context
	client client.WithWatch
	ns     string
	broken func(app, revision string) string
	mu     sync.Mutex
	stop   func()
}

func start(t *testing.T, prometheus ...string) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	f := &fixture{T: t, ctx: ctx, client: direct, broken: func(string, string) string { return "" }}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "argocd-"}}
	require.NoError(t, f.client.Create(ctx, namespace))
	f.ns = namespace.Name
	f.run(prometheus...)
	return f
}

// run starts the operator, and Argo CD.
func (f *fixture) run(prometheus ...string) {
	f.Helper()
	mgr, err := ctrl.NewManager(f.config(), ctrl.Options{
		Scheme: schemeOfAll(), Logger: logr.Discard(),
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
		Metrics:    metricsserver.Options{BindAddress: "0"},
	})
	require.NoError(f, err)
	component := releaseguard.Component(releaseguard.Options{
		Namespaces: []string{f.ns}, Settings: releaseguard.Settings{Prometheus: prometheus},
	})
	require.NoError(f, component.Setup(f.ctx, mgr))
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan error, 2)
	go func() { done <- mgr.Start(ctx) }()
	go func() { done <- f.argoCD(ctx) }()
	var once sync.Once
	f.stop = func() {
		once.Do(func() {
			cancel()
			for range 2 {
				if err := <-done; err != nil {
					f.Errorf("ended with %v", err)
				}
			}
		})
	}
	f.Cleanup(f.stop)
}

// argoCD makes steps until ctx ends.
func (f *fixture) argoCD(ctx context.Context) error {
	step := argoCD(func(app, revision string) string {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.broken(app, revision)
	})
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := step(ctx, f.client, f.ns); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
			return err
		}
	}
}

func (f *fixture) breaks(broken func(app, revision string) string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = broken
}

// config connects as somebody with the Role of the release guard.
func (f *fixture) config() *rest.Config {
	f.Helper()
	meta := metav1.ObjectMeta{Namespace: f.ns, Name: "guard"}
	user := "operator-of-" + f.ns
	require.NoError(f, client.IgnoreAlreadyExists(f.client.Create(f.ctx, &rbacv1.Role{ObjectMeta: meta, Rules: crds.ReleaseGuardRules()})))
	require.NoError(f, client.IgnoreAlreadyExists(f.client.Create(f.ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "guard"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	})))
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	return config
}

// guard makes a guard of v1 over the canary a and the rest b, changed by the functions.
func (f *fixture) guard(name string, change ...func(*v1alpha1.ReleaseGuardSpec)) *v1alpha1.ReleaseGuard {
	obj := &v1alpha1.ReleaseGuard{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: name},
		Spec: v1alpha1.ReleaseGuardSpec{
			Revision: "v1", HealthIntervalSeconds: 1,
			Rings: []v1alpha1.ReleaseRing{
				{Name: "canary", Applications: []string{"a"}, SoakSeconds: new(int32(0))},
				{Name: "rest", Applications: []string{"b"}, SoakSeconds: new(int32(0))},
			},
		},
	}
	for _, each := range change {
		each(&obj.Spec)
	}
	return obj
}

func (f *fixture) applications(names ...string) {
	f.Helper()
	for _, name := range names {
		require.NoError(f, createApplication(f.ctx, f.client, f.ns, name, "v0"))
	}
}

func (f *fixture) get(name string) *v1alpha1.ReleaseGuard {
	f.Helper()
	obj := &v1alpha1.ReleaseGuard{}
	require.NoError(f, f.client.Get(f.ctx, client.ObjectKey{Namespace: f.ns, Name: name}, obj))
	return obj
}

func (f *fixture) target(app string) string {
	f.Helper()
	obj := &argocd.Application{}
	require.NoError(f, f.client.Get(f.ctx, client.ObjectKey{Namespace: f.ns, Name: app}, obj))
	return obj.Spec.Source.TargetRevision
}

// edit changes the spec, as a user does.
func (f *fixture) edit(name string, change func(*v1alpha1.ReleaseGuardSpec)) {
	f.Helper()
	f.eventually("the edit of "+name, func() bool {
		obj := f.get(name)
		change(&obj.Spec)
		err := f.client.Update(f.ctx, obj)
		if apierrors.IsConflict(err) {
			return false
		}
		require.NoError(f, err)
		return true
	})
}

func (f *fixture) eventually(what string, condition func() bool) {
	f.Helper()
	err := wait.PollUntilContextTimeout(f.ctx, 20*time.Millisecond, 90*time.Second, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		f.Fatalf("never: %s\n%s", what, f.describe())
	}
}

func (f *fixture) describe() string {
	list := &v1alpha1.ReleaseGuardList{}
	if err := f.client.List(context.WithoutCancel(f.ctx), list, client.InNamespace(f.ns)); err != nil {
		return err.Error()
	}
	text := ""
	for i := range list.Items {
		text += fmt.Sprintf("%s: %+v\n", list.Items[i].Name, list.Items[i].Status)
	}
	return text
}

// is waits until Ready has a status and a reason for the present generation.
func (f *fixture) is(name string, status metav1.ConditionStatus, reason string) *v1alpha1.ReleaseGuard {
	f.Helper()
	var obj *v1alpha1.ReleaseGuard
	f.eventually(fmt.Sprintf("%s is %s by %s", name, status, reason), func() bool {
		obj = f.get(name)
		ready := conditions.Get(obj, v1alpha1.ConditionReady)
		return ready != nil && ready.Status == status && ready.Reason == reason && obj.Status.ObservedGeneration == obj.Generation
	})
	require.NoError(f, conditions.Check(obj))
	return obj
}

func (f *fixture) events(name string) map[string]bool {
	f.Helper()
	list := &eventsv1.EventList{}
	require.NoError(f, f.client.List(f.ctx, list, client.InNamespace(f.ns)))
	out := map[string]bool{}
	for _, event := range list.Items {
		if event.Regarding.Name == name {
			out[event.Reason] = true
		}
	}
	return out
}
