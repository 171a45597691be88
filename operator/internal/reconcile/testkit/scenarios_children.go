package testkit

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/conditions"
)

// foreignOf makes an object of somebody else that has the name of a child.
func (w *world) foreignOf(child client.Object) client.Object {
	w.Helper()
	obj := child.DeepCopyObject().(client.Object)
	obj.SetUID("")
	obj.SetResourceVersion("")
	obj.SetGeneration(0)
	obj.SetManagedFields(nil)
	obj.SetOwnerReferences(nil)
	obj.SetNamespace(w.namespace)
	if service, ok := obj.(*corev1.Service); ok && service.Spec.ClusterIP != corev1.ClusterIPNone {
		service.Spec.ClusterIP, service.Spec.ClusterIPs = "", nil // the model's own, which no other may have
	}
	obj.SetLabels(map[string]string{"whose": "somebody-else"})
	obj.SetAnnotations(nil)
	if err := w.others.Create(w.ctx, obj, client.FieldOwner("somebody-else")); err != nil {
		w.Fatalf("make a foreign object with the name of %s: %v", w.server.refTo(child), err)
	}
	return w.server.contents[w.server.refTo(obj)]
}

// untouched tells whether a foreign object is as it was made, but for its status: other controllers see to that.
func (w *world) untouched(foreign client.Object) bool {
	now := w.server.contents[w.server.refTo(foreign)]
	if now == nil || now.GetUID() != foreign.GetUID() || now.GetGeneration() != foreign.GetGeneration() {
		return false
	}
	return maps.Equal(now.GetLabels(), foreign.GetLabels()) && len(now.GetOwnerReferences()) == 0 &&
		!slices.ContainsFunc(now.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == reconcile.FieldManager })
}

// foreign puts an object of somebody else in the place of each child, before the object is made: first unseen by the
// operator, then seen. It must stay untouched, and the object must say what is wrong, until it is gone.
func foreign(tb testing.TB, env *Environment, subject Subject) {
	model := newWorld(tb, env, subject)
	model.create()
	model.settleReady()
	want := model.state()
	for _, r := range slices.SortedFunc(maps.Keys(model.children()), compare) {
		w := newWorld(tb, env, subject)
		other := w.foreignOf(model.server.contents[r])
		place := w.server.refTo(other)
		w.create()
		w.operator.frozen = true
		w.operator.seen = maps.Clone(w.server.contents)
		delete(w.operator.seen, place)
		for range 3 {
			_, _ = w.operator.reconcile(w.ctx)
		}
		untouched := func(when string) {
			if !w.untouched(other) {
				w.Fatalf("%s is somebody else's, and the operator changed it %s: %v", place, when, tail(w.operator.done))
			}
		}
		untouched("before its cache had it")
		w.operator.frozen = false
		w.settle()
		untouched("though its cache had it")
		if stalled := conditions.Get(w.get(), v1alpha1.ConditionStalled); stalled == nil || stalled.Reason != v1alpha1.ReasonConflict {
			w.Fatalf("%s is somebody else's, and the object is not Stalled by a Conflict:\n%s", place, text(w.get()))
		}
		w.remove(place)
		w.settleReady()
		w.demand(want, fmt.Sprintf("after the foreign %s was gone", place))
	}
}

// drift deletes each child, and then changes each of its fields that the operator owns, as far as the API server allows
// it. All of it must be put right, and a field that is somebody else's must stay.
func drift(tb testing.TB, env *Environment, subject Subject) {
	w := newWorld(tb, env, subject)
	w.create()
	w.settleReady()
	want := w.state()
	changed := 0
	for _, r := range slices.SortedFunc(maps.Keys(w.children()), compare) {
		w.remove(r)
		w.settleReady()
		w.demand(want, fmt.Sprintf("after %s was deleted by hand", r))
		for _, path := range w.ownedScalars(r) {
			was, _ := lookup(w.content(r), path)
			if !w.spoil(r, path) {
				continue
			}
			changed++
			w.settleReady()
			if now, _ := lookup(w.content(r), path); now != was {
				w.Fatalf("%s of %s was changed by hand, and is %v instead of %v", path, r, now, was)
			}
			if isKey(path) {
				// The changed item is somebody else's now, and may stay beside ours.
				w.remove(r)
				w.settleReady()
			}
			w.demand(want, fmt.Sprintf("after %s of %s was changed by hand", path, r))
		}
	}
	for r := range w.children() {
		w.annotate(r)
	}
	w.settleReady()
	for r, child := range w.children() {
		if child.GetAnnotations()[foreignAnnotation] != "kept" {
			w.Fatalf("an annotation of somebody else on %s was taken away", r)
		}
	}
	if changed == 0 && len(subject.Owns) > 0 {
		w.Fatalf("no owned field could be changed: nothing was tested")
	}
	tb.Logf("%d owned fields were changed by hand and put right", changed)
}

