// Package configschema checks stack configuration against an OpenAPI schema of the kind that CRDs carry, and says
// everything that is wrong at once, in words that name the place, the value and what is allowed.
package configschema

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Problem is one thing that is wrong.
type Problem struct {
	// Path of the value, such as "tenants[1] (team-b): leaseTTLSeconds".
	Path string
	// Message says what is wrong and what is allowed.
	Message string
}

// String is the problem on one line.
func (p Problem) String() string { return p.Path + ": " + p.Message }

// Validate returns the problems of value, ordered by path. Value is a tree of map[string]any, []any, string, bool,
// int64 and float64. An item of a list that is an object with a name is called by it.
//
// It knows what the schemas of this project use: type, int-or-string, properties, additionalProperties, required,
// items, enum, pattern, bounds and lengths, and of the CEL rules those that match a string against an expression. All
// other rules are left to the API server: an interpreter of CEL would double the time that the program takes to build.
func Validate(schema *apiextensionsv1.JSONSchemaProps, value any) []Problem {
	c := &checker{}
	c.check("", schema, value)
	return c.problems
}

// Item is the path of an item of a list.
func Item(list string, index int, value any) string {
	path := fmt.Sprintf("%s[%d]", list, index)
	if object, ok := value.(map[string]any); ok {
		if name, ok := object["name"].(string); ok && name != "" {
			path += " (" + name + ")"
		}
	}
	return path
}

// Field is the path of a field of an object.
func Field(object, name string) string {
	switch {
	case object == "":
		return name
	case strings.HasSuffix(object, ")"):
		return object + ": " + name
	default:
		return object + "." + name
	}
}

type checker struct{ problems []Problem }

