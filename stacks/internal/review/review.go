// Package review shows the difference of two sets of manifests as a reviewer reads it: an object at a time, with what the
// change does to what runs.
package review

import (
	"fmt"
	"io"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Change is the change of one object.
type Change struct {
	// Verb is "added", "removed", "changed" or "renamed".
	Verb string
	// Object is kind, namespace and name.
	Object string
	// Effects are what the change does to what runs, in words.
	Effects []string
	// Diff is a unified diff of the manifests.
	Diff string
}

// manifest is one file, decoded.
type manifest struct {
	path    string
	content []byte
	object  *unstructured.Unstructured
}

func (m *manifest) name() string {
	return path.Join(m.object.GetNamespace(), m.object.GetName())
}

// Compare returns the changes between two sets of manifests, by path, ordered by the path. An object is the same one
// by its kind, namespace and name, wherever its file is.
func Compare(before, after map[string][]byte) ([]Change, error) {
	was, err := decode(before)
	if err != nil {
		return nil, fmt.Errorf("before: %w", err)
	}
	is, err := decode(after)
	if err != nil {
		return nil, fmt.Errorf("after: %w", err)
	}
	changes := map[string]Change{}
	var removed, added []*manifest
	for _, id := range slices.Sorted(maps.Keys(was)) {
		now, ok := is[id]
		switch {
		case !ok:
			removed = append(removed, was[id])
		case string(was[id].content) != string(now.content):
			changes[now.path] = change("changed", was[id], now)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(is)) {
		if _, ok := was[id]; !ok {
			added = append(added, is[id])
		}
	}
	for _, old := range removed {
		successor := renamed(old, removed, added)
		if successor == nil {
			changes[old.path] = change("removed", old, nil)
			continue
		}
		added = slices.DeleteFunc(added, func(m *manifest) bool { return m == successor })
		changes[successor.path] = change("renamed", old, successor)
	}
	for _, now := range added {
		changes[now.path] = change("added", nil, now)
	}
	list := make([]Change, 0, len(changes))
	for _, file := range slices.Sorted(maps.Keys(changes)) {
		list = append(list, changes[file])
	}
	return list, nil
}

func decode(files map[string][]byte) (map[string]*manifest, error) {
	objects := map[string]*manifest{}
	for file, content := range files {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(content, &object.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		m := &manifest{path: file, content: content, object: object}
		id := object.GroupVersionKind().GroupKind().String() + " " + m.name()
		if other, twice := objects[id]; twice {
			return nil, fmt.Errorf("%s and %s are both %s", other.path, file, id)
		}
		objects[id] = m
	}
	return objects, nil
}

// renamed is the object that takes the place of one that is removed: the only new one of its kind in its namespace whose name
// differs in the last part alone, when one such goes. An object that is named after a hash of its content changes so.
func renamed(old *manifest, removed, added []*manifest) *manifest {
	alike := func(m *manifest) bool {
		return m.object.GroupVersionKind() == old.object.GroupVersionKind() && m.object.GetNamespace() != "" &&
			m.object.GetNamespace() == old.object.GetNamespace() && stem(m) == stem(old)
	}
	var successors []*manifest
	for _, m := range added {
		if alike(m) {
			successors = append(successors, m)
		}
	}
	gone := 0
	for _, m := range removed {
		if alike(m) {
			gone++
		}
	}
	if gone != 1 || len(successors) != 1 {
		return nil
	}
	return successors[0]
}

func stem(m *manifest) string {
	name := m.object.GetName()
	return name[:max(0, strings.LastIndexByte(name, '-'))]
}

const nowhere = "/dev/null"

func change(verb string, before, after *manifest) Change {
	present := after
	if present == nil {
		present = before
	}
	c := Change{Verb: verb, Object: present.object.GetKind() + " " + present.name()}
	side := func(prefix string, m *manifest) (string, []byte) {
		if m == nil {
			return nowhere, nil
		}
		return prefix + m.path, m.content
	}
	oldName, old := side("a/", before)
	newName, now := side("b/", after)
	c.Diff = string(diff.Diff(oldName, old, newName, now))
	c.Effects = effects(before, after)
	return c
}

func effects(before, after *manifest) []string {
	var list []string
	switch {
	case before == nil:
	case after == nil:
		switch before.object.GetKind() {
		case "Namespace":
			list = append(list, "everything in the namespace is deleted")
		case "CustomResourceDefinition":
			list = append(list, "every object of its kind is deleted, unless it is retained")
		case "LeaseService":
			list = append(list, "its pods go, and its leases with them")
		}
	default:
		kind := before.object.GetKind()
		changed := func(fields ...string) bool {
			was, _, _ := unstructured.NestedFieldNoCopy(before.object.Object, fields...)
			is, _, _ := unstructured.NestedFieldNoCopy(after.object.Object, fields...)
			return !reflect.DeepEqual(was, is)
		}
		if changed("spec", "template") && (kind == "Deployment" || kind == "StatefulSet") {
			list = append(list, "its pods are replaced")
		}
		if kind == "LeaseService" && (changed("spec", "image") || changed("spec", "resources")) {
			list = append(list, "its pods are replaced one after the other; leases are handed over")
		}
	}
	return list
}

// Write prints the changes: a list of the objects first, then the differences.
func Write(out io.Writer, stack, base string, changes []Change) error {
	var text strings.Builder
	if len(changes) == 0 {
		fmt.Fprintf(&text, "stack %s deploys what it does at %s\n", stack, base)
	} else {
		fmt.Fprintf(&text, "stack %s, against %s: %d object(s)\n", stack, base, len(changes))
	}
	for _, c := range changes {
		fmt.Fprintf(&text, "  %-8s %s", c.Verb, c.Object)
		if len(c.Effects) > 0 {
			fmt.Fprintf(&text, "  (%s)", strings.Join(c.Effects, "; "))
		}
		text.WriteByte('\n')
	}
	for _, c := range changes {
		text.WriteString("\n" + c.Diff)
	}
	_, err := io.WriteString(out, text.String())
	return err
}
