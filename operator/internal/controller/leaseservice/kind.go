// Package leaseservice is the controller of the kind LeaseService: it gathers the StatefulSet, the pods and what the
// pods say of themselves, and decides on the children and the status. Applying and reporting are the reconciler's.
package leaseservice

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/component"
	"github.com/holdfast-io/holdfast/operator/internal/controller/leaseservice/watch"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

// Name is the component's name, by which a configuration disables it.
const Name = "lease-service"

// Options are what the component needs of the operator. The zero value works: no default image, and pods of no other
// namespace may connect.
type Options struct {
	// Settings go into the children.
	Settings desired.Settings
	// MaxConcurrent is the number of objects that are worked on at once. Zero: 1.
	MaxConcurrent int
	// Watch tunes how the pods are listened to. Its log is the operator's.
	Watch watch.Options
	// Clock tells the time. Nil: the real one.
	Clock clock.PassiveClock
}

// Component makes the kind a part of the operator.
func Component(options Options) component.Component {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	options.Watch.Log = ctrl.Log.WithName("lease-status")
	collector := watch.New(options.Watch)
	return component.Component{
		Name:        Name,
		AddToScheme: v1alpha1.AddToScheme,
		Cache:       map[client.Object]cache.ByObject{&corev1.Pod{}: podCache()},
		Setup: func(ctx context.Context, mgr ctrl.Manager) error {
			gatherer := newGatherer(collector, options.Clock)
			return reconcile.Setup(ctx, mgr, kind(gatherer, options.Settings), reconcile.Options{
				MaxConcurrent: options.MaxConcurrent,
				Clock:         options.Clock,
				Watches: func(b *builder.Builder) *builder.Builder {
					return b.
						Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ownerOfPod)).
						Watches(&v1alpha1.LeaseService{}, forgetDeleted(gatherer)).
						WatchesRawSource(collector.Source())
				},
			})
		},
		Stop: collector.Close,
	}
}

// NewKind is the kind as the reconciler sees it, for whoever drives the reconciler without a manager.
func NewKind(listener Listener, settings desired.Settings, clock clock.PassiveClock) reconcile.Kind[*v1alpha1.LeaseService, Observation] {
	return kind(newGatherer(listener, clock), settings)
}

// kind has no finalizer. All that a LeaseService makes is in the API server with a controller reference to it, so
// garbage collection takes it away; the operator's connections end with the pods; and the keys in etcd are not the
// operator's to delete, which has no access to any etcd. A finalizer would only add a way for a deletion to hang.
func kind(g *gatherer, settings desired.Settings) reconcile.Kind[*v1alpha1.LeaseService, Observation] {
	return reconcile.Kind[*v1alpha1.LeaseService, Observation]{
		Name:   "leaseservice",
		New:    func() *v1alpha1.LeaseService { return &v1alpha1.LeaseService{} },
		Owns:   owned(),
		Gather: g.gather,
		Decide: func(ls *v1alpha1.LeaseService, observed Observation, now time.Time) reconcile.Plan[*v1alpha1.LeaseService] {
			return decide(ls, observed, settings, now)
		},
		Paused: func(ls *v1alpha1.LeaseService) bool { return ls.Spec.Paused },
	}
}

// podCache keeps the operator's own pods in memory and no others, without what it never looks at.
func podCache() cache.ByObject {
	return cache.ByObject{
		Label:     labels.SelectorFromSet(desired.ManagedLabels()),
		Transform: slimPod,
	}
}

// slimPod drops the parts of a pod that no decision uses: they are most of its size.
func slimPod(in any) (any, error) {
	pod, ok := in.(*corev1.Pod)
	if !ok {
		return in, nil
	}
	pod.ManagedFields = nil
	pod.Annotations = nil
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
	return pod, nil
}

func ownerOfPod(_ context.Context, pod client.Object) []ctrlreconcile.Request {
	name, ok := desired.PodOwner(pod.GetLabels())
	if !ok {
		return nil
	}
	return []ctrlreconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}}}
}

// forgetDeleted closes the connections to the pods of an object that is gone: no pass is made over one, and its pods
// stay for as long as they take to stop.
func forgetDeleted(g *gatherer) handler.EventHandler {
	return handler.Funcs{
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]) {
			g.forget(e.Object)
		},
	}
}
