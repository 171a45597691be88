package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// maxEffects bounds the effects of one pass. A kind that never has enough is at fault, or races with somebody who
// undoes all it does: it goes on in the next pass, which other objects' passes come before.
const maxEffects = 4

// Effect is a change outside of the API server, which no write to it can be atomic with.
type Effect struct {
	// What says it in words, without times and random names: "create the znode /a/b". It follows "would".
	What string

	// Claim are annotations that the object carries, together with the finalizer, before Run is called. They are
	// what a later pass, of this or another operator, knows of a Run whose end it did not see: without them a
	// crash between the effect and the status leaves something that nobody knows to be its own. Annotations that
	// the object has already cost no write.
	Claim map[string]string

	// Run makes the change. It must be safe to make again, since its end may be lost. Afterwards the pass gathers
	// and decides anew, so it reports what came of it and not what was meant to.
	Run func(ctx context.Context) error
}

// UnknownError says that it cannot be told whether the object is in effect, since what it depends on cannot be
// asked: Ready is Unknown. It is told apart by errors.As.
type UnknownError struct {
	// Reason of the conditions, in CamelCase.
	Reason string
	// Message of the conditions; see WaitError.
	Message string
	// After is the time to the next pass. Zero: an event will start it.
	After time.Duration
}

// Error returns the message.
func (e *UnknownError) Error() string { return e.Message }

// Unknown makes an UnknownError.
func Unknown(after time.Duration, reason, format string, args ...any) error {
	return &UnknownError{Reason: reason, Message: fmt.Sprintf(format, args...), After: after}
}

// act makes the plan's effect, and decides anew on what came of it, until a plan has none.
func (r *Reconciler[T, O]) act(ctx context.Context, p *pass[T, O]) error {
	for range maxEffects {
		effect := p.plan.Effect
		switch {
		case effect == nil:
			return nil
		case r.kind.Paused != nil && r.kind.Paused(p.obj):
			return &errHeld{message: "paused: would " + effect.What}
		}
		if err := r.claim(ctx, p, effect); err != nil {
			return err
		}
		err := effect.Run(ctx)
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", effect.What, err)
		}
		p.log.Info("made an effect", "effect", effect.What)
		for _, step := range []phase[T, O]{r.gather, r.decide} {
			if err := step(ctx, p); err != nil {
				return err
			}
		}
	}
	return Wait(time.Second, v1alpha1.ReasonProgressing, "changes were made, and there are more to make")
}

// claim writes the finalizer and the effect's annotations, in one request, where they are missing.
func (r *Reconciler[T, O]) claim(ctx context.Context, p *pass[T, O], effect *Effect) error {
	annotations := p.obj.GetAnnotations()
	missing := false
	for name, value := range effect.Claim {
		missing = missing || annotations[name] != value
	}
	protected := r.kind.Finalizer == nil || r.protects(p.obj)
	if protected && !missing {
		return nil
	}
	if !protected {
		controllerutil.AddFinalizer(p.obj, r.kind.Finalizer.Name)
	}
	merged := maps.Clone(annotations)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, effect.Claim)
	p.obj.SetAnnotations(merged)
	return r.patchMeta(ctx, p, "record what is about to be done: "+effect.What)
}
