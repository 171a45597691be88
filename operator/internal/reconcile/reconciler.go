package reconcile

import (
	"context"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldManager is the one name under which the operator writes.
const FieldManager = "holdfast"

// Dependencies are what a Reconciler works with.
type Dependencies struct {
	// Client reads from a cache and writes to the API server.
	Client client.Client
	// Recorder takes events.
	Recorder events.EventRecorder
	// Clock tells the time. Nil: the real one.
	Clock clock.PassiveClock
	// Metrics counts writes and verdicts. Nil: not counted.
	Metrics *Metrics
}

// Reconciler brings the objects of one kind about.
type Reconciler[T Object, O any] struct {
	kind Kind[T, O]
	deps Dependencies
}

// New makes the reconciler of a kind, without a controller around it; see Setup. It panics when the kind lacks a
// Name, New or Decide: that is a fault of the program.
func New[T Object, O any](kind Kind[T, O], deps Dependencies) *Reconciler[T, O] {
	return &Reconciler[T, O]{kind: kind, deps: deps}
}

// Reconcile makes one pass over one object.
func (r *Reconciler[T, O]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, nil
}
