package kube

import (
	"fmt"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// ProviderVersion is the version of the Pulumi Kubernetes provider that every resource asks for.
const ProviderVersion = "4.25.0"

// Resource is one Kubernetes object in a Pulumi stack.
type Resource struct {
	pulumi.CustomResourceState

	// Metadata is the object's metadata as the API server returned it.
	Metadata pulumi.MapOutput `pulumi:"metadata"`
}

// New registers obj under the logical name.
//
// obj is a Kubernetes API value or a pointer to one, with apiVersion, kind and metadata.name set: names are fixed,
// never generated, so that the same object can be rendered to a manifest and owned by somebody else later.
// Status and null fields are left out. Awaiting, diffing and refreshing are the provider's own.
func New(ctx *pulumi.Context, name string, obj any, opts ...pulumi.ResourceOption) (*Resource, error) {
	res := &Resource{}
	if err := Register(ctx, name, obj, res, opts...); err != nil {
		return nil, err
	}
	return res, nil
}

// Register does what [New] does for a resource type of the caller's, whose outputs are resolved from the object.
func Register(
	ctx *pulumi.Context, name string, obj any, res pulumi.CustomResource, opts ...pulumi.ResourceOption,
) error {
	return register(ctx, "", name, obj, res, opts)
}

// Patch registers the fields of obj as a part of an object that somebody else makes: server-side apply adds them to it, and
// deleting the resource takes only them away.
func Patch(ctx *pulumi.Context, name string, obj any, opts ...pulumi.ResourceOption) (*Resource, error) {
	res := &Resource{}
	if err := register(ctx, "Patch", name, obj, res, opts); err != nil {
		return nil, err
	}
	return res, nil
}

// register takes what follows the kind in the type token.
func register(
	ctx *pulumi.Context, suffix, name string, obj any, res pulumi.CustomResource, opts []pulumi.ResourceOption,
) error {
	fields, err := Fields(obj)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	apiVersion, kind := fields["apiVersion"].(string), fields["kind"].(string)
	opts = append([]pulumi.ResourceOption{pulumi.Version(ProviderVersion)}, opts...)
	if err := ctx.RegisterResource(Token(apiVersion, kind)+suffix, name, inputs(fields), res, opts...); err != nil {
		return fmt.Errorf("%s: register %s: %w", name, kind, err)
	}
	return nil
}

// Token is the Pulumi type token of a Kubernetes kind. It equals the token of the generated Pulumi SDKs, so that a
// stack can move between them without replacing anything.
func Token(apiVersion, kind string) string {
	if !strings.Contains(apiVersion, "/") {
		apiVersion = "core/" + apiVersion
	}
	return "kubernetes:" + apiVersion + ":" + kind
}
