package platform

import (
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/holdfast-io/holdfast/components"
)

// platformName is the logical name of the Platform component.
const platformName = "holdfast"

// Deploy registers the platform stack.
//
// The order is: the tenants' namespaces with the operator's Role in each, the operator, then the custom resources; and
// the reverse on destroy. A tenant that is removed leaves the operator's configuration first, and is deleted at the end
// of the update: nothing recreates what the garbage collector takes, and no finalizer waits for an operator that has
// stopped watching.
func Deploy(ctx *pulumi.Context, config *Config) error {
	spaces, err := deploySpaces(ctx, config)
	if err != nil {
		return err
	}
	platform, err := components.NewPlatform(ctx, platformName, platformArgs(config, spaces))
	if err != nil {
		return err
	}
	dependencies := []pulumi.Resource{platform}
	if config.DevEtcd != nil {
		etcd, err := components.NewDevEtcd(ctx, "dev-etcd", devEtcdArgs(config))
		if err != nil {
			return err
		}
		dependencies = append(dependencies, etcd)
	}
	tenants := pulumi.Map{}
	for i := range config.Tenants {
		tenant, err := components.NewLeaseTenant(ctx, config.Tenants[i].Name, leaseTenantArgs(config, &config.Tenants[i]),
			pulumi.DependsOn(append([]pulumi.Resource{spaces[i]}, dependencies...)))
		if err != nil {
			return err
		}
		tenants[config.Tenants[i].Name] = pulumi.Map{
			"name": tenant.Name, "namespace": tenant.Namespace, "endpoint": tenant.Endpoint,
		}
	}
	ctx.Export("namespace", platform.Namespace)
	ctx.Export("operatorImage", platform.OperatorImage)
	ctx.Export("tenants", tenants)
	return nil
}

func deploySpaces(ctx *pulumi.Context, config *Config) ([]pulumi.Resource, error) {
	spaces := make([]pulumi.Resource, 0, len(config.Tenants))
	for i := range config.Tenants {
		tenant := &config.Tenants[i]
		space, err := components.NewTenantSpace(ctx, tenant.Name, &components.TenantSpaceArgs{
			Tenant:            tenant.Name,
			Namespace:         tenant.Namespace,
			ExistingNamespace: tenant.CreateNamespace != nil && !*tenant.CreateNamespace,
			OperatorNamespace: config.Namespace,
			Quota:             tenant.Quota,
		})
		if err != nil {
			return nil, err
		}
		spaces = append(spaces, space)
	}
	return spaces, nil
}

func platformArgs(config *Config, spaces []pulumi.Resource) *components.PlatformArgs {
	args := &components.PlatformArgs{
		Namespace: config.Namespace,
		Operator: components.OperatorArgs{
			Image:                   config.Operator.Image,
			LeaseServiceImage:       config.LeaseService.Image,
			Replicas:                config.Operator.Replicas,
			Resources:               config.Operator.Resources,
			LogLevel:                config.Operator.LogLevel,
			MaxConcurrentReconciles: config.LeaseService.MaxConcurrentReconciles,
		},
		After:      spaces,
		DeleteCRDs: config.CRDs.RetainOnDelete != nil && !*config.CRDs.RetainOnDelete,
	}
	for i := range config.Tenants {
		args.TenantNamespaces = append(args.TenantNamespaces, config.Tenants[i].Namespace)
	}
	if zk := config.ZooKeeper; zk != nil {
		args.Operator.ZooKeeper = new(components.ZooKeeperArgs(*zk))
	}
	if argo := config.ArgoCD; argo != nil {
		args.ArgoCD = new(components.ArgoCDArgs(*argo))
	}
	return args
}

func devEtcdArgs(config *Config) *components.DevEtcdArgs {
	args := &components.DevEtcdArgs{
		Namespace:        config.DevEtcd.Namespace,
		Image:            config.DevEtcd.Image,
		Storage:          config.DevEtcd.Storage,
		StorageClassName: config.DevEtcd.StorageClassName,
		Resources:        config.DevEtcd.Resources,
	}
	for i := range config.Tenants {
		tenant := &config.Tenants[i]
		if tenant.UseDevEtcd || slices.Contains(tenant.EtcdEndpoints, components.DevEtcdEndpoint(args.Namespace)) {
			args.ClientNamespaces = append(args.ClientNamespaces, tenant.Namespace)
		}
	}
	return args
}

func leaseTenantArgs(config *Config, tenant *Tenant) *components.LeaseTenantArgs {
	args := &components.LeaseTenantArgs{
		Tenant:    tenant.Name,
		Namespace: tenant.Namespace,
		Service:   tenant.LeaseServiceSpec,
	}
	if tenant.UseDevEtcd {
		args.Service.EtcdEndpoints = []string{components.DevEtcdEndpoint(config.DevEtcd.Namespace)}
	}
	return args
}
