package testkit_test

import (
	"context"
	"encoding/json"
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit/widget"
)

// mutant is an operator with one protection taken out. The kit must notice in the named scenario.
type mutant struct {
	name     string
	scenario string
	says     string // part of what the kit says
	broken   func(reconcile.Dependencies) (ctrlreconcile.Reconciler, error)
}

// withClient breaks the way to the API server.
func withClient(wrap func(client.Client) client.Client) func(reconcile.Dependencies) (ctrlreconcile.Reconciler, error) {
	return func(d reconcile.Dependencies) (ctrlreconcile.Reconciler, error) {
		d.Client = wrap(d.Client)
		return reconcile.New(widget.KindWithFinalizer(func(*widget.Widget) error { return nil }), d)
	}
}

// withKind breaks the kind.
func withKind(change func(*reconcile.Kind[*widget.Widget, widget.Observation])) func(reconcile.Dependencies) (ctrlreconcile.Reconciler, error) {
	return func(d reconcile.Dependencies) (ctrlreconcile.Reconciler, error) {
		kind := widget.Kind()
		change(&kind)
		return reconcile.New(kind, d)
	}
}

// withPlan breaks the plans of the kind.
func withPlan(change func(plan *reconcile.Plan[*widget.Widget], w *widget.Widget, call int)) func(reconcile.Dependencies) (ctrlreconcile.Reconciler, error) {
	calls := 0
	return withKind(func(kind *reconcile.Kind[*widget.Widget, widget.Observation]) {
		kind.Decide = func(w *widget.Widget, observed widget.Observation, now time.Time) reconcile.Plan[*widget.Widget] {
			calls++
			plan := widget.Decide(w, observed, now)
			change(&plan, w, calls)
			return plan
		}
	})
}

func mutants() []mutant {
	return []mutant{
		{
			name: "deletes without preconditions", scenario: "replaced child", says: "deleted a StatefulSet w that somebody else had made",
			broken: withClient(func(c client.Client) client.Client { return bareDeletes{c} }),
		},
		{
			name: "takes over what it finds", scenario: "objects of somebody else", says: "though its cache had it",
			broken: withClient(func(c client.Client) client.Client { return blindToOwners{c, map[string]bool{}} }),
		},
		{
			name: "creates over what its cache does not have", scenario: "objects of somebody else", says: "before its cache had it",
			broken: withClient(func(c client.Client) client.Client { return bareApplies{c, "deletionGracePeriodSeconds"} }),
		},
		{
			name: "applies to whatever state there is", scenario: "two operators", says: "an operator that was stopped meanwhile changed",
			broken: withClient(func(c client.Client) client.Client { return bareApplies{c, "resourceVersion"} }),
		},
		{
			name: "removes finalizers of whatever object there is", scenario: "same name, new UID", says: "changed the new one",
			broken: withClient(func(c client.Client) client.Client { return barePatches{c} }),
		},
		{
			name: "never repairs a child", scenario: "edits by hand", says: "was changed by hand, and is 1x instead of 1",
			broken: withClient(func(c client.Client) client.Client { return createsOnly{c} }),
		},
		{
			name: "writes the status in each pass", scenario: "rests", says: "no rest after",
			broken: withPlan(func(plan *reconcile.Plan[*widget.Widget], _ *widget.Widget, call int) {
				plan.Message = fmt.Sprintf("looked at %d times", call)
			}),
		},
		{
			name: "makes a child under a new name in each pass", scenario: "converges", says: "no rest after",
			broken: withPlan(func(plan *reconcile.Plan[*widget.Widget], w *widget.Widget, call int) {
				plan.Children = append(plan.Children, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: fmt.Sprintf("extra-%d", call)}})
			}),
		},
		{
			name: "leaves superfluous children", scenario: "edits", says: "a child less, against an object that was made so",
			broken: withPlan(func(plan *reconcile.Plan[*widget.Widget], _ *widget.Widget, _ int) { plan.Prune = nil }),
		},
		{
			name: "reports a condition without a proper reason", scenario: "converges", says: "the conditions break the contract",
			broken: withPlan(func(plan *reconcile.Plan[*widget.Widget], _ *widget.Widget, _ int) {
				plan.Conditions = []metav1.Condition{{Type: "Good", Status: metav1.ConditionTrue, Reason: "all is well"}}
			}),
		},
		{
			name: "ignores the pause", scenario: "pause", says: "was changed while the object was paused",
			broken: withKind(func(kind *reconcile.Kind[*widget.Widget, widget.Observation]) { kind.Paused = nil }),
		},
		{
			name: "asks again for what it wrote a moment ago", scenario: "outdated cache", says: "it asks for",
			broken: func(d reconcile.Dependencies) (ctrlreconcile.Reconciler, error) { return forgetful{d}, nil },
		},
		{
			name: "tells of an object at rest", scenario: "rests", says: "events about an object at rest",
			broken: func(d reconcile.Dependencies) (ctrlreconcile.Reconciler, error) {
				sound, err := reconcile.New(widget.Kind(), d)
				return talkative{sound, d}, err
			},
		},
	}
}

