// Package acceptance holds the tests of the kind ZooKeeperConfig that need a real API server and a real ZooKeeper.
package acceptance_test

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/holdfast-io/holdfast/crds"
	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/component"
	"github.com/holdfast-io/holdfast/operator/internal/controller/zookeeperconfig"
	"github.com/holdfast-io/holdfast/operator/internal/namespaces"
	"github.com/holdfast-io/holdfast/operator/internal/plan/znode"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
	"github.com/holdfast-io/holdfast/operator/internal/secrets"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	pool "github.com/holdfast-io/holdfast/operator/internal/zookeeper/shared"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
	zktest "github.com/holdfast-io/holdfast/test/zookeeper"
)

var (
	env    *testkit.Environment
	shared *zktest.Ensemble // standalone; tests do no harm to it
	trio   *zktest.Ensemble // three servers; tests do no harm to them
)

func TestMain(m *testing.M) {
	os.Exit(zktest.Main(m, 1, &shared, func(m *testing.M) int {
		return zktest.Main(m, 3, &trio, func(m *testing.M) int { return testkit.Main(m, &env, crds.All()...) })
	}))
}

// startTimeout bounds what ends a test.
const startTimeout = 20 * time.Second

// planted is a value that must never be seen outside of Secrets and ZooKeeper.
const planted = "pl4nt3d-s3cr3t-v4lu3"

// operatorCredential is the operator's own. The tests also use it as the hand that edits znodes.
var operatorCredential = zookeeper.Credential{User: "operator", Password: "pw-" + planted}

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, scheme.AddToScheme(s))
	require.NoError(t, v1alpha1.AddToScheme(s))
	return s
}

func digest(c zookeeper.Credential, perms string) zktypes.ACL {
	parsed, err := zktypes.ParsePerms(perms)
	if err != nil {
		panic(err)
	}
	return zktypes.ACL{Scheme: zktypes.SchemeDigest, ID: zktypes.DigestID(c.User, c.Password), Perms: parsed}
}

// fixture is one namespace with an operator, whose default connect string has a chroot of the namespace's own.
type fixture struct {
	*testing.T
	ctx     context.Context
	client  client.WithWatch
	ns      string
	connect string
	hand    *zookeeper.Session
	metrics *prometheus.Registry
	logs    *buffer
	stop    func()
}

// setting changes how the operator of a fixture runs.
type setting func(*operatorOptions)

// operatorOptions are those of the operator's components.
type operatorOptions struct {
	zookeeperconfig.Options
	pool zookeeper.Options
	own  *pool.Own
}

func withGrants(grants ...znode.Grant) setting {
	return func(o *operatorOptions) { o.Settings.Grants = grants }
}

// start starts an operator against an ensemble, by its connect string without chroot.
func start(t *testing.T, hosts string, settings ...setting) *fixture {
	t.Helper()
	f := &fixture{T: t, logs: &buffer{}, metrics: prometheus.NewRegistry()}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	f.ctx = ctx
	var err error
	f.client, err = client.NewWithWatch(env.Config, client.Options{Scheme: newScheme(t)})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-"}}
	require.NoError(t, f.client.Create(ctx, namespace))
	f.ns = namespace.Name
	f.connect = hosts + "/" + f.ns
	f.hand = handAt(t, f.connect, operatorCredential)
	f.grant()
	f.run(settings...)
	return f
}

// handAt is a session of somebody with a credential.
func handAt(t *testing.T, connect string, credential zookeeper.Credential) *zookeeper.Session {
	t.Helper()
	return handOf(t, poolOptions(), targetAt(t, connect, credential))
}

func handOf(t *testing.T, options zookeeper.Options, target zookeeper.Target) *zookeeper.Session {
	t.Helper()
	pool := zookeeper.New(options)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = pool.Close(ctx) // a server that was stopped for good does not answer
	})
	session, err := pool.Session(target)
	require.NoError(t, err)
	return session
}

func targetAt(t testing.TB, connect string, credential zookeeper.Credential) zookeeper.Target {
	t.Helper()
	parsed, err := zktypes.ParseConnectString(connect)
	require.NoError(t, err)
	return zookeeper.Target{Connect: parsed, Credential: credential}
}

// poolOptions have no audit: whatever is noticed is noticed by a watch.
func poolOptions() zookeeper.Options {
	return zookeeper.Options{
		// Short enough for tests of expiry, and long enough for a server on a machine that is busy with other tests.
		SessionTimeout: 3 * time.Second, RequestTimeout: 4 * time.Second, DialTimeout: time.Second,
		MaxBackoff: 500 * time.Millisecond, AuditInterval: -1,
	}
}

// run starts the operator; f.stop ends it.
func (f *fixture) run(settings ...setting) {
	f.Helper()
	f.metrics = prometheus.NewRegistry()
	counters, err := zookeeper.NewMetrics(f.metrics)
	require.NoError(f, err)
	log := slog.New(slog.NewJSONHandler(f.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	options := &operatorOptions{pool: poolOptions(), Options: zookeeperconfig.Options{MaxConcurrent: 8}}
	options.pool.Metrics, options.pool.Log = counters, log
	target := targetAt(f, f.connect, operatorCredential)
	options.Settings.Default = fixed(target)
	for _, set := range settings {
		set(options)
	}
	if options.own != nil {
		options.Settings.Default = nil
	}
	options.Pool = pool.New(options.pool, options.own)
	core, err := component.New([]component.Component{secrets.Component(), options.Pool.Component(), zookeeperconfig.Component(options.Options)}, nil)
	require.NoError(f, err)
	byObject, err := core.Cache()
	require.NoError(f, err)
	mgr, err := ctrl.NewManager(f.config(), ctrl.Options{
		Scheme: newScheme(f), Logger: logr.FromSlogHandler(log.Handler()),
		Cache: cache.Options{ByObject: byObject},
		NewCache: func(config *rest.Config, base cache.Options) (cache.Cache, error) {
			return namespaces.New(config, base, namespaces.Options{
				Given: []string{f.ns}, Registerer: f.metrics, Log: logr.FromSlogHandler(log.Handler()),
				ProbeFirst: 50 * time.Millisecond, ProbeMost: time.Second,
			})
		},
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
		Metrics:    metricsserver.Options{BindAddress: "0"},
	})
	require.NoError(f, err)
	require.NoError(f, core.Setup(f.ctx, mgr))
	require.NoError(f, core.Start(f.ctx))
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	var once sync.Once
	f.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				f.Errorf("the operator ended with %v", err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if err := core.Stop(ctx); err != nil {
				f.Logf("stop: %v", err)
			}
		})
	}
	f.Cleanup(f.stop)
}

// grant lets somebody do what the operator is installed with, and no more.
func (f *fixture) grant() {
	f.Helper()
	meta := metav1.ObjectMeta{Namespace: f.ns, Name: "operator"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: crds.TenantRules()}
	require.NoError(f, f.client.Create(f.ctx, role))
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "operator"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "operator-of-" + f.ns}},
	}
	require.NoError(f, f.client.Create(f.ctx, binding))
	cluster := metav1.ObjectMeta{Name: "operator-of-" + f.ns}
	require.NoError(f, f.client.Create(f.ctx, &rbacv1.ClusterRole{ObjectMeta: cluster, Rules: crds.ClusterRules()}))
	require.NoError(f, f.client.Create(f.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: cluster, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: cluster.Name}, Subjects: binding.Subjects,
	}))
}

// config connects the operator as that somebody.
func (f *fixture) config() *rest.Config {
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "operator-of-" + f.ns}
	return config
}
