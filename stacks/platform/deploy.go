package platform

import (
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/components/render"
)

// Logical names of components.
const (
	platformName = "holdfast"
	devEtcdName  = "dev-etcd"
	gitOpsName   = "gitops"
)

// Deploy registers the platform stack.
//
// The order is: the operator, which is told of each tenant's namespace by a ConfigMap of its own, the namespaces with the
// operator's Role in each, then the custom resources; and the reverse on destroy. So a tenant that is removed goes while
// the operator still watches its namespace: finalizers in it, also of objects that this stack did not make, are waited for
// by an operator that sees them. Only then it is told to watch it no longer.
//
// Units whose owner is GitOps are not registered, but what makes Argo CD or Flux keep them is.
func Deploy(ctx *pulumi.Context, config *Config) error {
	return DeployInTransit(ctx, config, Transit{})
}

// Transit says which units are between two owners while an update runs. The zero value: none.
type Transit struct {
	// Units are registered whoever owns them, and are retained on delete: the update that comes next can drop them.
	Units []Unit
	// Shared registers beside the Units what makes Argo CD or Flux keep them. None of that cascades while Units are in
	// transit, so that it can be deleted without what it keeps.
	Shared bool
	// Destroy says that all of it is destroyed next: whether anything is ready does not matter.
	Destroy bool
}

// DeployInTransit does what [Deploy] does, with units between two owners.
func DeployInTransit(ctx *pulumi.Context, config *Config, transit Transit) error {
	return (&deployment{ctx: ctx, config: config, transit: transit}).run()
}

// RenderManifests renders all of the stack, whoever owns it. The manifests are those that Git holds.
func RenderManifests(config *Config) ([]render.Manifest, error) {
	resources, err := render.Record(func(ctx *pulumi.Context) error { return Deploy(ctx, config.OwnedByPulumi()) })
	if err != nil {
		return nil, err
	}
	return render.Manifests(resources)
}

type deployment struct {
	ctx     *pulumi.Context
	config  *Config
	transit Transit

	spaces map[string]*components.TenantSpace // by the tenant's name; those that are registered
	before []pulumi.Resource                  // what custom resources depend on

	objects []pulumi.Resource // all that have been registered
}

