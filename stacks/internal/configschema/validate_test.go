package configschema_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/stacks/internal/configschema"
)

const schemaYAML = `
type: object
required: [title]
properties:
  title: {type: string, minLength: 1, maxLength: 5}
  open: {type: boolean}
  level: {type: string, enum: [low, high]}
  size: {x-kubernetes-int-or-string: true, pattern: '^[0-9]+(Mi)?$'}
  path:
    type: string
    x-kubernetes-validations:
    - {rule: "self.matches('^/')", message: a path begins with a slash}
    - {rule: "!self.matches('[[:space:]]')", message: a path has no blanks}
    - {rule: "size(self) > 100", message: left to the API server}
  ratio: {type: number, minimum: 0.5, maximum: 2}
  labels: {type: object, additionalProperties: {type: string}}
  items:
    type: array
    maxItems: 2
    items:
      type: object
      properties:
        name: {type: string, pattern: '^[a-z]+$', description: Allowed are lower case letters. More is not said.}
        count: {type: integer, minimum: 1, maximum: 9}
        inner: {type: object, properties: {url: {type: string, pattern: '^http'}}}
`

func TestValidate(t *testing.T) {
	schema := &apiextensionsv1.JSONSchemaProps{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(schemaYAML), schema))
	for _, tc := range []struct {
		name, value string
		want        []string
	}{
		{"everything right", `{title: ok, open: true, level: low, size: 1Mi, ratio: 1, labels: {a: b}, items: [{name: a, count: 9}]}`, nil},
		{"an int for an int-or-string", `{title: ok, size: 5}`, nil},
		{"a missing key", `{}`, []string{`title: is required`}},
		{"an unknown key", `{title: ok, tilte: x}`, []string{
			`tilte: is not a known key; allowed: items, labels, level, open, path, ratio, size, title`,
		}},
		{"lengths", `{title: ""}`, []string{`title: "" has 0 characters, below the minimum 1`}},
		{"length above", `{title: abcdef}`, []string{`title: "abcdef" has 6 characters, above the maximum 5`}},
		{"an enum", `{title: ok, level: mid}`, []string{`level: "mid" is not allowed; allowed: low, high`}},
		{"a wrong scalar", `{title: 7, open: "yes"}`, []string{
			`open: "yes" is a string, but must be true or false`, `title: 7 is a number, but must be a string`,
		}},
		{"a wrong collection", `{title: [a], items: {a: 1}, labels: x}`, []string{
			`items: {a} is a set of keys, but must be a list`,
			`labels: "x" is a string, but must be a set of keys`,
			`title: [1 items] is a list, but must be a string`,
		}},
		{"a wrong additional property", `{title: ok, labels: {a: 1}}`, []string{`labels.a: 1 is a number, but must be a string`}},
		{"a null", `{title: null}`, []string{`title: has no value; give one of type a string, or leave the key out`}},
		{"a fraction for a whole number", `{title: ok, items: [{count: 1.5}]}`, []string{
			`items[0].count: 1.5 is a number, but must be a whole number`,
		}},
		{"a fraction for an int-or-string", `{title: ok, size: 0.5}`, []string{
			`size: 0.5 is neither a whole number nor text: write it in quotes, such as "0.5", or an amount as 500m`,
		}},
		{"bounds of a fraction", `{title: ok, ratio: 0.25}`, []string{`ratio: 0.25 is below the minimum 0.5`}},
		{"a bad quantity", `{title: ok, size: big}`, []string{`size: "big" is not allowed; it must match ^[0-9]+(Mi)?$`}},
		{"rules about a string", `{title: ok, path: a b}`, []string{
			`path: "a b" is not allowed; a path begins with a slash`, `path: "a b" is not allowed; a path has no blanks`,
		}},
		{"rules that hold", `{title: ok, path: /a}`, nil},
		{"too many items", `{title: ok, items: [{}, {}, {}]}`, []string{`items: has 3 items, above the maximum 2`}},
		{
			"items are called by their names, and all problems come at once",
			`{title: ok, items: [{name: B, count: 0}, {name: ok, count: 10, inner: {url: ftp}}]}`,
			[]string{
				`items[0] (B): count: 0 is below the minimum 1`,
				`items[0] (B): name: "B" is not allowed; Allowed are lower case letters`,
				`items[1] (ok): count: 10 is above the maximum 9`,
				`items[1] (ok): inner.url: "ftp" is not allowed; it must match ^http`,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data, err := yaml.YAMLToJSON([]byte(tc.value))
			require.NoError(t, err)
			var value any
			require.NoError(t, utiljson.Unmarshal(data, &value))
			var got []string
			for _, problem := range configschema.Validate(schema, value) {
				got = append(got, problem.String())
			}
			require.Equal(t, tc.want, got)
		})
	}
}