const foreignAnnotation = "example.com/somebody-else"

func (w *world) annotate(r ref) {
	w.Helper()
	obj := w.server.contents[r].DeepCopyObject().(client.Object)
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[foreignAnnotation] = "kept"
	obj.SetAnnotations(annotations)
	if err := w.others.Update(w.ctx, obj, client.FieldOwner("somebody-else")); err != nil {
		w.Fatalf("annotate %s: %v", r, err)
	}
}

// ownedScalars returns the paths of the strings, numbers and booleans that the operator owns in an object.
func (w *world) ownedScalars(r ref) []fieldpath.Path {
	w.Helper()
	var paths []fieldpath.Path
	for _, entry := range w.server.contents[r].GetManagedFields() {
		if entry.Manager != reconcile.FieldManager || entry.Subresource != "" {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
			w.Fatalf("managed fields of %s: %v", r, err)
		}
		for path := range set.Leaves().All() {
			paths = append(paths, path.Copy())
		}
	}
	return paths
}

// spoil gives a field another value, as somebody with kubectl does, and tells whether the API server took it.
func (w *world) spoil(r ref, path fieldpath.Path) bool {
	w.Helper()
	content := w.content(r)
	holder, _ := lookup(content, path[:len(path)-1])
	fields, ok := holder.(map[string]any)
	last := path[len(path)-1].FieldName
	if !ok || last == nil {
		return false
	}
	if fields[*last], ok = otherThan(fields[*last]); !ok {
		return false
	}
	obj := w.server.empty(r.kind)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj); err != nil {
		return false // the type does not hold the other value
	}
	before := w.server.contents[r].GetResourceVersion()
	if err := w.others.Update(w.ctx, obj, client.FieldOwner("somebody-else")); err != nil {
		return false // immutable, or not valid
	}
	return w.server.contents[r].GetResourceVersion() != before
}

func (w *world) content(r ref) map[string]any {
	w.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w.server.contents[r])
	if err != nil {
		w.Fatalf("convert %s: %v", r, err)
	}
	return content
}

// isKey tells whether a path is that of a field by which items of a list are told apart.
func isKey(path fieldpath.Path) bool {
	if len(path) < 2 || path[len(path)-2].Key == nil {
		return false
	}
	return slices.ContainsFunc(*path[len(path)-2].Key, func(f value.Field) bool { return f.Name == *path[len(path)-1].FieldName })
}

// lookup returns what is at a path.
func lookup(at any, path fieldpath.Path) (any, bool) {
	for _, element := range path {
		switch v := at.(type) {
		case map[string]any:
			if element.FieldName == nil {
				return nil, false
			}
			at = v[*element.FieldName]
		case []any:
			index := slices.IndexFunc(v, func(item any) bool { return element.Key != nil && hasKey(item, element) })
			if index < 0 {
				return nil, false
			}
			at = v[index]
		default:
			return nil, false
		}
	}
	return at, true
}

func hasKey(item any, element fieldpath.PathElement) bool {
	fields, ok := item.(map[string]any)
	if !ok {
		return false
	}
	for _, key := range *element.Key {
		if fmt.Sprint(fields[key.Name]) != fmt.Sprint(key.Value.Unstructured()) {
			return false
		}
	}
	return true
}

func otherThan(value any) (any, bool) {
	switch v := value.(type) {
	case string:
		return v + "x", true
	case int64:
		return v + 1, true
	case float64:
		return v + 1, true
	case bool:
		return !v, true
	}
	return value, false
}