func (c *checker) add(path, format string, args ...any) {
	c.problems = append(c.problems, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) check(path string, schema *apiextensionsv1.JSONSchemaProps, value any) {
	switch v := value.(type) {
	case map[string]any:
		if c.hasType(path, schema, value, "object") {
			c.object(path, schema, v)
		}
	case []any:
		if c.hasType(path, schema, value, "array") {
			c.list(path, schema, v)
		}
	case string:
		if schema.XIntOrString || c.hasType(path, schema, value, "string") {
			c.text(path, schema, v)
		}
	case bool:
		c.hasType(path, schema, value, "boolean")
	case int64:
		if schema.XIntOrString || c.hasType(path, schema, value, "integer", "number") {
			c.number(path, schema, float64(v), value)
		}
	case float64:
		if schema.XIntOrString {
			c.add(path, `%v is neither a whole number nor text: write it in quotes, such as "0.5", or an amount as 500m`, value)
		} else if c.hasType(path, schema, value, "number") {
			c.number(path, schema, v, value)
		}
	default:
		c.add(path, "has no value; give one of type %s, or leave the key out", typeName(schema))
	}
}

func (c *checker) hasType(path string, schema *apiextensionsv1.JSONSchemaProps, value any, types ...string) bool {
	if slices.Contains(types, schema.Type) {
		return true
	}
	c.add(path, "%s is %s, but must be %s", show(value), kindOf(value), typeName(schema))
	return false
}

func (c *checker) object(path string, schema *apiextensionsv1.JSONSchemaProps, value map[string]any) {
	for _, key := range schema.Required {
		if _, ok := value[key]; !ok {
			c.add(Field(path, key), "is required")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(value)) {
		property, known := schema.Properties[key]
		switch {
		case known:
			c.check(Field(path, key), &property, value[key])
		case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
			c.check(Field(path, key), schema.AdditionalProperties.Schema, value[key])
		default:
			allowed := slices.Sorted(maps.Keys(schema.Properties))
			c.add(Field(path, key), "is not a known key; allowed: %s", strings.Join(allowed, ", "))
		}
	}
}

func (c *checker) list(path string, schema *apiextensionsv1.JSONSchemaProps, value []any) {
	if limit := schema.MaxItems; limit != nil && int64(len(value)) > *limit {
		c.add(path, "has %d items, above the maximum %d", len(value), *limit)
	}
	if limit := schema.MinItems; limit != nil && int64(len(value)) < *limit {
		c.add(path, "has %d items, below the minimum %d", len(value), *limit)
	}
	if schema.Items == nil || schema.Items.Schema == nil {
		return
	}
	for i, item := range value {
		c.check(Item(path, i, item), schema.Items.Schema, item)
	}
}

func (c *checker) text(path string, schema *apiextensionsv1.JSONSchemaProps, value string) {
	if limit := schema.MaxLength; limit != nil && int64(len(value)) > *limit {
		c.add(path, "%q has %d characters, above the maximum %d", value, len(value), *limit)
	}
	if limit := schema.MinLength; limit != nil && int64(len(value)) < *limit {
		c.add(path, "%q has %d characters, below the minimum %d", value, len(value), *limit)
	}
	if schema.Pattern != "" && !matches(schema.Pattern, value) {
		allowed := schema.Description
		if allowed == "" || schema.XIntOrString {
			allowed = "it must match " + schema.Pattern
		}
		c.add(path, "%q is not allowed; %s", value, firstSentence(allowed))
	}
	c.rules(path, schema, value)
	if len(schema.Enum) == 0 {
		return
	}
	allowed := make([]string, 0, len(schema.Enum))
	for _, item := range schema.Enum {
		allowed = append(allowed, strings.Trim(string(item.Raw), `"`))
	}
	if !slices.Contains(allowed, value) {
		c.add(path, "%q is not allowed; allowed: %s", value, strings.Join(allowed, ", "))
	}
}

// matchRule is a CEL rule that a string matches an expression, or does not. The expression holds no backslash, which CEL
// would read as an escape.
var matchRule = regexp.MustCompile(`^(!?)self\.matches\('([^'\\]*)'\)$`)

func (c *checker) rules(path string, schema *apiextensionsv1.JSONSchemaProps, value string) {
	for _, rule := range schema.XValidations {
		parts := matchRule.FindStringSubmatch(rule.Rule)
		if parts == nil {
			continue
		}
		if unwanted := parts[1] == "!"; matches(parts[2], value) == unwanted {
			c.add(path, "%q is not allowed; %s", value, rule.Message)
		}
	}
}

// matches reports whether value matches, with a pattern that does not compile taken as matched: the patterns are
// constants of this project, which a test compiles.
func matches(pattern, value string) bool {
	expression, err := regexp.Compile(pattern)
	return err != nil || expression.MatchString(value)
}

func (c *checker) number(path string, schema *apiextensionsv1.JSONSchemaProps, number float64, value any) {
	if limit := schema.Minimum; limit != nil && number < *limit {
		c.add(path, "%v is below the minimum %v", value, *limit)
	}
	if limit := schema.Maximum; limit != nil && number > *limit {
		c.add(path, "%v is above the maximum %v", value, *limit)
	}
}

func typeName(schema *apiextensionsv1.JSONSchemaProps) string {
	if schema.XIntOrString {
		return "a number or a string"
	}
	return withArticle(schema.Type)
}

func kindOf(value any) string {
	switch value.(type) {
	case map[string]any:
		return withArticle("object")
	case []any:
		return withArticle("array")
	case string:
		return withArticle("string")
	case bool:
		return withArticle("boolean")
	default:
		return withArticle("number")
	}
}

func withArticle(schemaType string) string {
	switch schemaType {
	case "object":
		return "a set of keys"
	case "array":
		return "a list"
	case "integer":
		return "a whole number"
	case "boolean":
		return "true or false"
	default:
		return "a " + schemaType
	}
}

// show is the value as a person wrote it; what is long or nested is only hinted at.
func show(value any) string {
	switch v := value.(type) {
	case string:
		return fmt.Sprintf("%q", v)
	case map[string]any:
		return "{" + strings.Join(slices.Sorted(maps.Keys(v)), ", ") + "}"
	case []any:
		return fmt.Sprintf("[%d items]", len(v))
	default:
		return fmt.Sprint(v)
	}
}

func firstSentence(text string) string {
	text = strings.ReplaceAll(text, "\n", " ")
	if i := strings.Index(text, ". "); i >= 0 {
		text = text[:i]
	}
	return strings.TrimSuffix(text, ".")
}