func (d *deployment) run() error {
	if d.transit.Destroy {
		if err := d.ctx.RegisterStackTransformation(skipReadiness); err != nil {
			return err
		}
	}
	for _, step := range []func() error{d.deployPlatform, d.deployGitOps, d.deploySpaces, d.deploySelfService, d.deployTenants, d.guardDestroy} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (d *deployment) inTransit(unit Unit) bool { return slices.Contains(d.transit.Units, unit) }

// registered reports whether the unit's objects are the stack's.
func (d *deployment) registered(unit Unit) bool {
	return d.config.Owner(unit) == OwnershipPulumi || d.inTransit(unit)
}

// kept reports whether Argo CD or Flux keep the unit's objects.
func (d *deployment) kept(unit Unit) bool {
	if d.inTransit(unit) {
		return d.transit.Shared
	}
	return d.config.Owner(unit) == OwnershipGitOps
}

// options of the components of a unit.
func (d *deployment) options(unit Unit, opts ...pulumi.ResourceOption) []pulumi.ResourceOption {
	if d.inTransit(unit) {
		opts = append(opts, pulumi.RetainOnDelete(true))
	}
	return opts
}

func (d *deployment) deploySpaces() error {
	d.spaces = map[string]*components.TenantSpace{}
	for i := range d.config.Tenants {
		tenant := &d.config.Tenants[i]
		unit := TenantUnit(tenant.Name)
		if !d.registered(unit) {
			continue
		}
		space, err := components.NewTenantSpace(d.ctx, tenant.Name, &components.TenantSpaceArgs{
			Tenant:            tenant.Name,
			Namespace:         tenant.Namespace,
			ExistingNamespace: tenant.CreateNamespace != nil && !*tenant.CreateNamespace,
			OperatorNamespace: d.config.Namespace,
			Quota:             tenant.Quota,
		}, d.options(unit, pulumi.DependsOn(d.before))...)
		if err != nil {
			return err
		}
		d.spaces[tenant.Name] = space
		d.objects = append(d.objects, space.Objects()...)
	}
	return nil
}

func (d *deployment) deployPlatform() error {
	if !d.registered(PlatformUnit) {
		d.ctx.Export("namespace", pulumi.String(d.config.Namespace))
		d.ctx.Export("operatorImage", pulumi.String(d.config.Operator.Image))
		return nil
	}
	platform, err := components.NewPlatform(d.ctx, platformName, platformArgs(d.config),
		d.options(PlatformUnit)...)
	if err != nil {
		return err
	}
	d.add(platform.Objects())
	if d.config.DevEtcd != nil {
		etcd, err := components.NewDevEtcd(d.ctx, devEtcdName, devEtcdArgs(d.config), d.options(PlatformUnit)...)
		if err != nil {
			return err
		}
		d.add(etcd.Objects())
	}
	d.ctx.Export("namespace", platform.Namespace)
	d.ctx.Export("operatorImage", platform.OperatorImage)
	return nil
}

// deployGitOps comes after what of the platform is the stack's, since a tenant's custom resources need the CRDs; and
// before the custom resources that are the stack's, which need a platform that is Git's.
func (d *deployment) deployGitOps() error {
	args := d.gitOpsArgs()
	if args == nil {
		return nil
	}
	handover, err := components.NewGitOpsHandover(d.ctx, gitOpsName, args, pulumi.DependsOn(d.before))
	if err != nil {
		return err
	}
	if !d.registered(PlatformUnit) {
		d.add(handover.Objects())
		return nil
	}
	d.objects = append(d.objects, handover.Objects()...)
	return nil
}

// add notes objects that custom resources depend on.
func (d *deployment) add(objects []pulumi.Resource) {
	d.before, d.objects = append(d.before, objects...), append(d.objects, objects...)
}

// gitOpsArgs is nil when nothing is kept by Argo CD or Flux.
func (d *deployment) gitOpsArgs() *components.GitOpsHandoverArgs {
	config := d.config.GitOps
	if config == nil {
		return nil
	}
	args := &components.GitOpsHandoverArgs{
		Flavour:                config.Flavour,
		Namespace:              config.Namespace,
		RepoURL:                config.RepoURL,
		Path:                   config.Path,
		Revision:               config.Revision,
		SecretName:             config.SecretName,
		Cascade:                config.Cascade && len(d.transit.Units) == 0,
		Await:                  (config.Await == nil || *config.Await) && !d.transit.Destroy,
		InstallHealth:          config.InstallHealth,
		RevisionManagedByGuard: config.RevisionManagedByGuard,
	}
	if d.kept(PlatformUnit) {
		folders := d.config.Folders(PlatformUnit)
		args.CRDs, args.Platform = folders[0], folders[1:]
	}
	for i := range d.config.Tenants {
		if unit := TenantUnit(d.config.Tenants[i].Name); d.kept(unit) {
			args.Tenants = append(args.Tenants, d.config.Folders(unit)...)
		}
	}
	if args.CRDs == "" && len(args.Tenants) == 0 {
		return nil
	}
	return args
}

func (d *deployment) deployTenants() error {
	tenants := pulumi.Map{}
	for i := range d.config.Tenants {
		tenant := &d.config.Tenants[i]
		unit := TenantUnit(tenant.Name)
		if !d.registered(unit) {
			tenants[tenant.Name] = pulumi.Map{
				"name":      pulumi.String(components.LeaseServiceName(tenant.Name)),
				"namespace": pulumi.String(tenant.Namespace),
				"endpoint":  pulumi.String(components.LeaseServiceEndpoint(tenant.Name, tenant.Namespace)),
			}
			continue
		}
		dependencies := slices.Concat(d.spaces[tenant.Name].Objects(), d.before)
		made, err := components.NewLeaseTenant(d.ctx, tenant.Name, leaseTenantArgs(d.config, tenant),
			d.options(unit, pulumi.DependsOn(dependencies))...)
		if err != nil {
			return err
		}
		d.objects = append(d.objects, made.Service)
		tenants[tenant.Name] = pulumi.Map{"name": made.Name, "namespace": made.Namespace, "endpoint": made.Endpoint}
	}
	d.ctx.Export("tenants", tenants)
	return nil
}

func platformArgs(config *Config) *components.PlatformArgs {
	args := &components.PlatformArgs{
		Namespace: config.Namespace,
		Operator: components.OperatorArgs{
			Image:                   config.Operator.Image,
			LeaseServiceImage:       config.LeaseService.Image,
			Replicas:                config.Operator.Replicas,
			Resources:               config.Operator.Resources,
			LogLevel:                config.Operator.LogLevel,
			MaxConcurrentReconciles: config.LeaseService.MaxConcurrentReconciles,
			PlainLeaseServices:      config.LeaseService.TLS.Enabled != nil && !*config.LeaseService.TLS.Enabled,
			CertificateLifetime:     config.LeaseService.TLS.CertificateLifetime,
			ProvisionEtcd:           config.LeaseService.ProvisionEtcd,
			OperatorChanges:         config.LeaseService.OperatorChanges,
		},
		DeleteCRDs: config.CRDs.RetainOnDelete != nil && !*config.CRDs.RetainOnDelete,
	}
	for i := range config.Tenants {
		tenant := &config.Tenants[i]
		args.TenantNamespaces = append(args.TenantNamespaces, tenant.Namespace)
		if tenant.Auth != nil && tenant.Auth.TokenReview {
			// Not the tenant's: whoever may change a tenant's folder in Git must not be able to give rights in the whole cluster.
			args.TokenReviewers = append(args.TokenReviewers, components.TokenReviewer{Tenant: tenant.Name, Namespace: tenant.Namespace})
		}
	}
	for i := range config.SelfService {
		args.TenantNamespaces = append(args.TenantNamespaces, config.SelfService[i].Namespace)
	}
	if zk := config.ZooKeeper; zk != nil {
		args.Operator.ZooKeeper = new(components.ZooKeeperArgs(*zk))
	}
	args.Operator.ReleaseGuard = config.ReleaseGuard
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
	for i := range config.SelfService {
		if space := &config.SelfService[i]; slices.Contains(space.limits(config).EtcdEndpoints, components.DevEtcdEndpoint(args.Namespace)) {
			args.ClientNamespaces = append(args.ClientNamespaces, space.Namespace)
		}
	}
	return args
}

func leaseTenantArgs(config *Config, tenant *Tenant) *components.LeaseTenantArgs {
	args := &components.LeaseTenantArgs{
		Tenant:     tenant.Name,
		Namespace:  tenant.Namespace,
		Service:    tenant.LeaseServiceSpec,
		Autoscaled: tenant.Autoscaled,
	}
	if tenant.UseDevEtcd {
		args.Service.EtcdEndpoints = []string{components.DevEtcdEndpoint(config.DevEtcd.Namespace)}
	}
	return args
}
