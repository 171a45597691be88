// Package leaseservice is the controller of the kind LeaseService: it gathers the StatefulSet, the pods and what the
// pods say of themselves, and decides on the children and the status. Applying and reporting are the reconciler's.
package leaseservice

import (
	"cmp"
	"context"
	"errors"
	"slices"
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
	"github.com/holdfast-io/holdfast/operator/internal/certs/seed"
	"github.com/holdfast-io/holdfast/operator/internal/component"
	"github.com/holdfast-io/holdfast/operator/internal/controller/leaseservice/watch"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
	"github.com/holdfast-io/holdfast/operator/internal/etcdadmin"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/secrets"
)

// Name is the component's name, by which a configuration disables it.
const Name = "lease-service"

// Options are what the component needs of the operator. The zero value works: no default image, and pods of no other
// namespace may connect.
type Options struct {
	// Settings go into the children.
	Settings desired.Settings
	// Seed is the Secret from which certificates are issued, when the settings say that they are. It is made if there
	// is none.
	Seed types.NamespacedName
	// CertificateLifetime is how long a certificate is good for; it is renewed after two thirds. Zero: 90 days.
	CertificateLifetime time.Duration
	// EtcdAdmin is the Secret by which the operator keeps users of etcd, which needs the seed. No name: it keeps none.
	EtcdAdmin types.NamespacedName
	// CollectEvery is how often users of LeaseServices that are gone are looked for. Zero: a minute.
	CollectEvery time.Duration
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
	var keeper *etcdadmin.Keeper // set by Setup
	return component.Component{
		Name:        Name,
		DependsOn:   []string{secrets.Name},
		AddToScheme: v1alpha1.AddToScheme,
		Cache:       map[client.Object]cache.ByObject{&corev1.Pod{}: podCache()},
		Setup: func(ctx context.Context, mgr ctrl.Manager) error {
			issuer, err := options.issuer(ctx, mgr)
			if err != nil {
				return err
			}
			gatherer := newGatherer(collector, options.Settings, issuer, options.Clock)
			if keeper, err = newKeeper(ctx, mgr.GetAPIReader(), options.EtcdAdmin, issuer); err != nil {
				return err
			}
			gatherer.keeper = keeper
			if keeper != nil {
				every := cmp.Or(options.CollectEvery, defaultCollectEvery)
				if err := mgr.Add(collect(keeper, mgr.GetAPIReader(), gatherer.confirm, every)); err != nil {
					return err
				}
			}
			return reconcile.Setup(ctx, mgr, kind(gatherer, options.Settings), reconcile.Options{
				MaxConcurrent: options.MaxConcurrent,
				Clock:         options.Clock,
				Watches: func(b *builder.Builder) *builder.Builder {
					return b.
						Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ownerOfPod)).
						Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(usersOfSecret(mgr.GetClient()))).
						Watches(&v1alpha1.LeaseService{}, forgetDeleted(gatherer)).
						WatchesRawSource(collector.Source())
				},
			})
		},
		Stop: func(ctx context.Context) error {
			err := collector.Close(ctx)
			if keeper != nil {
				err = errors.Join(err, keeper.Close(ctx))
			}
			return err
		},
	}
}

// NewKind is the kind as the reconciler sees it, for whoever drives the reconciler without a manager.
func NewKind(listener Listener, settings desired.Settings, issuer Issuer, clock clock.PassiveClock) reconcile.Kind[*v1alpha1.LeaseService, Observation] {
	return kind(newGatherer(listener, settings, issuer, clock), settings)
}

// defaultLifetime is that of certificates when the options name none.
const defaultLifetime = 90 * 24 * time.Hour

// issuer reads what certificates are issued from. The manager's cache has not been started, and does not have that Secret.
func (o Options) issuer(ctx context.Context, mgr ctrl.Manager) (Issuer, error) {
	if !o.Settings.IssueCertificates {
		return Issuer{}, nil
	}
	seeds, err := seed.Load(ctx, mgr.GetAPIReader(), mgr.GetClient(), o.Seed)
	if err != nil {
		return Issuer{}, err
	}
	lifetime := cmp.Or(o.CertificateLifetime, defaultLifetime)
	return Issuer{Seeds: seeds.All, Installation: seeds.Installation, Lifetime: lifetime}, nil
}

// usersOfSecret maps a Secret to the LeaseServices whose spec refers to it. Those that it belongs to are told anyway.
func usersOfSecret(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, secret client.Object) []ctrlreconcile.Request {
		list := &v1alpha1.LeaseServiceList{}
		if err := reader.List(ctx, list, client.InNamespace(secret.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "the users of a Secret cannot be listed", "secret", secret.GetName())
			return nil
		}
		var requests []ctrlreconcile.Request
		for i := range list.Items {
			uses := func(r desired.Reference) bool { return r.Name == secret.GetName() }
			if slices.ContainsFunc(desired.References(&list.Items[i]), uses) {
				requests = append(requests, ctrlreconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
		return requests
	}
}

// kind has no finalizer. All that a LeaseService makes is in the API server with a controller reference to it, so
// garbage collection takes it away; the operator's connections end with the pods; and its user of etcd and its keys, where
// the operator keeps them, are taken away by collect, which finds out by itself. A finalizer would only add a way for a
// deletion to hang: etcd may be away, and the operator may not watch the namespace any more.
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
