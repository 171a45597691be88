package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/component"
	"github.com/holdfast-io/holdfast/operator/internal/controller/zookeeperconfig"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
	"github.com/holdfast-io/holdfast/operator/internal/secrets"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/shared"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
	zktest "github.com/holdfast-io/holdfast/test/zookeeper"
)

const namespace = "bench"

// concurrent is the number of objects that the operator works on at once, and its peer as well.
const concurrent = 64

// stand is an API server with the objects in it, and an operator that can be started.
type stand struct {
	options
	env    *testkit.Environment
	scheme *kruntime.Scheme
	client client.Client
	hand   *zookeeper.Session
	target zookeeper.Target
	// writes counts the requests of the operator that change something.
	writes atomic.Int64
	// gets counts its reads of single objects, past the cache.
	gets atomic.Int64
}

func newStand(o options, env *testkit.Environment, ensemble *zktest.Ensemble) (*stand, error) {
	s := &stand{options: o, env: env, scheme: kruntime.NewScheme()}
	if err := scheme.AddToScheme(s.scheme); err != nil {
		return nil, err
	}
	if err := v1alpha1.AddToScheme(s.scheme); err != nil {
		return nil, err
	}
	connect, err := zktypes.ParseConnectString(ensemble.ConnectString())
	if err != nil {
		return nil, err
	}
	s.target = zookeeper.Target{Connect: connect, Credential: credential}
	s.client, err = client.New(env.Config, client.Options{Scheme: s.scheme})
	return s, err
}

func (s *stand) createObjects(ctx context.Context, namespace string) error {
	if err := s.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return err
	}
	text := strings.Repeat("x", len(payload))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range s.objects {
		group.Go(func() error {
			return s.client.Create(ctx, &v1alpha1.ZooKeeperConfig{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("n%d", i)},
				Spec:       v1alpha1.ZooKeeperConfigSpec{Path: fmt.Sprintf("/operator/n%d", i), StringData: &text},
			})
		})
	}
	return group.Wait()
}

// counting counts requests of the operator.
type counting struct {
	s    *stand
	next http.RoundTripper
}

func (c counting) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.Contains(req.URL.Path, "/zookeeperconfigs") {
		switch {
		case req.Method != http.MethodGet:
			c.s.writes.Add(1)
		case !strings.HasSuffix(req.URL.Path, "/zookeeperconfigs"):
			c.s.gets.Add(1)
		}
	}
	return c.next.RoundTrip(req)
}

// operator starts an operator that audits so often, and returns what stops it.
func (s *stand) operator(ctx context.Context, audit time.Duration) (stop func() error, err error) {
	counters, err := zookeeper.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	pool := shared.New(zookeeper.Options{AuditInterval: audit, Metrics: counters}, nil)
	unit := zookeeperconfig.Component(zookeeperconfig.Options{
		Pool:          pool,
		Settings:      zookeeperconfig.Settings{Default: func(string) (zookeeper.Target, error) { return s.target, nil }},
		MaxConcurrent: concurrent,
	})
	core, err := component.New([]component.Component{secrets.Component(), pool.Component(), unit}, nil)
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(s.env.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{s, next} })
	byObject, err := core.Cache()
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)}, // it is started twice
		Scheme:     s.scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{namespace: {}}, ByObject: byObject,
			DefaultTransform: reconcile.Trim(s.scheme, v1alpha1.GroupVersion.Group),
		},
	})
	if err != nil {
		return nil, err
	}
	if err := core.Setup(ctx, mgr); err != nil {
		return nil, err
	}
	if err := core.Start(ctx); err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(running) }()
	return func() error {
		cancel()
		if err := <-done; err != nil {
			return err
		}
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		return core.Stop(closing)
	}, nil
}
