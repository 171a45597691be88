package releaseguard

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/argocd"
	"github.com/holdfast-io/holdfast/operator/internal/component"
	"github.com/holdfast-io/holdfast/operator/internal/promquery"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

// Name is the component's name, by which a configuration disables it.
const Name = "release-guard"

const (
	// queryTimeout bounds one query. A pass makes all of its queries at once, within its own time.
	queryTimeout = 5 * time.Second
	// lookInterval is the time between two looks for Argo CD.
	lookInterval = 5 * time.Second
)

// Options are what the component needs of the operator.
type Options struct {
	// Namespaces have ReleaseGuards and Applications: those of Argo CD. It is required.
	Namespaces []string
	// Settings of the kind.
	Settings Settings
	// Workloads tells whether the operator's cache has LeaseServices, so that the guard can look at them.
	Workloads bool
	// MaxConcurrent is the number of objects that are worked on at once. Zero: 1.
	MaxConcurrent int
	// Clock tells the time. Nil: the real one.
	Clock clock.PassiveClock
}

// Component makes the kind a part of the operator. It has a cache of its own, since its namespaces are Argo CD's and no
// tenant's, and starts when they can be read: an operator that is installed before Argo CD, or without the Role there,
// serves everything else meanwhile.
func Component(options Options) component.Component {
	return component.Component{
		Name: Name,
		AddToScheme: func(s *runtime.Scheme) error {
			if err := v1alpha1.AddToScheme(s); err != nil {
				return err
			}
			return argocd.AddToScheme(s)
		},
		Setup: func(_ context.Context, mgr ctrl.Manager) error {
			return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return whenReadable(ctx, mgr, options) }))
		},
	}
}

// whenReadable sets the controller up once Argo CD's Applications can be read.
func whenReadable(ctx context.Context, mgr ctrl.Manager, options Options) error {
	log, before := mgr.GetLogger().WithValues("component", Name), ""
	err := wait.PollUntilContextCancel(ctx, lookInterval, true, func(ctx context.Context) (bool, error) {
		err := readable(ctx, mgr.GetAPIReader(), options.Namespaces)
		if err != nil && err.Error() != before {
			before = err.Error()
			log.Info("the release guard waits until it can read Argo CD's Applications", "cause", before)
		}
		return err == nil, nil
	})
	if err != nil {
		return nil // the operator stops
	}
	log.Info("the release guard starts", "namespaces", options.Namespaces)
	return setup(ctx, mgr, options)
}

func readable(ctx context.Context, reader client.Reader, namespaces []string) error {
	for _, namespace := range namespaces {
		for _, list := range []client.ObjectList{&argocd.ApplicationList{}, &v1alpha1.ReleaseGuardList{}} {
			if err := reader.List(ctx, list, client.InNamespace(namespace), client.Limit(1)); err != nil {
				return fmt.Errorf("namespace %s: %w", namespace, err)
			}
		}
	}
	return nil
}

// local is the manager, with another cache.
type local struct {
	ctrl.Manager
	of cluster.Cluster
}

func (l local) GetCache() cache.Cache                { return l.of.GetCache() }
func (l local) GetClient() client.Client             { return l.of.GetClient() }
func (l local) GetFieldIndexer() client.FieldIndexer { return l.of.GetFieldIndexer() }

func setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	namespaces := map[string]cache.Config{}
	for _, name := range options.Namespaces {
		namespaces[name] = cache.Config{}
	}
	own, err := cluster.New(mgr.GetConfig(), func(o *cluster.Options) {
		o.Scheme, o.Logger = mgr.GetScheme(), mgr.GetLogger()
		o.Cache = cache.Options{
			DefaultNamespaces: namespaces, DefaultTransform: slim, ReaderFailOnMissingInformer: true,
		}
	})
	if err != nil {
		return fmt.Errorf("release guard: %w", err)
	}
	if err := mgr.Add(own); err != nil {
		return fmt.Errorf("release guard: %w", err)
	}
	parts := Parts{Query: promquery.New(queryTimeout).Query, Clock: options.Clock}
	if options.Workloads {
		parts.Workloads = mgr.GetClient()
	}
	reader := own.GetClient()
	return reconcile.Setup(ctx, local{Manager: mgr, of: own}, NewKind(parts, options.Settings), reconcile.Options{
		MaxConcurrent: options.MaxConcurrent, Clock: options.Clock,
		Watches: func(b *builder.Builder) *builder.Builder {
			all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []ctrlreconcile.Request {
				return guardsOf(ctx, reader, obj.GetNamespace())
			})
			// A guard wakes the others too: what an older one lets go, a younger one may take.
			return b.Watches(&argocd.Application{}, all).Watches(&v1alpha1.ReleaseGuard{}, all)
		},
	})
}

// guardsOf returns all guards of a namespace. There are few, and a pass that has nothing to do asks nobody.
func guardsOf(ctx context.Context, reader client.Reader, namespace string) []ctrlreconcile.Request {
	list := &v1alpha1.ReleaseGuardList{}
	if err := reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "could not list the ReleaseGuards to wake")
		return nil
	}
	out := make([]ctrlreconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, ctrlreconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: list.Items[i].Name}})
	}
	return out
}

// slim drops the metadata that nothing here looks at.
func slim(in any) (any, error) {
	obj, ok := in.(client.Object)
	if !ok {
		return in, nil
	}
	obj.SetManagedFields(nil)
	if _, application := in.(*argocd.Application); application {
		obj.SetAnnotations(nil)
	}
	return in, nil
}
