package conditions_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/conditions"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit/widget"
)

var noon = time.Date(2026, time.March, 1, 12, 0, 0, 123456789, time.UTC)

func object(generation, observed int64, list ...metav1.Condition) *widget.Widget {
	w := &widget.Widget{}
	w.Generation = generation
	w.Status.ObservedGeneration = observed
	w.Status.Conditions = list
	return w
}

// condition is a sound one, of generation 1.
func condition(conditionType string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(noon)}
}

func types(w *widget.Widget) string {
	var list []string
	for _, c := range w.Status.Conditions {
		list = append(list, c.Type+"="+string(c.Status))
	}
	return strings.Join(list, " ")
}

func TestMarksReplaceEachOther(t *testing.T) {
	marks := map[string]func(*widget.Widget){
		"ready":       func(w *widget.Widget) { conditions.MarkReady(w, "Fine", "all is well", noon) },
		"reconciling": func(w *widget.Widget) { conditions.MarkReconciling(w, "Moving", "two of three", noon) },
		"stalled":     func(w *widget.Widget) { conditions.MarkStalled(w, "Bad", "no such thing", noon) },
		"unknown":     func(w *widget.Widget) { conditions.MarkUnknown(w, "Paused", "held back", noon) },
	}
	want := map[string][]string{
		"ready":       {"Ready=True"},
		"reconciling": {"Ready=False", "Reconciling=True"},
		"stalled":     {"Ready=False", "Stalled=True"},
		"unknown":     {"Ready=Unknown"},
	}
	for first := range marks {
		for second, mark := range marks {
			w := object(1, 1)
			marks[first](w)
			mark(w)
			if err := conditions.Check(w); err != nil {
				t.Errorf("%s after %s: %v", second, first, err)
			}
			for _, part := range want[second] {
				if got := types(w); !strings.Contains(got, part) || len(strings.Fields(got)) != len(want[second]) {
					t.Errorf("%s after %s: %s, want %v", second, first, got, want[second])
				}
			}
		}
	}
}

func TestTransitionTimeIsThatOfTheStatus(t *testing.T) {
	w := object(1, 1)
	conditions.MarkReconciling(w, "Moving", "one of three", noon)
	conditions.MarkReconciling(w, "Slow", "two of three", noon.Add(time.Hour))
	if got := conditions.Get(w, v1alpha1.ConditionReady); !got.LastTransitionTime.Equal(&metav1.Time{Time: noon.Truncate(time.Second)}) || got.Reason != "Slow" {
		t.Errorf("another reason is no transition: %v", got)
	}
	conditions.MarkReady(w, "Fine", "", noon.Add(2*time.Hour))
	if got := conditions.Get(w, v1alpha1.ConditionReady); !got.LastTransitionTime.Equal(&metav1.Time{Time: noon.Add(2 * time.Hour).Truncate(time.Second)}) {
		t.Errorf("another status is a transition: %v", got)
	}
}

func TestSetLeavesEarlierCopiesAlone(t *testing.T) {
	w := object(2, 1, condition("Ready", metav1.ConditionTrue, "Fine"))
	before := w.GetConditions()
	conditions.MarkStalled(w, "Bad", "", noon)
	if before[0].Status != metav1.ConditionTrue || before[0].ObservedGeneration != 1 {
		t.Errorf("a list that was handed out before changed: %v", before)
	}
	if got := conditions.Get(w, "Stalled"); got.ObservedGeneration != 2 {
		t.Errorf("the condition does not speak of the object's generation: %v", got)
	}
}

func TestCheck(t *testing.T) {
	ready := condition("Ready", metav1.ConditionTrue, "Fine")
	notReady := condition("Ready", metav1.ConditionFalse, "Moving")
	reconciling := condition("Reconciling", metav1.ConditionTrue, "Moving")
	stalled := condition("Stalled", metav1.ConditionTrue, "Moving")
	with := func(c metav1.Condition, change func(*metav1.Condition)) metav1.Condition {
		change(&c)
		return c
	}
	cases := []struct {
		name   string
		object *widget.Widget
		want   string // empty: it passes
	}{
		{"never looked at", object(1, 0), ""},
		{"ready", object(1, 1, ready), ""},
		{"moving", object(1, 1, notReady, reconciling), ""},
		{"moving, and not seen through", object(2, 1, notReady, reconciling), ""},
		{"stalled", object(1, 1, notReady, stalled), ""},
		{"a condition of the kind", object(1, 1, ready, condition("Elected", metav1.ConditionFalse, "Nobody")), ""},

		{"observed without conditions", object(1, 1), "there are no conditions"},
		{"observed what is not there yet", object(1, 2, ready), "observedGeneration is 2, but the generation is 1"},
		{"no summary", object(1, 1, reconciling), "Ready is missing"},
		{"one twice", object(1, 1, ready, ready), "Ready is there twice"},
		{"both at once", object(1, 1, notReady, reconciling, stalled), "both there"},
		{"ready and moving", object(1, 1, ready, reconciling), "Ready is True, but Reconciling is there"},
		{"not ready without a cause", object(1, 1, notReady), "neither Reconciling nor Stalled says why"},
		{"another reason than the cause", object(1, 1, notReady, with(stalled, func(c *metav1.Condition) { c.Reason = "Bad" })), "has reason Moving, but Stalled has Bad"},
		{"false instead of gone", object(1, 1, ready, with(stalled, func(c *metav1.Condition) { c.Status = metav1.ConditionFalse })), "only there while it is True"},
		{"a sentence as reason", object(1, 1, with(ready, func(c *metav1.Condition) { c.Reason = "all is well" })), "CamelCase"},
		{"a status of its own", object(1, 1, with(ready, func(c *metav1.Condition) { c.Status = "Yes" })), `"Yes"`},
		{"no time", object(1, 1, with(ready, func(c *metav1.Condition) { c.LastTransitionTime = metav1.Time{} })), "lastTransitionTime is missing"},
		{"no generation", object(1, 1, with(ready, func(c *metav1.Condition) { c.ObservedGeneration = 0 })), "observedGeneration is 0"},
		{"ready for what was not seen", object(2, 1, with(ready, func(c *metav1.Condition) { c.ObservedGeneration = 2 })), "speaks of generation 2"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := conditions.Check(c.object)
			if c.want == "" && err != nil {
				t.Errorf("refused: %v", err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want something with %q", err, c.want)
			}
		})
	}
}
