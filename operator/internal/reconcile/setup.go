package reconcile

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// passTimeout bounds one pass when the options don't.
const passTimeout = 30 * time.Second

// The time between retries of a pass that failed doubles from firstRetry to lastRetry. controller-runtime's default ends at
// a quarter of an hour, which is long after most outages.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Minute
)

// Options tune the controller of a kind. The zero value is good.
type Options struct {
	// MaxConcurrent is the number of objects that are worked on at once. Zero: 1.
	MaxConcurrent int
	// Timeout bounds one pass. Zero: 30 s.
	Timeout time.Duration
	// Clock tells the time. Nil: the real one.
	Clock clock.PassiveClock
	// Watches adds sources of passes beside the object and its children. Nil adds none.
	Watches func(*builder.Builder) *builder.Builder
}

// ControllerIndex is the name of the cache index by which the reconciler of a kind finds an owner's children; the
// value is the UID of the controller. An index a kind, since a cache refuses to index one type twice by one name.
func ControllerIndex(kind string) string { return ".controller." + kind }

// IndexController is the function of that index.
func IndexController(obj client.Object) []string {
	if controller := metav1.GetControllerOfNoCopy(obj); controller != nil {
		return []string{string(controller.UID)}
	}
	return nil
}

// Setup adds the controller of a kind to a manager: it watches the objects of the kind and the types it owns, and
// indexes the latter by their controller.
func Setup[T Object, O any](ctx context.Context, mgr ctrl.Manager, kind Kind[T, O], options Options) error {
	counters, err := NewMetrics(metrics.Registry)
	if err != nil {
		return err
	}
	r, err := New(kind, Dependencies{
		Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(kind.Name), Clock: options.Clock, Metrics: counters,
	})
	if err != nil {
		return err
	}
	if options.Timeout == 0 {
		options.Timeout = passTimeout
	}
	b := ctrl.NewControllerManagedBy(mgr).Named(kind.Name).For(kind.New()).WithOptions(controller.Options{
		MaxConcurrentReconciles: options.MaxConcurrent, ReconciliationTimeout: options.Timeout,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, lastRetry),
	})
	for _, child := range kind.Owns {
		if err := mgr.GetFieldIndexer().IndexField(ctx, child, ControllerIndex(kind.Name), IndexController); err != nil {
			return fmt.Errorf("index %T by its controller: %w", child, err)
		}
		b = b.Owns(child)
	}
	if options.Watches != nil {
		b = options.Watches(b)
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("controller of kind %s: %w", kind.Name, err)
	}
	return nil
}
