package kube

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Type is the TypeMeta of a kind. Typed Kubernetes values leave it empty by themselves.
func Type(version schema.GroupVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version.String(), Kind: kind}
}

// Fields returns obj as a tree of map[string]any, []any, string, bool, int64 and float64: what a manifest holds.
// It fails when obj has no apiVersion, kind or metadata.name.
func Fields(obj any) (map[string]any, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", obj, err)
	}
	fields := map[string]any{}
	if err := utiljson.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("decode %T: %w", obj, err)
	}
	delete(fields, "status")
	dropNulls(fields)
	return fields, checkIdentity(fields)
}

func checkIdentity(fields map[string]any) error {
	var errs []error
	for _, key := range []string{"apiVersion", "kind"} {
		if s, ok := fields[key].(string); !ok || s == "" {
			errs = append(errs, fmt.Errorf("object has no %s: set its TypeMeta", key))
		}
	}
	metadata, _ := fields["metadata"].(map[string]any)
	if s, ok := metadata["name"].(string); !ok || s == "" {
		errs = append(errs, errors.New("object has no metadata.name: generated names cannot be rendered or handed over"))
	}
	return errors.Join(errs...)
}

func dropNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			if item == nil {
				delete(v, key)
				continue
			}
			dropNulls(item)
		}
	case []any:
		for _, item := range v {
			dropNulls(item)
		}
	}
}

func inputs(fields map[string]any) pulumi.Map {
	m := make(pulumi.Map, len(fields))
	for key, value := range fields {
		m[key] = input(value)
	}
	return m
}

func input(value any) pulumi.Input {
	switch v := value.(type) {
	case map[string]any:
		return inputs(v)
	case []any:
		list := make(pulumi.Array, len(v))
		for i, item := range v {
			list[i] = input(item)
		}
		return list
	case string:
		return pulumi.String(v)
	case bool:
		return pulumi.Bool(v)
	case int64:
		return pulumi.Int(v)
	case float64:
		return pulumi.Float64(v)
	default:
		return pulumi.Any(v)
	}
}
