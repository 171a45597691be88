package handover

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// DeclareOwner returns a stack's file with the owner changed: of the stack when tenant is empty, else of that tenant alone.
// Nothing else of the file changes, comments and layout included: the one value is exchanged or added where it stands in the
// text, and the outcome is compared with the original.
func DeclareOwner(file []byte, tenant string, owner Target) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(file, &document); err != nil {
		return nil, fmt.Errorf("read the stack's file: %w", err)
	}
	config := child(child(&document, ""), "config")
	if config == nil || config.Kind != yaml.MappingNode || len(config.Content) == 0 {
		return nil, errors.New("the stack's file has no keys under config")
	}
	edited, err := declare(file, config, tenant, owner)
	if err != nil {
		return nil, err
	}
	return edited, onlyOwnerDiffers(file, edited, tenant, owner)
}

const (
	ownershipKey = "ownership"
	stackOwner   = "holdfast:" + ownershipKey
	tenantsKey   = "holdfast:tenants"
)

func declare(file []byte, config *yaml.Node, tenant string, owner Target) ([]byte, error) {
	if tenant == "" {
		if value := child(config, stackOwner); value != nil {
			return replaceScalar(file, value, string(owner))
		}
		return insertLine(file, config.Content[0], stackOwner, owner), nil
	}
	list := child(config, tenantsKey)
	if list == nil {
		return nil, errors.New("the stack's file has no " + tenantsKey)
	}
	for _, item := range list.Content {
		if name := child(item, "name"); name == nil || name.Value != tenant {
			continue
		}
		if value := child(item, ownershipKey); value != nil {
			return replaceScalar(file, value, string(owner))
		}
		if item.Style&yaml.FlowStyle != 0 {
			return insertInFlow(file, item, owner)
		}
		return insertLine(file, item.Content[0], ownershipKey, owner), nil
	}
	return nil, fmt.Errorf("%s has no tenant %q", tenantsKey, tenant)
}

// child is the value under the key of a mapping; for an empty key the root of a document.
func child(node *yaml.Node, key string) *yaml.Node {
	if node == nil {
		return nil
	}
	if key == "" {
		if node.Kind != yaml.DocumentNode || len(node.Content) == 0 {
			return nil
		}
		return node.Content[0]
	}
	if node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

// offset is where a node begins in the text. A node knows its line and its column in characters, counted from one.
func offset(file []byte, node *yaml.Node) int {
	at := 0
	for range node.Line - 1 {
		at += bytes.IndexByte(file[at:], '\n') + 1
	}
	line := string(file[at:])
	characters := 0
	for i := range line {
		characters++
		if characters == node.Column {
			return at + i
		}
	}
	return len(file)
}

func replaceScalar(file []byte, node *yaml.Node, value string) ([]byte, error) {
	at := offset(file, node)
	written := node.Value
	switch node.Style {
	case yaml.DoubleQuotedStyle:
		written = `"` + written + `"`
	case yaml.SingleQuotedStyle:
		written = `'` + written + `'`
	default: // a plain word, or what the comparison below does not find
	}
	if !bytes.HasPrefix(file[at:], []byte(written)) {
		return nil, fmt.Errorf("line %d of the stack's file: write ownership as a plain word", node.Line)
	}
	return splice(file, at, len(written), value), nil
}

// insertLine adds a key before another one of the same mapping, on a line of its own.
func insertLine(file []byte, before *yaml.Node, key string, owner Target) []byte {
	at := offset(file, before)
	indent := strings.Repeat(" ", before.Column-1)
	return splice(file, at, 0, key+": "+string(owner)+"\n"+indent)
}

func insertInFlow(file []byte, item *yaml.Node, owner Target) ([]byte, error) {
	at := offset(file, item)
	if at >= len(file) || file[at] != '{' {
		return nil, fmt.Errorf("line %d of the stack's file: add %s: %s to the tenant by hand", item.Line, ownershipKey, owner)
	}
	return splice(file, at+1, 0, ownershipKey+": "+string(owner)+", "), nil
}

func splice(file []byte, at, length int, text string) []byte {
	out := make([]byte, 0, len(file)+len(text))
	out = append(out, file[:at]...)
	out = append(out, text...)
	return append(out, file[at+length:]...)
}

// onlyOwnerDiffers checks the edit by what it means: the same change made to the decoded file.
func onlyOwnerDiffers(before, after []byte, tenant string, owner Target) error {
	var was, is map[string]any
	if err := yaml.Unmarshal(before, &was); err != nil {
		return fmt.Errorf("read the stack's file: %w", err)
	}
	if err := yaml.Unmarshal(after, &is); err != nil {
		return fmt.Errorf("the stack's file cannot be edited, set ownership to %s by hand: %w", owner, err)
	}
	config, _ := was["config"].(map[string]any)
	if tenant == "" {
		config[stackOwner] = string(owner)
	} else {
		list, _ := config[tenantsKey].([]any)
		for _, item := range list {
			if fields, ok := item.(map[string]any); ok && fields["name"] == tenant {
				fields[ownershipKey] = string(owner)
			}
		}
	}
	if !reflect.DeepEqual(was, is) {
		return fmt.Errorf("the stack's file cannot be edited without changing more than the owner: set ownership to %s by hand", owner)
	}
	return nil
}
