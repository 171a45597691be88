package components_test

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/components/kube"
	"github.com/holdfast-io/holdfast/components/render"
)

// stack is what a program registered, to be asked about in tests.
type stack struct {
	t         *testing.T
	resources []render.Resource
}

func record(t *testing.T, program pulumi.RunFunc) *stack {
	t.Helper()
	resources, err := render.Record(program)
	require.NoError(t, err)
	return &stack{t: t, resources: resources}
}

// find returns the one resource whose type token ends in ":"+kind and whose logical name is name.
func (s *stack) find(kind, name string) render.Resource {
	s.t.Helper()
	var found []render.Resource
	for _, res := range s.resources {
		if strings.HasSuffix(res.Type, ":"+kind) && res.Name == name {
			found = append(found, res)
		}
	}
	require.Len(s.t, found, 1, "%s %s in %v", kind, name, s.names())
	return found[0]
}

func (s *stack) names() []string {
	names := make([]string, 0, len(s.resources))
	for _, res := range s.resources {
		names = append(names, res.Type+" "+res.Name)
	}
	return names
}

// kinds returns the kinds of the resources in a component, ordered by URN.
func (s *stack) kinds(parent render.Resource) []string {
	var kinds []string
	for _, res := range s.resources {
		if res.Parent == parent.URN {
			kinds = append(kinds, res.Type[strings.LastIndex(res.Type, ":")+1:])
		}
	}
	return kinds
}

// before reports whether every path of the graph has first exist before second: by dependency, or by a dependency of a
// component that second is in.
func (s *stack) before(first, second render.Resource) bool {
	byURN := map[string]render.Resource{}
	for _, res := range s.resources {
		byURN[res.URN] = res
	}
	seen := map[string]bool{}
	var reaches func(urn string) bool
	reaches = func(urn string) bool {
		if urn == first.URN {
			return true
		}
		if urn == "" || seen[urn] {
			return false
		}
		seen[urn] = true
		res := byURN[urn]
		for _, dependency := range append([]string{res.Parent}, res.Dependencies...) {
			if reaches(dependency) {
				return true
			}
		}
		return false
	}
	return first.URN != second.URN && reaches(second.URN)
}

// requireSound checks what holds for every resource of every component.
func (s *stack) requireSound() {
	s.t.Helper()
	for _, res := range s.resources {
		if res.Type == "pulumi:pulumi:Stack" {
			continue
		}
		require.NotEmpty(s.t, res.Parent, "%s has a parent", res.URN)
		if res.Fields == nil {
			continue
		}
		require.Contains(s.t, res.Parent, "holdfast:index:", "%s is in a component", res.URN)
		require.Equal(s.t, kube.ProviderVersion, res.Version, res.URN)
		require.NotContains(s.t, res.Fields, "status", res.URN)
		require.NotEmpty(s.t, at(res, "metadata", "name"), res.URN)
	}
}

// at returns the value at the path in the object, nil when there is none.
func at(res render.Resource, path ...any) any {
	var value any = res.Fields
	for _, step := range path {
		switch key := step.(type) {
		case string:
			object, _ := value.(map[string]any)
			value = object[key]
		case int:
			list, _ := value.([]any)
			if key >= len(list) {
				return nil
			}
			value = list[key]
		}
	}
	return value
}
