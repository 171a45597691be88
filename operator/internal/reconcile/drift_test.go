package reconcile

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// parse reads an object.
func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

const (
	driftDesired = `
apiVersion: v1
kind: Thing
metadata: {name: a, namespace: n, labels: {app: a}}
spec:
  replicas: 2
  empty: {}
  ports: [{port: 1, name: one}, {port: 2, name: two}]
  args: [x, y]
  words: [red, blue]
`
	driftLive = `
apiVersion: v1
kind: Thing
metadata: {name: a, namespace: n, uid: u, labels: {app: a, theirs: b}}
spec:
  replicas: 2
  empty: {defaulted: true}
  policy: Defaulted
  ports: [{port: 2, name: two, protocol: TCP}, {port: 1, name: one, protocol: TCP}, {port: 9, name: theirs, protocol: UDP}]
  args: [x, y]
  words: [green, blue, red]
`
	driftOwned = `{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:replicas":{},"f:empty":{},
"f:ports":{"k:{\"port\":1,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:name":{}},"k:{\"port\":2,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:name":{}}},
"f:args":{},"f:words":{"v:\"red\"":{},"v:\"blue\"":{}}}}`
)

func TestDrift(t *testing.T) {
	set := func(value any, path ...string) func(*testing.T, *unstructured.Unstructured) {
		return func(t *testing.T, u *unstructured.Unstructured) {
			t.Helper()
			if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
				t.Fatal(err)
			}
		}
	}
	drop := func(path ...string) func(*testing.T, *unstructured.Unstructured) {
		return func(_ *testing.T, u *unstructured.Unstructured) { unstructured.RemoveNestedField(u.Object, path...) }
	}
	port := func(fields ...any) any {
		m := map[string]any{}
		for i := 0; i < len(fields); i += 2 {
			m[fields[i].(string)] = fields[i+1]
		}
		return m
	}
	cases := []struct {
		name    string
		desired func(*testing.T, *unstructured.Unstructured)
		live    func(*testing.T, *unstructured.Unstructured)
		owned   string
		want    string
	}{
		{name: "in effect, though others have fields, items and an order of their own"},
		{name: "a value wanted anew", desired: set(int64(3), "spec", "replicas"), want: "spec.replicas"},
		{name: "a value changed", live: set(int64(5), "spec", "replicas"), want: "spec.replicas"},
		{name: "a number that went through JSON", live: set(float64(2), "spec", "replicas")},
		{name: "a label changed", live: set("b", "metadata", "labels", "app"), want: "metadata.labels.app"},
		{name: "a label removed", live: drop("metadata", "labels"), want: "metadata.labels"},
		{name: "a field wanted that was not", desired: set("Retain", "spec", "policy"), want: "spec.policy"},
		{name: "a field wanted no more", desired: drop("spec", "replicas"), want: "spec.replicas"},
		{name: "a list wanted no more", desired: drop("spec", "args"), want: "spec.args"},
		{name: "an empty struct that gains a field", desired: set("x", "spec", "empty", "field"), want: "spec.empty"},
		{name: "an item wanted no more", desired: set([]any{port("port", int64(1), "name", "one")}, "spec", "ports"), want: "spec.ports"},
		{name: "an item wanted anew", desired: set([]any{port("port", int64(1), "name", "one"), port("port", int64(3), "name", "two")}, "spec", "ports"), want: "spec.ports[1]"},
		{name: "an item changed", live: set([]any{port("port", int64(1), "protocol", "TCP", "name", "other"), port("port", int64(2), "protocol", "TCP", "name", "two")}, "spec", "ports"), want: `spec.ports[port=1,protocol="TCP"].name`},
		{name: "an item gone", live: set([]any{port("port", int64(1), "protocol", "TCP", "name", "one")}, "spec", "ports"), want: `spec.ports[port=2,protocol="TCP"]`},
		{name: "a list that is a whole, in another order", live: set([]any{"y", "x"}, "spec", "args"), want: "spec.args"},
		{name: "a list that is a whole, longer", live: set([]any{"x", "y", "z"}, "spec", "args"), want: "spec.args"},
		{name: "a word of a set gone", live: set([]any{"red"}, "spec", "words"), want: `spec.words[="blue"]`},
		{name: "a word of a set wanted no more", desired: set([]any{"red"}, "spec", "words"), want: "spec.words"},
		{name: "another type in place of a map", live: set("text", "spec", "empty"), want: "spec.empty"},
		{name: "a field that somebody took over", owned: `{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:empty":{}}}`, want: "spec.args"},
		{name: "no record of us", owned: "none", want: "everything"},
		{name: "a record that cannot be read", owned: `{"k:[":{}}`, want: "everything"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			desired, live := parse(t, driftDesired), parse(t, driftLive)
			if c.desired != nil {
				c.desired(t, desired)
			}
			if c.live != nil {
				c.live(t, live)
			}
			if c.owned == "" {
				c.owned = driftOwned
			}
			if c.owned != "none" {
				live.SetManagedFields([]metav1.ManagedFieldsEntry{
					{Manager: "kubectl-edit", Operation: "Update", APIVersion: "v1", FieldsV1: metav1.NewFieldsV1(`{}`)},
					{Manager: FieldManager, Operation: "Apply", APIVersion: "v1", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{}`)},
					{Manager: FieldManager, Operation: "Apply", APIVersion: "v1", FieldsV1: metav1.NewFieldsV1(c.owned)},
				})
			}
			if got := driftOf(desired, live); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
