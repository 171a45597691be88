package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// FieldManager is the one name under which the operator writes.
const FieldManager = "holdfast"

// Dependencies are what a Reconciler works with.
type Dependencies struct {
	// Client reads from a cache and writes to the API server. The cache has the index of Setup for the types that
	// the kind owns, keeps their managedFields, and hides none of them by a selector: a foreign object that has a
	// child's name must be seen.
	Client client.Client
	// Recorder takes events.
	Recorder events.EventRecorder
	// Clock tells the time. Nil: the real one.
	Clock clock.PassiveClock
	// Metrics counts writes and verdicts. Nil: not counted.
	Metrics *Metrics
}

// Reconciler brings the objects of one kind about. It is safe for concurrent use, one pass an object at a time, which
// is what controller-runtime does.
type Reconciler[T Object, O any] struct {
	kind     Kind[T, O]
	gvk      schema.GroupVersionKind
	deps     Dependencies
	children childReader
	writer   writer
	ledger   *ledger
	outdated workqueue.TypedRateLimiter[ctrl.Request]
}

// pass is one pass over one object.
type pass[T Object, O any] struct {
	req      ctrl.Request
	log      logr.Logger
	now      time.Time // one instant for the whole pass
	before   T         // as it was fetched, or as the API server has it after the finalizer was added; never changed
	obj      T         // what the status is computed on
	observed O         // set by gather
	plan     Plan[T]   // set by decide
	decided  bool      // set by decide
}

// phase is one step of a pass. An error ends the pass; Judge says what follows.
type phase[T Object, O any] func(ctx context.Context, p *pass[T, O]) error

// New makes the reconciler of a kind, without a controller around it; see Setup. The error says what the kind lacks.
func New[T Object, O any](kind Kind[T, O], deps Dependencies) (*Reconciler[T, O], error) {
	if kind.Name == "" || kind.New == nil || kind.Decide == nil {
		return nil, fmt.Errorf("kind %q: Name, New and Decide are required", kind.Name)
	}
	gvk, err := apiutil.GVKForObject(kind.New(), deps.Client.Scheme())
	if err != nil {
		return nil, fmt.Errorf("kind %s: %w", kind.Name, err)
	}
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	return &Reconciler[T, O]{
		kind: kind, gvk: gvk, deps: deps,
		children: childReader{reader: deps.Client, scheme: deps.Client.Scheme(), index: ControllerIndex(kind.Name)},
		writer:   writer{client: deps.Client},
		ledger:   newLedger(),
		outdated: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](50*time.Millisecond, 10*time.Second),
	}, nil
}

