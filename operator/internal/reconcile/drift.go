package reconcile

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Drift is told without asking the API server: the live object's managedFields list exactly what we applied last, so
// an object is in effect when that set of fields is the one we want now and each of them has the value we want.
//
//   - Somebody changes a field of ours: the server moves the field from our entry to theirs. Seen.
//   - We want a field no more: it is in our entry, but not in the desired object. Seen; the apply removes it.
//   - We want a new field, or another value. Seen.
//   - Somebody sets a field that was never ours, or the server defaults one. Neither in our entry nor desired:
//     none of our business.
//
// The entry also has the structure that only the schema knows: it tells an associative list (k: elements) from a set
// (v: elements) from an atomic list (no elements), so no schema is needed here, for custom resources either.
//
// Rejected: an annotation with a hash of what was applied last sees no edits by others; comparing whole objects
// trips over defaulting; a dry run is a request in each pass; remembering in memory what was applied writes everything
// once after each restart.

// driftOf returns the first field of desired that is not in effect in live, or of ours in live that is no longer
// desired, as a path like "spec.replicas". Empty means that an apply would change nothing.
func driftOf(desired, live *unstructured.Unstructured) string {
	entry := ownEntry(live.GetManagedFields())
	if entry == nil || entry.FieldsV1 == nil {
		return "everything"
	}
	if entry.APIVersion != desired.GetAPIVersion() {
		return "apiVersion"
	}
	owned := &fieldpath.Set{}
	if err := owned.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
		return "everything"
	}
	// What onlyCreate sent is recorded as ours until the next apply, and was never in the object.
	owned = owned.Difference(fieldpath.NewSet(fieldpath.MakePathOrDie("metadata", graceField)))
	return driftOfMap("", managedPart(desired), live.Object, owned)
}

// ownEntry returns what the server recorded for our last apply to the object itself.
func ownEntry(entries []metav1.ManagedFieldsEntry) *metav1.ManagedFieldsEntry {
	for i := range entries {
		e := &entries[i]
		if e.Manager == FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "" {
			return e
		}
	}
	return nil
}

// managedPart returns the object without the fields that managedFields never lists.
func managedPart(u *unstructured.Unstructured) map[string]any {
	part := maps.Clone(u.Object)
	delete(part, "apiVersion")
	delete(part, "kind")
	meta, _ := part["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	for _, identity := range []string{"name", "namespace", "uid", "resourceVersion"} {
		delete(meta, identity)
	}
	part["metadata"] = meta
	if len(meta) == 0 {
		delete(part, "metadata")
	}
	return part
}

func driftOfMap(path string, desired, live map[string]any, owned *fieldpath.Set) string {
	for _, name := range slices.Sorted(maps.Keys(desired)) {
		element := fieldpath.FieldNameElement(name)
		within, nested := owned.Children.Get(element)
		if !nested && !owned.Members.Has(element) {
			return join(path, name)
		}
		if drift := driftOfValue(join(path, name), desired[name], live[name], within); drift != "" {
			return drift
		}
	}
	for element := range elements(owned) {
		if element.FieldName == nil {
			return path
		}
		if _, still := desired[*element.FieldName]; !still {
			return join(path, *element.FieldName)
		}
	}
	return ""
}

// driftOfValue compares one value. Owned is what we own below it; nil or empty means that it is owned as a whole.
func driftOfValue(path string, desired, live any, owned *fieldpath.Set) string {
	if owned == nil || owned.Empty() {
		if !covers(live, desired) {
			return path
		}
		return ""
	}
	switch want := desired.(type) {
	case map[string]any:
		have, ok := live.(map[string]any)
		if !ok {
			return path
		}
		return driftOfMap(path, want, have, owned)
	case []any:
		have, ok := live.([]any)
		if !ok {
			return path
		}
		return driftOfList(path, want, have, owned)
	}
	return path
}

