// Package shared makes one pool of ZooKeeper sessions a component of the operator, for all kinds that use ZooKeeper: two
// kinds on one ensemble under one credential share a session, its breaker and its watches.
package shared

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/holdfast-io/holdfast/operator/internal/component"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
)

// Name is the component's name, for others to depend on.
const Name = "zookeeper"

// Pool is a pool that exists once the component was set up.
type Pool struct {
	options zookeeper.Options
	own     *Own
	pool    *zookeeper.Pool
}

// New makes it. Log and Metrics of the options are filled in when they are nil: the manager's logger, and the process's
// registry. Own is the operator's own target, which is kept current; nil: it has none.
func New(options zookeeper.Options, own *Own) *Pool { return &Pool{options: options, own: own} }

// Own is the operator's own target, or nil.
func (p *Pool) Own() *Own { return p.own }

// Get returns the pool. It is for components that depend on this one, from their Setup on; before, it is nil.
func (p *Pool) Get() *zookeeper.Pool { return p.pool }

// Component makes it a part of the operator.
func (p *Pool) Component() component.Component {
	return component.Component{
		Name: Name,
		Setup: func(_ context.Context, mgr ctrl.Manager) error {
			if p.options.Log == nil {
				p.options.Log = slog.New(logr.ToSlogHandler(mgr.GetLogger().WithName(Name)))
			}
			if err := p.count(metrics.Registry); err != nil {
				return err
			}
			p.pool = zookeeper.New(p.options)
			if p.own == nil {
				return nil
			}
			p.own.look()
			return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
				p.own.watch(ctx, p.options.Log, ownInterval)
				return nil
			}))
		},
		Stop: func(ctx context.Context) error { return p.pool.Close(ctx) },
	}
}

// count registers the metrics, unless the options have some. A process that sets the component up a second time (tests
// do) has the first one's registered; the second then counts for nobody.
func (p *Pool) count(registry prometheus.Registerer) error {
	if p.options.Metrics != nil {
		return nil
	}
	counters, err := zookeeper.NewMetrics(registry)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		counters, err = zookeeper.NewMetrics(prometheus.NewRegistry())
	}
	if err != nil {
		return fmt.Errorf("metrics of ZooKeeper: %w", err)
	}
	p.options.Metrics = counters
	return nil
}
