package zookeeperconfig

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/component"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/secrets"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/shared"
)

// Name is the component's name, by which a configuration disables it.
const Name = "zookeeper-config"

// Options are what the component needs of the operator. Pool is required.
type Options struct {
	// Pool has the sessions.
	Pool *shared.Pool
	// Settings of the kind.
	Settings Settings
	// MaxConcurrent is the number of objects that are worked on at once. Zero: 1.
	MaxConcurrent int
	// Clock tells the time. Nil: the real one.
	Clock clock.PassiveClock
}

// Component makes the kind a part of the operator.
func Component(options Options) component.Component {
	return component.Component{
		Name:        Name,
		DependsOn:   []string{shared.Name, secrets.Name},
		AddToScheme: v1alpha1.AddToScheme,
		Cache: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Transform: slim},
		},
		Setup: func(ctx context.Context, mgr ctrl.Manager) error {
			return setup(ctx, mgr, options, PoolSessions(options.Pool.Get()))
		},
	}
}

func setup(ctx context.Context, mgr ctrl.Manager, options Options, sessions Sessions) error {
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	wake := &waker{}
	reader := mgr.GetClient()
	if own := options.Pool.Own(); own != nil && options.Settings.Default == nil {
		options.Settings.Default = func(string) (zookeeper.Target, error) { return own.Target() }
		own.OnChange(func() { go wake.all(ctx, reader) })
	}
	c := newController(Parts{
		Sessions: sessions, Wake: wake.wake, Candidates: candidates,
		Recorder: mgr.GetEventRecorder("zookeeperconfig"), Clock: options.Clock,
	}, options.Settings)
	return reconcile.Setup(ctx, mgr, c.kind(), reconcile.Options{
		MaxConcurrent: options.MaxConcurrent, Clock: options.Clock,
		Watches: func(b *builder.Builder) *builder.Builder {
			return b.
				Watches(&corev1.Secret{}, wakeUsers(reader, indexSecrets)).
				Watches(&corev1.ConfigMap{}, wakeUsers(reader, indexConfigMaps)).
				Watches(&v1alpha1.ZooKeeperConfig{}, wakeRivals(reader, c.memory)).
				WatchesRawSource(wake.source())
		},
	})
}

// slim drops the metadata that nothing here looks at.
func slim(in any) (any, error) {
	if obj, ok := in.(client.Object); ok {
		obj.SetManagedFields(nil)
		obj.SetAnnotations(nil)
		obj.SetLabels(nil)
	}
	return in, nil
}

// waker puts objects into the controller's queue, once that runs. Before, there is no need: every object is in it then.
type waker struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]
}

func (w *waker) source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.queue = queue
		return nil
	})
}

// all wakes every object: which of them use what has changed is found out by their passes, which make no request when
// nothing is to be done.
func (w *waker) all(ctx context.Context, reader client.Reader) {
	list := &v1alpha1.ZooKeeperConfigList{}
	if err := reader.List(ctx, list); err != nil {
		ctrl.Log.Error(err, "the ZooKeeperConfigs cannot be listed to tell them of another credential or TLS")
		return
	}
	for i := range list.Items {
		w.wake(list.Items[i].Namespace, list.Items[i].Name)
	}
}

func (w *waker) wake(namespace, name string) {
	w.mu.Lock()
	queue := w.queue
	w.mu.Unlock()
	if queue != nil {
		queue.Add(ctrlreconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	}
}
