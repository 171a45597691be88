// Package releaseguard is the controller of the kind ReleaseGuard: it reads the Applications of the object's namespace and
// asks the queries of its checks, decides by package plan/release, and sets target revisions.
//
// Of an Application it writes three things, all by package reconcile: spec.source.targetRevision, which is the operator's
// from then on; the phase of a running sync, to end one of a revision that is not wanted; and a request to sync, for a
// revision that Argo CD has given up and that is to be tried again.
package releaseguard

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/plan/release"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

// Query returns the values that a query gives at a Prometheus. The text of its errors is equal for equal failures.
type Query func(ctx context.Context, url, query string) ([]float64, error)

// Settings are what the operator's configuration says about ReleaseGuards.
type Settings struct {
	// Prometheus lists the URLs that may be asked. The first is that of a guard which names none. Empty: a guard with
	// checks is Stalled, since the operator asks nobody whom its administrator did not name.
	Prometheus []string
}

// Parts are what the controller works with. Query is required.
type Parts struct {
	// Query asks Prometheus.
	Query Query
	// Workloads reads LeaseServices from a cache. Nil: Argo CD is taken at its word.
	Workloads client.Reader
	// Clock tells the time. Nil: the real one.
	Clock clock.PassiveClock
}

type controller struct {
	Parts
	settings Settings
	samples  *samples
}

// NewKind is the kind as the reconciler sees it.
func NewKind(parts Parts, settings Settings) reconcile.Kind[*v1alpha1.ReleaseGuard, Observation] {
	if parts.Clock == nil {
		parts.Clock = clock.RealClock{}
	}
	c := &controller{Parts: parts, settings: settings, samples: newSamples(parts.Query, parts.Clock)}
	return reconcile.Kind[*v1alpha1.ReleaseGuard, Observation]{
		Name:   "releaseguard",
		New:    func() *v1alpha1.ReleaseGuard { return &v1alpha1.ReleaseGuard{} },
		Gather: c.gather,
		Decide: c.decide,
		Paused: func(guard *v1alpha1.ReleaseGuard) bool { return guard.Spec.Paused },
	}
}

type plan = reconcile.Plan[*v1alpha1.ReleaseGuard]

// decide plans one pass. The touches follow from the status that is written already, and the new status is written at the
// end of the pass: see package plan/release.
func (c *controller) decide(guard *v1alpha1.ReleaseGuard, o Observation, now time.Time) plan {
	if o.problem != nil {
		return plan{Unready: o.problem}
	}
	outcome := release.Decide(&guard.Spec, &guard.Status, o.observed, now)
	out := plan{
		Message: outcome.Message, RequeueAfter: outcome.Look,
		Touches: touches(guard, o, outcome),
		Status: func(guard *v1alpha1.ReleaseGuard) {
			status := outcome.Status
			status.Conditions, status.ObservedGeneration = guard.Status.Conditions, guard.Status.ObservedGeneration
			guard.Status = status
		},
	}
	switch outcome.Verdict {
	case release.Done:
	case release.Waiting:
		out.Unready = reconcile.Wait(0, outcome.Reason, "%s", outcome.Message)
	case release.Blocked:
		out.Unready = reconcile.Stalled(outcome.Reason, "%s", outcome.Message)
	case release.Held:
		out.Unready = reconcile.HeldBack("%s", outcome.Message)
	}
	for _, decision := range outcome.Decisions {
		out.Events = append(out.Events, eventOf(decision))
	}
	return out
}

func eventOf(decision v1alpha1.ReleaseDecision) reconcile.Event {
	event := reconcile.Event{Type: corev1.EventTypeNormal, Reason: decision.Decision, Message: decision.Message}
	if decision.Ring != "" {
		event.Message = fmt.Sprintf("ring %s: %s", decision.Ring, decision.Message)
	}
	if slices.Contains([]string{v1alpha1.ReasonRolledBack, v1alpha1.ReasonPutBack}, decision.Decision) {
		event.Type = corev1.EventTypeWarning
	}
	return event
}

func touches(guard *v1alpha1.ReleaseGuard, o Observation, outcome release.Outcome) []reconcile.Touch {
	var out []reconcile.Touch
	for _, move := range outcome.Moves {
		out = append(out, reconcile.Touch{
			Object: o.applications[move.Application],
			What:   fmt.Sprintf("set the target revision of Application %s to %s", move.Application, move.To),
			Apply:  map[string]any{"spec": map[string]any{"source": map[string]any{"targetRevision": move.To}}},
		})
	}
	for _, name := range outcome.Terminate {
		out = append(out, reconcile.Touch{
			Object: o.applications[name],
			What:   "end the running sync of Application " + name + ", which is of another revision",
			Patch: map[string]any{"status": map[string]any{"operationState": map[string]any{
				"phase": "Terminating", "message": "ended by ReleaseGuard " + guard.Name,
			}}},
		})
	}
	for _, name := range outcome.Sync {
		out = append(out, reconcile.Touch{
			Object: o.applications[name],
			What:   "sync Application " + name,
			Patch:  map[string]any{"operation": operation(o.observed, name)},
		})
	}
	return out
}

// operation is a sync as Argo CD itself would ask for it, but for retries.
func operation(observed release.Observation, name string) map[string]any {
	sync := map[string]any{}
	at := slices.IndexFunc(observed.Applications, func(app release.Application) bool { return app.Name == name })
	if app := &observed.Applications[at]; app.Prune {
		sync["prune"] = true
	}
	if options := observed.Applications[at].SyncOptions; len(options) > 0 {
		sync["syncOptions"] = options
	}
	return map[string]any{"initiatedBy": map[string]any{"username": reconcile.FieldManager}, "sync": sync}
}

// Observation is what one pass knows beside the object.
type Observation struct {
	// problem says why nothing can be decided.
	problem error
	// applications are those of the namespace, by name.
	applications map[string]client.Object
	observed     release.Observation
}