func TestKitNoticesMutants(t *testing.T) {
	scenarios := map[string]testkit.Scenario{}
	for _, scenario := range testkit.Scenarios() {
		scenarios[scenario.Name] = scenario
	}
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			broken := subject(t)
			broken.Reconciler = m.broken
			said := failureOf(t, func(tb testing.TB) { scenarios[m.scenario].Run(tb, env, broken) })
			if !strings.Contains(said, m.says) {
				t.Fatalf("the scenario %q says %q, not %q", m.scenario, said, m.says)
			}
		})
	}
}

// failureOf returns what a failing test says, or an empty text when it passes.
func failureOf(t *testing.T, test func(testing.TB)) string {
	t.Helper()
	failed := &recordingTB{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(failed)
	}()
	<-done
	return failed.said
}

// recordingTB is a testing.TB whose failure is no failure of the test around it.
type recordingTB struct {
	testing.TB
	said string
}

func (r *recordingTB) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	goruntime.Goexit()
}

func (r *recordingTB) Logf(string, ...any) {}

type bareDeletes struct{ client.Client }

func (c bareDeletes) Delete(ctx context.Context, obj client.Object, _ ...client.DeleteOption) error {
	return c.Client.Delete(ctx, obj)
}

// bareApplies leaves a field out of the metadata of each apply.
type bareApplies struct {
	client.Client
	field string
}

func (c bareApplies) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	content := obj.(interface{ UnstructuredContent() map[string]any }).UnstructuredContent()
	delete(content["metadata"].(map[string]any), c.field)
	return c.Client.Apply(ctx, obj, opts...)
}

// blindToOwners takes objects that nobody controls for its own, once it has seen them.
type blindToOwners struct {
	client.Client
	seen map[string]bool
}

func (c blindToOwners) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := c.Client.Get(ctx, key, obj, opts...)
	if _, own := obj.(*widget.Widget); err == nil && !own && metav1.GetControllerOf(obj) == nil {
		c.seen[fmt.Sprintf("%T", obj)] = true
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return err
}

func (c blindToOwners) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if len(c.seen) > 0 {
		return bareApplies{c.Client, "deletionGracePeriodSeconds"}.Apply(ctx, obj, opts...)
	}
	return c.Client.Apply(ctx, obj, opts...)
}

// barePatches takes the resource version out of patches of the object itself.
type barePatches struct{ client.Client }

func (c barePatches) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		return err
	}
	delete(content["metadata"].(map[string]any), "resourceVersion")
	if data, err = json.Marshal(content); err != nil {
		return err
	}
	return c.Client.Patch(ctx, obj, client.RawPatch(patch.Type(), data), opts...)
}

// createsOnly drops every apply to an object that exists.
type createsOnly struct{ client.Client }

func (c createsOnly) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if obj.(client.Object).GetResourceVersion() != "" {
		return nil
	}
	return c.Client.Apply(ctx, obj, opts...)
}

// forgetful is a new process in each pass.
type forgetful struct{ dependencies reconcile.Dependencies }

func (f forgetful) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r, err := reconcile.New(widget.Kind(), f.dependencies)
	if err != nil {
		return ctrl.Result{}, err
	}
	return r.Reconcile(ctx, req)
}

type talkative struct {
	ctrlreconcile.Reconciler
	dependencies reconcile.Dependencies
}

func (t talkative) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	t.dependencies.Recorder.Eventf(nil, nil, corev1.EventTypeNormal, "Looked", "Look", "at %s", req.Name)
	return t.Reconciler.Reconcile(ctx, req)
}
