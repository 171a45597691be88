package reconcile

import (
	"context"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
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

// Setup adds the controller of a kind to a manager: it watches the objects of the kind and the types it owns, and
// indexes the latter by their controller.
func Setup[T Object, O any](ctx context.Context, mgr ctrl.Manager, kind Kind[T, O], options Options) error {
	return nil
}
