package testkit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// identities are fields that differ between two runs that end in the same state: names of lives, counters of changes,
// times, and values that the server draws.
var identities = []string{
	"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "observedGeneration",
	"lastTransitionTime", "clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort",
}

// state is the world as far as it should be the same by every path: the object and its children, as text by name.
func (w *world) state() map[string]string {
	w.Helper()
	state := map[string]string{}
	add := func(r ref, obj client.Object) {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			w.Fatalf("convert %s: %v", r, err)
		}
		if r != w.object {
			delete(content, "status") // other controllers'
		}
		w.dropIdentities(content)
		state[r.String()] = strings.ReplaceAll(indented(content), w.namespace, "NAMESPACE")
	}
	for r, child := range w.children() {
		add(r, child)
	}
	if obj := w.get(); obj != nil {
		add(w.object, obj)
	}
	if w.subject.Outside != nil {
		outside, err := w.subject.Outside(w.ctx, w.namespace)
		if err != nil {
			w.Fatalf("look at what is outside of the API server: %v", err)
		}
		for name, content := range outside {
			state["outside "+name] = strings.ReplaceAll(content, w.namespace, "NAMESPACE")
		}
	}
	return state
}

func (w *world) dropIdentities(value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			if slices.Contains(identities, name) || slices.Contains(w.subject.Volatile, name) {
				delete(v, name)
				continue
			}
			w.dropIdentities(field)
		}
	case []any:
		for _, item := range v {
			w.dropIdentities(item)
		}
	}
}

// demand fails when the state is not the one wanted.
func (w *world) demand(want map[string]string, when string) {
	w.Helper()
	if diff := cmp.Diff(want, w.state()); diff != "" {
		w.Fatalf("%s, the state is not that of an undisturbed run (-undisturbed +this):\n%s", when, diff)
	}
}

func indented(value any) string {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Sprintf("%v", value)
	}
	return string(data)
}

// text shows an object in a failure.
func text(obj client.Object) string {
	if obj == nil {
		return "(the object is gone)"
	}
	shown := obj.DeepCopyObject().(client.Object)
	shown.SetManagedFields(nil)
	return indented(shown)
}
