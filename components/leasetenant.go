package components

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/holdfast-io/holdfast/components/kube"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

const leaseTenantType = "holdfast:index:LeaseTenant"

// maxLeaseServiceName is the longest name that the API allows a LeaseService.
const maxLeaseServiceName = 52

// LeaseTenantArgs configures a [LeaseTenant].
type LeaseTenantArgs struct {
	// Tenant is the tenant's name, and the name of its LeaseService; required. A name that is too long for a
	// LeaseService is cut and ends in a hash.
	Tenant string
	// Namespace of the LeaseService. Empty takes the tenant's name. It is taken as it is, and the operator has to watch
	// it, unless Space asks for it to be made.
	Namespace string
	// Space makes the namespace ready for the tenant, as a part of this component; its Tenant and Namespace are those
	// of the LeaseTenant. Nil: the namespace has been prepared, by a [TenantSpace] or otherwise.
	Space *TenantSpaceArgs
	// Service is the spec of the LeaseService.
	Service v1alpha1.LeaseServiceSpec
	// Autoscaled leaves the number of replicas to an autoscaler, which owns the field: it is never sent.
	Autoscaled bool
	// SkipAwait lets the update go on before the LeaseService is Ready.
	SkipAwait bool
}

// LeaseTenant is the lease service of one tenant.
type LeaseTenant struct {
	pulumi.ResourceState

	// Name is the name of the LeaseService.
	Name pulumi.StringOutput `pulumi:"name"`
	// Namespace is the namespace of the LeaseService.
	Namespace pulumi.StringOutput `pulumi:"namespace"`
	// Endpoint is the address that clients in the cluster connect to, as "host:port"; known once it serves.
	Endpoint pulumi.StringOutput `pulumi:"endpoint"`
	// Service is the LeaseService itself.
	Service *LeaseService
}

// LeaseServiceName is the name of the LeaseService of a tenant.
func LeaseServiceName(tenant string) string { return kube.Name(maxLeaseServiceName, tenant) }

// LeaseServiceEndpoint is the address of a tenant's LeaseService inside the cluster, as "host:port".
func LeaseServiceEndpoint(tenant, namespace string) string {
	return fmt.Sprintf("%s.%s.svc:%d", LeaseServiceName(tenant), namespace, v1alpha1.LeaseServicePort)
}

// NewLeaseTenant registers a LeaseTenant.
func NewLeaseTenant(
	ctx *pulumi.Context, name string, args *LeaseTenantArgs, opts ...pulumi.ResourceOption,
) (*LeaseTenant, error) {
	if args.Tenant == "" {
		return nil, fmt.Errorf("LeaseTenant %s: tenant is required", name)
	}
	tenant := &LeaseTenant{}
	if err := ctx.RegisterComponentResource(leaseTenantType, name, tenant, opts...); err != nil {
		return nil, fmt.Errorf("register LeaseTenant %s: %w", name, err)
	}
	namespace := orDefault(args.Namespace, args.Tenant)
	serviceOpts := []pulumi.ResourceOption{pulumi.Parent(tenant)}
	if args.Space != nil {
		space := *args.Space
		space.Tenant, space.Namespace = args.Tenant, namespace
		space.TokenReview = space.TokenReview || (args.Service.Auth != nil && args.Service.Auth.TokenReview)
		made, err := NewTenantSpace(ctx, name+"-space", &space, pulumi.Parent(tenant))
		if err != nil {
			return nil, err
		}
		serviceOpts = append(serviceOpts, pulumi.DependsOn(made.Objects()))
	}
	serviceName := LeaseServiceName(args.Tenant)
	service, err := NewLeaseService(ctx, name+"-leaseservice", &LeaseServiceArgs{
		Metadata:   objectMeta(namespace, serviceName, tenantLabels(args.Tenant)),
		Spec:       args.Service,
		Autoscaled: args.Autoscaled,
		SkipAwait:  args.SkipAwait,
	}, serviceOpts...)
	if err != nil {
		return nil, err
	}
	tenant.Service = service
	tenant.Name = after(service, serviceName)
	tenant.Namespace = after(service, namespace)
	tenant.Endpoint = after(service, LeaseServiceEndpoint(args.Tenant, namespace))
	return tenant, ctx.RegisterResourceOutputs(tenant, pulumi.Map{
		"name": tenant.Name, "namespace": tenant.Namespace, "endpoint": tenant.Endpoint,
	})
}
