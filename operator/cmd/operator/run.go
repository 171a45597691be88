package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/buildinfo"
	"github.com/holdfast-io/holdfast/operator/internal/component"
	"github.com/holdfast-io/holdfast/operator/internal/config"
	"github.com/holdfast-io/holdfast/operator/internal/namespaces"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

// leaseName is the name of the Lease by which replicas of the operator elect their leader.
const leaseName = "holdfast-operator"

// options are all that run works with.
type options struct {
	config     config.OperatorConfig
	rest       *rest.Config
	log        logr.Logger
	components []component.Component
}

// run runs the operator until ctx ends, and then stops it within the configured time. It returns nil after a clean stop, and
// an error when something could not be started, did not stop in time, or when another replica took the lead.
func run(ctx context.Context, o options) error {
	core, err := component.New(o.components, o.config.Components.Disabled)
	if err != nil {
		return fmt.Errorf("components: %w", err)
	}
	mgr, err := newManager(core, o)
	if err != nil {
		return err
	}
	if err := core.Setup(ctx, mgr); err != nil {
		return err
	}
	if err := announce(); err != nil {
		return err
	}
	o.log.Info("starting", "version", buildinfo.Version(version), "namespaces", o.config.WatchedNamespaces(), "components", core.Names())
	if err = core.Start(ctx); err == nil {
		err = mgr.Start(ctx)
	}
	// The context that ended is the one that says to stop; components have time of their own to do so.
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), componentTime(o.config))
	defer cancel()
	err = errors.Join(err, core.Stop(stopping))
	o.log.Info("stopped", "clean", err == nil)
	return err
}

// managerTime and componentTime share the time for a graceful stop: most of it is for passes that are under way, the rest for
// components to close what they hold.
func managerTime(c config.OperatorConfig) time.Duration {
	return c.GracefulShutdownTimeout.Duration * 3 / 4
}

func componentTime(c config.OperatorConfig) time.Duration {
	return c.GracefulShutdownTimeout.Duration / 4
}

func newManager(core *component.Core, o options) (ctrl.Manager, error) {
	scheme := kruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), core.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	byObject, err := core.Cache()
	if err != nil {
		return nil, err
	}
	spaces := namespaces.Options{Given: o.config.WatchedNamespaces(), Log: o.log.WithName("namespaces"), Registerer: metrics.Registry}
	if o.config.NamespacesFromConfigMaps {
		spaces.Markers = o.config.LeaderElection.Namespace
	}
	election := o.config.LeaderElection
	mgr, err := ctrl.NewManager(o.rest, ctrl.Options{
		Scheme: scheme,
		Logger: o.log,
		NewCache: func(config *rest.Config, base cache.Options) (cache.Cache, error) {
			return namespaces.New(config, base, spaces)
		},
		Cache: cache.Options{
			ByObject:         byObject,
			DefaultTransform: reconcile.Trim(scheme, v1alpha1.GroupVersion.Group),
			// A read of a type that nothing watches would start a watch for it in the middle of a pass, which may
			// not even be allowed. It is an error of the component instead.
			ReaderFailOnMissingInformer: true,
		},
		LeaderElection:          election.Enabled,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: election.Namespace,
		LeaseDuration:           &election.LeaseDuration.Duration,
		RenewDeadline:           &election.RenewDeadline.Duration,
		RetryPeriod:             &election.RetryPeriod.Duration,
		// Safe, since nothing writes to the API server after the manager has stopped: components only close what
		// they hold, and then the process ends.
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       metricsserver.Options{BindAddress: o.config.Metrics.BindAddress},
		HealthProbeBindAddress:        o.config.Health.BindAddress,
		GracefulShutdownTimeout:       new(managerTime(o.config)),
	})
	if err != nil {
		return nil, fmt.Errorf("manager: %w", err)
	}
	ready := func(req *http.Request) error {
		if !mgr.GetCache().WaitForCacheSync(req.Context()) {
			return errors.New("the caches have not caught up with the API server yet")
		}
		return nil
	}
	alive := func(*http.Request) error { return nil }
	if err := errors.Join(mgr.AddHealthzCheck("process", alive), mgr.AddReadyzCheck("caches", ready)); err != nil {
		return nil, fmt.Errorf("health checks: %w", err)
	}
	return mgr, nil
}

// logger writes JSON lines. logr's V(1) and above are debug.
func logger(w io.Writer, level string) (logr.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return logr.Logger{}, fmt.Errorf("log level: %w", err)
	}
	return logr.FromSlogHandler(slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: least,
		ReplaceAttr: func(groups []string, attr slog.Attr) slog.Attr {
			// slog would name the levels between info and debug "DEBUG+3".
			if at, ok := attr.Value.Any().(slog.Level); ok && len(groups) == 0 && attr.Key == slog.LevelKey && at < slog.LevelInfo {
				return slog.String(slog.LevelKey, slog.LevelDebug.String())
			}
			return attr
		},
	})), nil
}

// announce registers the metric that tells which version runs.
func announce() error {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "holdfast_build_info", Help: "1, with the version of the operator and of Go.",
		ConstLabels: prometheus.Labels{"version": buildinfo.Version(version), "goversion": runtime.Version()},
	})
	info.Set(1)
	var already prometheus.AlreadyRegisteredError
	if err := metrics.Registry.Register(info); err != nil && !errors.As(err, &already) {
		return fmt.Errorf("metric holdfast_build_info: %w", err)
	}
	return nil
}