// driftOfList compares an associative list or a set: others may have items of their own in it.
func driftOfList(path string, desired, live []any, owned *fieldpath.Set) string {
	count := 0
	for range elements(owned) {
		count++
	}
	if count != len(desired) {
		return path
	}
	for i, item := range desired {
		element, ok := ownedItem(item, owned)
		if !ok {
			return fmt.Sprintf("%s[%d]", path, i)
		}
		at := slices.IndexFunc(live, func(other any) bool { return matches(element, other, false) })
		if at < 0 {
			return path + element.String()
		}
		within, _ := owned.Children.Get(element)
		if drift := driftOfValue(path+element.String(), item, live[at], within); drift != "" {
			return drift
		}
	}
	return ""
}

// ownedItem finds the element of our set that stands for a desired item.
func ownedItem(item any, owned *fieldpath.Set) (fieldpath.PathElement, bool) {
	for element := range elements(owned) {
		if matches(element, item, true) {
			return element, true
		}
	}
	return fieldpath.PathElement{}, false
}

// matches tells whether a list element stands for an item. Lenient accepts an item that leaves out a field of the
// key: the server defaults those ("protocol" in the ports of a container) and records the default.
func matches(element fieldpath.PathElement, item any, lenient bool) bool {
	switch {
	case element.Value != nil:
		return equalScalars((*element.Value).Unstructured(), item)
	case element.Key != nil:
		fields, ok := item.(map[string]any)
		if !ok {
			return false
		}
		for _, key := range *element.Key {
			value, there := fields[key.Name]
			if !there && lenient {
				continue
			}
			if !there || !equalScalars(key.Value.Unstructured(), value) {
				return false
			}
		}
		return true
	}
	return false
}

// covers tells whether live has everything that desired says. Fields that the server added are fine; a list that we
// own as a whole has our items and no others.
func covers(live, desired any) bool {
	switch want := desired.(type) {
	case map[string]any:
		have, ok := live.(map[string]any)
		if !ok {
			return false
		}
		for name, value := range want {
			if !covers(have[name], value) {
				return false
			}
		}
		return true
	case []any:
		have, ok := live.([]any)
		if !ok || len(have) != len(want) {
			return false
		}
		for i := range want {
			if !covers(have[i], want[i]) {
				return false
			}
		}
		return true
	}
	return equalScalars(live, desired)
}

// equalScalars compares numbers by value: one side went through JSON, which knows a single number type.
func equalScalars(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	float := reflect.TypeFor[float64]()
	if x.IsValid() && y.IsValid() && x.Kind() != y.Kind() && isNumber(x) && isNumber(y) {
		return x.Convert(float).Float() == y.Convert(float).Float()
	}
	return reflect.DeepEqual(a, b)
}

func isNumber(v reflect.Value) bool { return v.CanInt() || v.CanUint() || v.CanFloat() }

// elements yields each element of one level of a set once. Members are fields that are owned themselves, Children
// those with owned fields below; many are both.
func elements(set *fieldpath.Set) func(yield func(fieldpath.PathElement) bool) {
	return func(yield func(fieldpath.PathElement) bool) {
		for element := range set.Members.All() {
			if !yield(element) {
				return
			}
		}
		for element := range set.Children.All() {
			if !set.Members.Has(element) && !yield(element) {
				return
			}
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// intentOf turns a desired child into what is sent: its type, its identity, and the fields that we have an opinion on.
func intentOf(obj client.Object, scheme *runtime.Scheme) (*unstructured.Unstructured, error) {
	u, err := unstructuredOf(obj, scheme)
	if err != nil {
		return nil, err
	}
	delete(u.Object, "status")
	meta, _ := u.Object["metadata"].(map[string]any)
	for name := range meta {
		switch name {
		case "name", "namespace", "labels", "annotations", "ownerReferences", "finalizers":
		default:
			delete(meta, name)
		}
	}
	// A typed object cannot say "no opinion" for some fields and says null (creationTimestamp in a pod template).
	dropNulls(u.Object)
	return u, nil
}

func unstructuredOf(obj client.Object, scheme *runtime.Scheme) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return nil, fmt.Errorf("type of child %s: %w", obj.GetName(), err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("convert %s %s: %w", gvk.Kind, obj.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

func dropNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			if field == nil {
				delete(v, name)
				continue
			}
			dropNulls(field)
		}
	case []any:
		for _, item := range v {
			dropNulls(item)
		}
	}
}
