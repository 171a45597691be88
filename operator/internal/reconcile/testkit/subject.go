// Package testkit holds every kind of the operator to what the reconciler promises, on a real API server.
//
// A kind describes itself by a Subject; Run then plays the scenarios of this package with it: crashes after every
// write, lost and repeated events, failing requests, caches that lag, objects of the same name that belong to somebody
// else or to an earlier life, edits by hand, pauses, deletion. In each of them the conditions are checked after every
// pass, writes are counted, and the end must be the state that an undisturbed run ends in.
//
// The API server is real, since the rules of server-side apply, of preconditions and of defaulting are its own. The
// cache is the kit's: it holds what the kit lets it see, so that a cache that lags is a fixed sequence and no race.
// Other controllers are simulated step by step, in a fixed or a seeded order. Nothing sleeps: the clock is moved.
package testkit

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

// Subject is what the kit has to know of a kind. Scheme, Object, Owns and one of Reconciler and Effects are required.
type Subject struct {
	// Scheme has the kind and every type that it reads or makes.
	Scheme *runtime.Scheme

	// Object returns the object as a user makes it, without a namespace. It must become Ready.
	Object func() reconcile.Object

	// Edits are changes that a user may make to the spec of a ready object, and take back. After each the object
	// must become Ready again. One of them should make a child superfluous, one should leave a field out.
	Edits []Edit

	// Pause sets the field of the spec that holds the controller back. Nil: the kind has none.
	Pause func(obj client.Object, paused bool)

	// Owns lists an empty object of each type of child, as the kind's Owns does.
	Owns []client.Object

	// Reads lists an empty object of each further type that the kind reads from the cache.
	Reads []client.Object

	// Reconciler builds the reconciler of the kind: reconcile.New(kind, dependencies).
	Reconciler func(dependencies reconcile.Dependencies) (ctrlreconcile.Reconciler, error)

	// Effects builds the reconciler of a kind that makes effects outside of the API server, in place of Reconciler.
	// The kind makes each change outside by through, which counts and disturbs it as it does a write.
	Effects func(dependencies reconcile.Dependencies, through Through) (ctrlreconcile.Reconciler, error)

	// Outside returns what a namespace's object has outside of the API server, as text by name. It is a part of the
	// state that must be the same by every path. Nil: nothing.
	Outside func(ctx context.Context, namespace string) (map[string]string, error)

	// Before makes what others have made in a namespace before the object is created. Nil: nothing.
	Before func(ctx context.Context, c client.Client, namespace string) error

	// Records is the number of statuses that the kind writes before its first write to anything else: what it is about
	// to do. Zero for a kind that has nothing to write down.
	Records int

	// Simulators stand for the other controllers that the kind depends on; see StatefulSets. Garbage collection is
	// always simulated.
	Simulators []Simulator

	// MaxWrites is the most writes that a new object may take to become Ready: its children, its finalizer, and a
	// status for each step that a user should see. Zero: not held to anything.
	MaxWrites int

	// Volatile names fields of the status that may differ between two runs that end in the same state: times.
	Volatile []string
}

// Edit is a change of the spec.
type Edit struct {
	// Name says what it does.
	Name string
	// Apply makes the change.
	Apply func(obj client.Object)
}

// Through makes one change outside of the API server by calling do, or fails it; what names the change.
type Through func(ctx context.Context, what string, do func() error) error

// Simulator makes one step of another controller in a namespace: one write or a few that belong together. It makes
// none when there is nothing to do; the kit sees by the writes whether it did.
type Simulator func(ctx context.Context, c client.Client, namespace string) error
