package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
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
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
	"github.com/holdfast-io/holdfast/operator/internal/secrets"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/shared"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
	zktest "github.com/holdfast-io/holdfast/test/zookeeper"
)

const namespace = "bench"

// atRest is how long the operator is watched at rest.
const atRest = 30 * time.Second

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

// measureOperator creates the objects, starts the operator, and takes the time until every znode is made and every
// object Ready; then the memory, the writes at rest, and those of a restart.
func measureOperator(ctx context.Context, o options, ensemble *zktest.Ensemble, r *report) error {
	ctrl.SetLogger(logr.Discard())
	env, err := testkit.Start(crds.All()...)
	if err != nil {
		return err
	}
	defer func() { _ = env.Stop() }() // the figures are taken by then
	s, err := newStand(o, env, ensemble)
	if err != nil {
		return err
	}
	pool := zookeeper.New(zookeeper.Options{AuditInterval: -1})
	defer func() { _ = pool.Close(context.WithoutCancel(ctx)) }()
	if s.hand, err = pool.Session(s.target); err != nil {
		return err
	}
	if err := s.createObjects(ctx); err != nil {
		return fmt.Errorf("create the objects: %w", err)
	}
	before := heap()
	begin := time.Now()
	stop, err := s.operator(ctx)
	if err != nil {
		return err
	}
	if err := s.follow(ctx, r, begin); err != nil {
		return err
	}
	r.add("API writes for each object", float64(s.writes.Load())/float64(o.objects), "writes")
	r.add("live GETs for each object", float64(s.gets.Load())/float64(o.objects), "requests")
	r.add("heap for 1,000 objects, cache and session included", (heap()-before)/float64(o.objects)*1000/(1<<20), "MiB")
	if err := s.rest(ctx, r, "at rest"); err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	if stop, err = s.operator(ctx); err != nil {
		return err
	}
	if err := s.rest(ctx, r, "after a restart"); err != nil {
		return err
	}
	return stop()
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

func (s *stand) createObjects(ctx context.Context) error {
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

// operator starts an operator, and returns what stops it.
func (s *stand) operator(ctx context.Context) (stop func() error, err error) {
	counters, err := zookeeper.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	pool := shared.New(zookeeper.Options{AuditInterval: 5 * time.Second, Metrics: counters}, nil)
	unit := zookeeperconfig.Component(zookeeperconfig.Options{
		Pool:          pool,
		Settings:      zookeeperconfig.Settings{Default: func(string) (zookeeper.Target, error) { return s.target, nil }},
		MaxConcurrent: 64,
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

// follow waits for the znodes, and then for the objects.
func (s *stand) follow(ctx context.Context, r *report, begin time.Time) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for made := false; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		if !made {
			names, err := s.hand.Children(ctx, "/operator")
			if err != nil || len(names) < s.objects {
				continue // the parent is not there yet, or not all are
			}
			made = true
			r.add("operator, from its start to the last znode", float64(s.objects)/time.Since(begin).Seconds(), "znodes/s")
			ticker.Reset(500 * time.Millisecond)
		}
		ready, err := s.ready(ctx)
		if err != nil {
			return err
		}
		if ready == s.objects {
			r.add("operator, from its start to the last object Ready", float64(s.objects)/time.Since(begin).Seconds(), "objects/s")
			return nil
		}
	}
}

func (s *stand) ready(ctx context.Context) (int, error) {
	list := &v1alpha1.ZooKeeperConfigList{}
	if err := s.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return 0, err
	}
	count := 0
	for i := range list.Items {
		if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, v1alpha1.ConditionReady) {
			count++
		}
	}
	return count, nil
}

// rest counts what is written while nothing happens.
func (s *stand) rest(ctx context.Context, r *report, when string) error {
	writes := s.writes.Load()
	before, err := s.hand.Get(ctx, "/operator/n0")
	if err != nil {
		return err
	}
	select {
	case <-time.After(atRest):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := s.hand.Get(ctx, "/operator/n0")
	if err != nil {
		return err
	}
	r.add("API writes in 30 s "+when, float64(s.writes.Load()-writes), "writes")
	r.add("writes to a znode in 30 s "+when, float64(after.Version-before.Version), "writes")
	return nil
}

// heap is what is in use after a collection, in bytes.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
