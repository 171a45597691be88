// Package render runs a Pulumi program without an engine, a provider or a cluster, and gives what it registers: to
// tests as a list of resources, to GitOps as manifests.
package render

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// Names of the project and the stack that a recorded program runs in.
const (
	Project = "holdfast"
	Stack   = "render"
)

// Resource is what a program registered.
type Resource struct {
	// URN identifies the resource, and is unique.
	URN string
	// Type is the type token, such as "kubernetes:apps/v1:Deployment".
	Type string
	// Name is the logical name.
	Name string
	// Parent is the URN of the parent.
	Parent string
	// Dependencies are the URNs of the resources that have to exist first, ordered. A component among the
	// dependencies is given by the resources in it.
	Dependencies []string
	// RetainOnDelete tells whether the object stays when the resource goes.
	RetainOnDelete bool
	// DeletedWith is the URN of the resource that takes the object along when it goes, so that it is not deleted itself.
	DeletedWith string
	// BeforeDelete are the names of the hooks that run before the resource is deleted.
	BeforeDelete []string
	// Version is the version of the provider asked for; empty for a component.
	Version string
	// CreateTimeout is the time an update waits for a new object, such as "5m"; empty for the provider's default.
	CreateTimeout string
	// Fields of the object: map[string]any, []any, string, bool, int64 and float64. Nil for a component.
	Fields map[string]any
}

// ErrSecret is wrapped by the error for a program that registers a secret value: a manifest would show it.
var ErrSecret = errors.New("holds a secret value, which must not be rendered; refer to a Secret by its name instead")

// Record runs the program and returns what it registered, ordered by URN.
func Record(program pulumi.RunFunc) ([]Resource, error) {
	r := &recorder{}
	if err := pulumi.RunErr(program, pulumi.WithMocks(Project, Stack, r)); err != nil {
		return nil, fmt.Errorf("record the program: %w", err)
	}
	slices.SortFunc(r.resources, func(a, b Resource) int { return strings.Compare(a.URN, b.URN) })
	return r.resources, nil
}

// recorder is the mock of an engine in which every object is created just as it was asked for.
type recorder struct {
	mu        sync.Mutex
	resources []Resource
}

// NewResource records the resource. The SDK calls it concurrently.
func (r *recorder) NewResource(args pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	rpc := args.RegisterRPC
	if rpc == nil {
		return "", nil, fmt.Errorf("%s %s is read from a cluster, and there is none while rendering", args.TypeToken, args.Name)
	}
	recorded := Resource{
		URN:            urn(rpc.GetParent(), args.TypeToken, args.Name),
		Type:           args.TypeToken,
		Name:           args.Name,
		Parent:         rpc.GetParent(),
		Dependencies:   slices.Sorted(slices.Values(rpc.GetDependencies())),
		RetainOnDelete: rpc.GetRetainOnDelete(),
		DeletedWith:    rpc.GetDeletedWith(),
		BeforeDelete:   rpc.GetHooks().GetBeforeDelete(),
		Version:        rpc.GetVersion(),
		CreateTimeout:  rpc.GetCustomTimeouts().GetCreate(),
	}
	if args.Custom {
		if args.Inputs.ContainsSecrets() {
			return "", nil, fmt.Errorf("%s %s: %w", args.TypeToken, args.Name, ErrSecret)
		}
		recorded.Fields, _ = integers(args.Inputs.Mappable()).(map[string]any)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resources = append(r.resources, recorded)
	return args.Name + "-id", args.Inputs, nil
}

// Call refuses: what a provider's function would answer is not known without the provider.
func (r *recorder) Call(args pulumi.MockCallArgs) (resource.PropertyMap, error) {
	return nil, fmt.Errorf("%s is called, which cannot be answered while rendering", args.Token)
}

func urn(parent, typeToken, name string) string {
	var parentType tokens.Type
	if p := resource.URN(parent); parent != "" && p.QualifiedType() != resource.RootStackType {
		parentType = p.QualifiedType()
	}
	return string(resource.NewURN(Stack, Project, parentType, tokens.Type(typeToken), name))
}

// integers turns numbers without a fraction into int64: Pulumi's wire format only knows float64, which YAML would write
// as 1e+06.
func integers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			v[key] = integers(item)
		}
	case []any:
		for i, item := range v {
			v[i] = integers(item)
		}
	case float64:
		if whole := int64(v); float64(whole) == v {
			return whole
		}
	}
	return value
}
