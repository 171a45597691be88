package reconcile

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/operator/internal/reconcile/conditions"
)

// Object is what a kind of this operator looks like to the reconciler: an API object with conditions and an
// observed generation in its status, which is a subresource.
type Object interface {
	client.Object
	conditions.Object
}

// Kind is all that one kind of the platform has to say: what it looks at, and what it wants. T is the API type (a
// pointer), O the typed observation.
type Kind[T Object, O any] struct {
	// Name is the name of the controller: in logs, metrics and events. Lower case: "leaseservice".
	Name string

	// New returns an empty object.
	New func() T

	// Owns lists an empty object of each type that Decide may return as a child. They are watched: a child that
	// is edited or deleted starts a pass.
	Owns []client.Object

	// Gather reads what Decide needs beside the object: pods, Secrets, reports of running processes. It reads by
	// the reader alone (the cache), or from memory that somebody else keeps current, and writes nothing. What can
	// not be had is part of the observation when Decide can go on without it, else an error.
	// Nil gathers the zero O.
	Gather func(ctx context.Context, reader client.Reader, obj T) (O, error)

	// Decide is pure: of equal arguments it makes equal plans, and it changes none of them. It decides from
	// what was observed, never from obj's own conditions.
	Decide func(obj T, observed O, now time.Time) Plan[T]

	// Paused tells whether the owner of obj wants nothing changed. Such an object is still gathered and decided
	// on, and its status says what would be changed. Deletion goes on. Nil: never paused.
	Paused func(obj T) bool

	// Finalizer cleans up outside of the API server before an object goes. Nil: children are garbage
	// collected, and nothing else is to be done.
	Finalizer *Finalizer[T, O]
}

// Finalizer cleans up what garbage collection cannot.
type Finalizer[T Object, O any] struct {
	// Name is the finalizer in the metadata: "dist.system/<what>".
	Name string

	// WithEffect adds the finalizer together with the first Effect's claim, and not before: an object that never
	// had an effect goes without ceremony. False: it is added in the first pass, before anything is gathered.
	WithEffect bool

	// Finalize cleans up. It is called until it returns nil, each time with a new observation, and must be
	// idempotent. *WaitError says that the cleaning goes on. After nil the finalizer is removed from exactly the
	// object (by UID and resource version) that was passed.
	Finalize func(ctx context.Context, obj T, observed O) error
}

// Plan is what a kind wants for one object. The zero Plan applies nothing, deletes nothing, and reports Ready.
type Plan[T Object] struct {
	// Children are the objects that should exist, complete, in the order in which to apply them. They are in the
	// namespace of the object; the controller reference is added by the reconciler. A field that is left out is
	// none of ours; a field that was applied before and is left out now is removed.
	Children []client.Object

	// Absent are those of the children that the decision took not to exist. When the cache shows one by the time that they
	// are applied, the pass is made again: what is there is not changed by who has not seen it. Nil: the decision is the
	// same either way.
	Absent []client.Object

	// Prune lists an empty object of each type of which every other object that this one controls is deleted.
	// A plan for a spec that cannot work leaves it empty, so that what runs goes on running.
	Prune []client.Object

	// Effect is the next change that is to be made outside of the API server, before the children are applied. The
	// pass gathers and decides again after it, so a kind with several makes them one by one. Nil: none.
	Effect *Effect

	// Touches are the next changes to objects that somebody else made, made after the effect and before the children
	// are applied. Nil: none.
	Touches []Touch

	// Status writes the kind's own fields of the status. Ready, Reconciling, Stalled and observedGeneration are
	// the reconciler's. Nil changes nothing.
	Status func(obj T)

	// Progress tells that, while the object is Reconciling, the status differs from the one before in nothing that somebody has
	// to learn at once. Such a status is written three seconds after the last one, and the first one three seconds after the object was
	// first seen, so that a rollout that takes a moment is one write and not one for each of its steps. The CRD of a kind that
	// uses it defaults the observed generation to -1: an object without a status must not pass for one that is done. False: every
	// status is written at once.
	Progress bool

	// Conditions are further conditions of the kind, complete but for generation and time. One that was there
	// before and is not listed is removed: a missing condition means Unknown.
	Conditions []metav1.Condition

	// Unready is what keeps the object from being Ready once the children are applied: nil, *WaitError (the
	// world is still moving), *StalledError (somebody must change something) or *UnknownError (what it depends on
	// cannot be asked).
	Unready error

	// Message says, for a Ready object, what is ready: "3 of 3 pods serve".
	Message string

	// RequeueAfter asks for another pass after that time, whatever happens. Zero: only when something changes.
	RequeueAfter time.Duration

	// Events are decisions that a person would ask about. They are emitted only after the status was written, so
	// Decide derives them from a difference between the status that is there and the one it wants: each is then
	// told once.
	Events []Event
}

// Event tells a person of one decision.
type Event struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type string
	// Reason is a constant in CamelCase: "LeaderChanged".
	Reason string
	// Message is a sentence.
	Message string
}
