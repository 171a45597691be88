package handover

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Differences says how an object would differ from what it is now: a line a field, "path: now, then". Empty: not at all.
//
// Before is the object as it is, after is what the API server answers to a dry run of the apply. So a quantity that is
// written in another way, or a field that has a default, is no difference. What the API server keeps for itself, the
// status, and the marks of Pulumi, Argo CD and Flux are not compared.
func Differences(before, after map[string]any) []string {
	var lines []string
	diff("", compared(before), compared(after), &lines)
	return lines
}

// serverFields are the metadata that the API server writes by itself.
var serverFields = []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink"}

// ownersMarks are the prefixes of labels and annotations by which owners mark objects.
var ownersMarks = []string{"pulumi.com/", "argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/"}

func compared(object map[string]any) map[string]any {
	out := maps.Clone(object)
	delete(out, "status")
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		return out
	}
	metadata = maps.Clone(metadata)
	for _, field := range serverFields {
		delete(metadata, field)
	}
	for _, key := range []string{"labels", "annotations"} {
		values, ok := metadata[key].(map[string]any)
		if !ok {
			continue
		}
		values = maps.Clone(values)
		maps.DeleteFunc(values, func(name string, _ any) bool { return IsOwnersMark(name) })
		metadata[key] = values
		if len(values) == 0 {
			delete(metadata, key)
		}
	}
	out["metadata"] = metadata
	return out
}

// IsOwnersMark reports whether a label or annotation is one by which Pulumi, Argo CD or Flux mark what they own.
func IsOwnersMark(name string) bool {
	return slices.ContainsFunc(ownersMarks, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func diff(path string, before, after any, lines *[]string) {
	if reflect.DeepEqual(before, after) {
		return
	}
	was, wasMap := before.(map[string]any)
	is, isMap := after.(map[string]any)
	if wasMap && isMap {
		keys := map[string]bool{}
		for key := range was {
			keys[key] = true
		}
		for key := range is {
			keys[key] = true
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			diff(join(path, key), was[key], is[key], lines)
		}
		return
	}
	wasList, wasIsList := before.([]any)
	isList, isIsList := after.([]any)
	if wasIsList && isIsList && len(wasList) == len(isList) {
		for i := range wasList {
			diff(fmt.Sprintf("%s[%d]", path, i), wasList[i], isList[i], lines)
		}
		return
	}
	*lines = append(*lines, fmt.Sprintf("%s: %s now, %s then", path, shown(before), shown(after)))
}

func join(path, key string) string {
	if strings.ContainsAny(key, "./") {
		key = "[" + key + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

const maxShown = 160

func shown(value any) string {
	if value == nil {
		return "nothing"
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	if len(encoded) > maxShown {
		return string(encoded[:maxShown]) + "..."
	}
	return string(encoded)
}
