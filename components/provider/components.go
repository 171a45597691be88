package provider

import (
	"fmt"
	"reflect"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/holdfast-io/holdfast/components"
)

const (
	// Name of the package.
	Name = "holdfast"
	// Version of the package, as its schema and its SDKs have it.
	Version = "0.1.0"
)

// Component is one component of the package.
type Component struct {
	// Name of the component, such as "LeaseTenant".
	Name string
	// Args is the struct of its arguments.
	Args reflect.Type
	// State is the struct of the component itself; its fields with a tag "pulumi" are the outputs.
	State reflect.Type

	construct func(ctx *pulumi.Context, name string, in *inputs, opts ...pulumi.ResourceOption) (pulumi.ComponentResource, error)
}

// Token is the type token of the component.
func (c Component) Token() string { return Name + ":index:" + c.Name }

// Components are all components of the package, ordered by name.
func Components() []Component {
	return []Component{
		define(components.NewDevEtcd),
		define(components.NewGitOpsHandover),
		define(components.NewLeaseTenant),
		define(components.NewPlatform),
		define(components.NewTenantSpace),
		define(components.NewZooKeeperConfigSet),
	}
}

// define makes a Component of a constructor.
func define[A, C any, R interface {
	*C
	pulumi.ComponentResource
}](construct func(*pulumi.Context, string, *A, ...pulumi.ResourceOption) (R, error)) Component {
	state := reflect.TypeFor[C]()
	return Component{
		Name:  state.Name(),
		Args:  reflect.TypeFor[A](),
		State: state,
		construct: func(
			ctx *pulumi.Context, name string, in *inputs, opts ...pulumi.ResourceOption,
		) (pulumi.ComponentResource, error) {
			if in.unknown {
				return placeholder[C, R](ctx, state.Name(), name, opts...)
			}
			args := new(A)
			if err := in.decode(args); err != nil {
				return nil, fmt.Errorf("%s %s: %w", state.Name(), name, err)
			}
			return construct(ctx, name, args, opts...)
		},
	}
}

// placeholder stands for a component in a preview that does not know all arguments yet: plain arguments have no unknown
// values. The objects in it show in the update only.
func placeholder[C any, R interface {
	*C
	pulumi.ComponentResource
}](ctx *pulumi.Context, component, name string, opts ...pulumi.ResourceOption) (pulumi.ComponentResource, error) {
	res := R(new(C))
	if err := ctx.RegisterComponentResource(Name+":index:"+component, name, res, opts...); err != nil {
		return nil, fmt.Errorf("register %s %s: %w", component, name, err)
	}
	message := "some arguments come from resources that are not there yet: the objects in it are not part of this preview"
	return res, ctx.Log.Info(message, &pulumi.LogArgs{Resource: res})
}