// Reconcile makes one pass over one object.
func (r *Reconciler[T, O]) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, err error) {
	p, err := r.fetch(ctx, req)
	if p == nil {
		return ctrl.Result{}, err
	}
	defer func() { result, err = r.report(ctx, p, err) }()

	phases := []phase[T, O]{r.fresh, r.protect, r.gather, r.decide, r.act, r.touch, r.apply}
	if p.obj.GetDeletionTimestamp() != nil {
		phases = []phase[T, O]{r.fresh, r.gather, r.finalize}
	}
	for _, step := range phases {
		if err := step(ctx, p); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// fetch reads the object from the cache. A nil pass says that there is nothing to do: the object is gone, or is going
// without anything of ours to clean up (its children are garbage collected).
func (r *Reconciler[T, O]) fetch(ctx context.Context, req ctrl.Request) (*pass[T, O], error) {
	obj := r.kind.New()
	switch err := r.deps.Client.Get(ctx, req.NamespacedName, obj); {
	case apierrors.IsNotFound(err):
		r.outdated.Forget(req)
		r.ledger.forget(req.NamespacedName)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get %s: %w", r.gvk.Kind, err)
	}
	if obj.GetDeletionTimestamp() != nil && !r.protects(obj) {
		return nil, nil
	}
	return &pass[T, O]{
		req: req, log: ctrl.LoggerFrom(ctx), now: r.deps.Clock.Now(),
		before: obj.DeepCopyObject().(T), obj: obj,
	}, nil
}

// fresh ends the pass when the cache has not caught up with our own last write to the object: what would be decided on
// it was decided before.
func (r *Reconciler[T, O]) fresh(_ context.Context, p *pass[T, O]) error {
	if r.ledger.behind(p.req.NamespacedName, keyOf(r.gvk, p.obj), p.obj, p.now) {
		return &errOutdated{cause: errors.New("the cache lags behind our last write to the object")}
	}
	return nil
}

func (r *Reconciler[T, O]) protects(obj T) bool {
	return r.kind.Finalizer != nil && controllerutil.ContainsFinalizer(obj, r.kind.Finalizer.Name)
}

// protect adds the finalizer before anything is made that it would have to clean up.
func (r *Reconciler[T, O]) protect(ctx context.Context, p *pass[T, O]) error {
	if r.kind.Finalizer == nil || r.kind.Finalizer.WithEffect || r.protects(p.obj) {
		return nil
	}
	controllerutil.AddFinalizer(p.obj, r.kind.Finalizer.Name)
	return r.patchMeta(ctx, p, "add the finalizer")
}

// patchMeta writes the finalizers. The lock on the resource version is needed: a merge patch replaces the whole list.
func (r *Reconciler[T, O]) patchMeta(ctx context.Context, p *pass[T, O], what string) error {
	patch := client.MergeFromWithOptions(p.before, client.MergeFromWithOptimisticLock{})
	if err := r.deps.Client.Patch(ctx, p.obj, patch, client.FieldOwner(FieldManager)); err != nil {
		p.obj = p.before.DeepCopyObject().(T)
		if apierrors.IsNotFound(err) {
			return &errOutdated{cause: err}
		}
		return classify(err, what)
	}
	r.wrote(p, keyOf(r.gvk, p.obj), "patch", p.obj.GetResourceVersion())
	p.before = p.obj.DeepCopyObject().(T)
	return nil
}

func (r *Reconciler[T, O]) gather(ctx context.Context, p *pass[T, O]) error {
	if r.kind.Gather == nil {
		return nil
	}
	observed, err := r.kind.Gather(ctx, r.deps.Client, p.obj)
	if err != nil {
		return fmt.Errorf("gather: %w", err)
	}
	p.observed = observed
	return nil
}

func (r *Reconciler[T, O]) decide(_ context.Context, p *pass[T, O]) error {
	p.plan, p.decided = r.kind.Decide(p.obj, p.observed, p.now), true
	return nil
}

// apply makes the children what the plan says, or says why that cannot be. What it returns for a plan that is wholly
// in effect is what the kind itself said about being ready.
func (r *Reconciler[T, O]) apply(ctx context.Context, p *pass[T, O]) error {
	scheme := r.deps.Client.Scheme()
	intents, err := intentsOf(p.obj, p.plan.Children, scheme)
	if err != nil {
		return err
	}
	found, err := r.children.read(ctx, p.obj, intents, p.plan.Prune)
	if err != nil {
		return err
	}
	if r.lagging(p, found) {
		return &errOutdated{cause: errors.New("the cache lags behind our last write to a child")}
	}
	if err := appeared(p.plan.Absent, found, scheme); err != nil {
		return err
	}
	changes, blocked := changesOf(p.obj, r.gvk.GroupKind(), intents, found, scheme)
	changes = slices.DeleteFunc(changes, func(c change) bool { return r.ledger.isVain(p.req.NamespacedName, c) })
	switch {
	case len(changes) == 0 && blocked != nil:
		return blocked
	case len(changes) == 0:
		return p.plan.Unready
	case r.kind.Paused != nil && r.kind.Paused(p.obj):
		return &errHeld{message: fmt.Sprintf("paused: would %s", changes[0])}
	}
	effective := false
	for _, c := range changes {
		had, err := r.change(ctx, p, c)
		if err != nil {
			return err
		}
		effective = effective || had
	}
	// The kind decided on the state before these changes. That it is waiting still holds; but a StatefulSet that was
	// ready for its old template, or stuck with it, says nothing about the new one, and whoever waits for the object
	// would take either for the end. The changes come back as events, and the next pass says whether all is well.
	var waiting *WaitError
	switch {
	case blocked != nil:
		return blocked
	case !effective, errors.As(p.plan.Unready, &waiting):
		return p.plan.Unready
	}
	return Wait(catchUp, v1alpha1.ReasonProgressing, "changes were applied, and their effect was not observed yet")
}

// appeared returns an error when a child that the decision took not to exist does.
func appeared(absent []client.Object, found children, scheme *runtime.Scheme) error {
	for _, child := range absent {
		gvk, err := apiutil.GVKForObject(child, scheme)
		if err != nil {
			return fmt.Errorf("absent child %s: %w", child.GetName(), err)
		}
		if found.live[keyOf(gvk, child)] != nil {
			return &errOutdated{cause: fmt.Errorf("%s %s has appeared since the decision", gvk.Kind, child.GetName())}
		}
	}
	return nil
}

// change makes one change, and tells whether it had an effect.
func (r *Reconciler[T, O]) change(ctx context.Context, p *pass[T, O], c change) (bool, error) {
	version, err := r.writer.write(ctx, c)
	if err != nil {
		return false, err
	}
	log := p.log.WithValues("verb", c.verb, "childKind", c.key.kind.Kind, "child", c.key.name.Name, "field", c.field)
	switch {
	case c.verb == verbDelete:
		r.deps.Metrics.wrote(r.kind.Name, string(c.verb), c.key.kind.Kind)
		r.ledger.deleted(p.req.NamespacedName, c.key, c.live.GetUID(), p.now)
	case c.verb == verbUpdate && version == c.live.GetResourceVersion():
		r.deps.Metrics.wrote(r.kind.Name, string(c.verb), c.key.kind.Kind)
		r.ledger.inVain(p.req.NamespacedName, c)
		log.Info("a write to a child had no effect: something at the API server rewrites the field")
		return false, nil
	default:
		r.wrote(p, c.key, string(c.verb), version)
	}
	log.Info("wrote a child")
	return true, nil
}

func (r *Reconciler[T, O]) wrote(p *pass[T, O], key objectKey, verb, version string) {
	r.deps.Metrics.wrote(r.kind.Name, verb, key.kind.Kind)
	r.ledger.wrote(p.req.NamespacedName, key, version, p.now)
}

// lagging tells whether the cache lags behind one of our writes to a child of a type that was read.
func (r *Reconciler[T, O]) lagging(p *pass[T, O], found children) bool {
	own := keyOf(r.gvk, p.obj)
	lagging := false
	for _, key := range r.ledger.pending(p.req.NamespacedName) {
		if key != own && found.read[key.kind] && r.ledger.behind(p.req.NamespacedName, key, found.live[key], p.now) {
			lagging = true
		}
	}
	return lagging
}

// finalize cleans up and lets the object go.
func (r *Reconciler[T, O]) finalize(ctx context.Context, p *pass[T, O]) error {
	if err := r.kind.Finalizer.Finalize(ctx, p.obj, p.observed); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	controllerutil.RemoveFinalizer(p.obj, r.kind.Finalizer.Name)
	if err := r.patchMeta(ctx, p, "remove the finalizer"); err != nil {
		return err
	}
	if len(p.obj.GetFinalizers()) == 0 {
		r.ledger.released(p.req.NamespacedName, keyOf(r.gvk, p.obj), p.obj.GetUID(), p.now)
	}
	return nil
}
