package configschema

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// KeyPrefix begins the keys of every stack of this project.
const KeyPrefix = "holdfast:"

// Error lists everything that is wrong with a stack's configuration.
type Error struct{ Problems []Problem }

// Error has a line for each problem.
func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	lines = append(lines, fmt.Sprintf("the stack's configuration has %d problem(s):", len(e.Problems)))
	for _, problem := range e.Problems {
		lines = append(lines, "  "+KeyPrefix+problem.String())
	}
	return strings.Join(lines, "\n")
}

// ReadTree makes one tree of the values that Pulumi hands a program: a string or, for whatever is not a string, JSON, by
// full key. Keys of other namespaces are passed over. What cannot be read is left out, and is a problem.
func ReadTree(
	schema *apiextensionsv1.JSONSchemaProps, values map[string]string, secretKeys []string,
) (map[string]any, []Problem) {
	tree := map[string]any{}
	var problems []Problem
	for _, full := range slices.Sorted(maps.Keys(values)) {
		key, ours := strings.CutPrefix(full, KeyPrefix)
		if !ours {
			continue
		}
		if slices.Contains(secretKeys, full) {
			problems = append(problems, Problem{Path: key, Message: "holds an encrypted value, but nothing " +
				"here is secret and all of it is shown in plain text: put the secret into a Kubernetes Secret"})
			continue
		}
		value := any(values[full])
		if property, known := schema.Properties[key]; known && property.Type != "string" {
			var decoded any
			if err := utiljson.Unmarshal([]byte(values[full]), &decoded); err == nil {
				value = decoded
			}
		}
		tree[key] = value
	}
	return tree, problems
}
