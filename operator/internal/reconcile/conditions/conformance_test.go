package conditions_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/holdfast-io/holdfast/crds"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/conditions"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit/widget"
)

// verdict is what somebody who waits for an object makes of it.
type verdict string

const (
	done    verdict = "done"
	working verdict = "working"
	failed  verdict = "failed"
)

// TestEverybodyReachesTheSameVerdict walks an object through changes of its spec and passes of its controller, and asks after
// each: Argo CD's script, kstatus (Flux, kubectl), and the wait for condition=Ready (kubectl wait, Pulumi).
func TestEverybodyReachesTheSameVerdict(t *testing.T) {
	argo := newArgo(t)
	passes := map[verdict][]func(*widget.Widget){
		done:   {func(w *widget.Widget) { conditions.MarkReady(w, "Fine", "all is well", noon) }},
		failed: {func(w *widget.Widget) { conditions.MarkStalled(w, "Bad", "no such thing", noon) }},
		working: {
			func(w *widget.Widget) { conditions.MarkReconciling(w, "Moving", "two of three", noon) },
			func(w *widget.Widget) { conditions.MarkUnknown(w, v1alpha1.ReasonPaused, "held back", noon) },
			func(w *widget.Widget) { conditions.MarkUnknown(w, "Odd", "not known", noon) },
		},
	}
	rapid.Check(t, func(t *rapid.T) {
		w := object(1, v1alpha1.NeverObserved)
		want := working
		for range rapid.IntRange(0, 6).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "the spec changes") {
				w.Generation++
				want = working
			} else {
				want = rapid.SampledFrom([]verdict{done, working, failed}).Draw(t, "the pass ends as")
				rapid.SampledFrom(passes[want]).Draw(t, "by")(w)
				w.SetObservedGeneration(w.Generation)
			}
			if err := conditions.Check(w); err != nil {
				t.Fatalf("the walk broke the contract: %v", err)
			}
		}
		content := fields(t, w)
		if got := argo.verdict(t, content); got != want {
			t.Fatalf("Argo CD says %s, want %s: %v", got, want, content)
		}
		if got := kstatusVerdict(t, content); got != want {
			t.Fatalf("kstatus says %s, want %s: %v", got, want, content)
		}
		if got := waitsFor(content, v1alpha1.ConditionReady); got != (want == done) {
			t.Fatalf("the wait for Ready ends: %v, want %s: %v", got, want, content)
		}
	})
}

// TestArgoCDToleratesWhatIsNoObjectOfOurs asks for a verdict on objects as an older operator, or a hand, may have left them.
func TestArgoCDToleratesWhatIsNoObjectOfOurs(t *testing.T) {
	argo := newArgo(t)
	metadata := map[string]any{"generation": int64(2)}
	for name, tc := range map[string]struct {
		status any
		want   string
	}{
		"no status":           {nil, "Progressing"},
		"an empty status":     {map[string]any{}, "Progressing"},
		"an old verdict":      {status(1, ready("True", 1)), "Progressing"},
		"an old condition":    {status(2, ready("True", 1)), "Progressing"},
		"without generations": {map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}, "Healthy"},
		"paused":              {status(2, map[string]any{"type": "Ready", "status": "Unknown", "reason": "Paused"}), "Suspended"},
		"ready":               {status(2, ready("True", 2)), "Healthy"},
	} {
		content := map[string]any{"metadata": metadata}
		if tc.status != nil {
			content["status"] = tc.status
		}
		got, message := argo.health(t, content)
		require.Equal(t, tc.want, got, name)
		if tc.want != "Healthy" && name != "paused" {
			require.NotEmpty(t, message, name)
		}
	}
}

func ready(value string, generation int64) map[string]any {
	return map[string]any{"type": "Ready", "status": value, "observedGeneration": generation}
}

func status(observed int64, list ...any) map[string]any {
	return map[string]any{"observedGeneration": observed, "conditions": list}
}

type fataler interface{ Fatalf(string, ...any) }

func fields(t fataler, w *widget.Widget) map[string]any {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	return content
}

func kstatusVerdict(t fataler, content map[string]any) verdict {
	result, err := kstatus.Compute(&unstructured.Unstructured{Object: content})
	if err != nil {
		t.Fatalf("kstatus: %v", err)
	}
	switch result.Status {
	case kstatus.CurrentStatus:
		return done
	case kstatus.FailedStatus:
		return failed
	default:
		return working
	}
}

// waitsFor is the rule of kubectl wait --for=condition, which Pulumi's annotation waitFor follows too: the condition is True,
// and does not speak of an older generation.
func waitsFor(content map[string]any, kind string) bool {
	object := &unstructured.Unstructured{Object: content}
	list, _, _ := unstructured.NestedSlice(content, "status", "conditions")
	for _, item := range list {
		condition, _ := item.(map[string]any)
		if condition["type"] != kind {
			continue
		}
		observed, found, _ := unstructured.NestedInt64(condition, "observedGeneration")
		if !found {
			observed, found, _ = unstructured.NestedInt64(content, "status", "observedGeneration")
		}
		return condition["status"] == string(metav1.ConditionTrue) && (!found || observed >= object.GetGeneration())
	}
	return false
}

// argo runs the health script as Argo CD does: the object in the global obj, the verdict returned as a table.
type argo struct{ script string }

func newArgo(t *testing.T) argo {
	t.Helper()
	script, err := os.ReadFile("../../../../components/health/health.lua")
	require.NoError(t, err)
	return argo{string(script)}
}

func (a argo) verdict(t fataler, content map[string]any) verdict {
	status, _ := a.health(t, content)
	switch status {
	case "Healthy":
		return done
	case "Degraded":
		return failed
	case "Progressing", "Suspended":
		return working
	}
	t.Fatalf("%q is no health of Argo CD's", status)
	return ""
}

func (a argo) health(t fataler, content map[string]any) (status, message string) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString} {
		state.Push(state.NewFunction(open))
		state.Push(lua.LString(name))
		state.Call(1, 0)
	}
	state.SetGlobal("obj", luaValue(state, content))
	if err := state.DoString(a.script); err != nil {
		t.Fatalf("run the script: %v", err)
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returned %s", state.Get(-1).Type())
	}
	return lua.LVAsString(table.RawGetString("status")), lua.LVAsString(table.RawGetString("message"))
}

func luaValue(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, item := range v {
			table.RawSetString(key, luaValue(state, item))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, item := range v {
			table.Append(luaValue(state, item))
		}
		return table
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case nil:
		return lua.LNil
	default:
		return lua.LString(fmt.Sprint(v))
	}
}

// TestEveryCRDSaysThatItWasNotLookedAt holds every kind to a status that kstatus calls in progress before the operator's
// first pass: one without any status counts as done for it.
func TestEveryCRDSaysThatItWasNotLookedAt(t *testing.T) {
	for _, crd := range crds.All() {
		for _, version := range crd.Spec.Versions {
			status := version.Schema.OpenAPIV3Schema.Properties["status"]
			require.NotNil(t, status.Default, "%s %s: its Status wants the marker of the other kinds", crd.Name, version.Name)
			require.JSONEq(t, fmt.Sprintf(`{"observedGeneration":%d}`, v1alpha1.NeverObserved), string(status.Default.Raw), "%s %s", crd.Name, version.Name)
		}
	}
}
