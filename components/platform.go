package components

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/holdfast-io/holdfast/components/kube"
	"github.com/holdfast-io/holdfast/crds"
)

const (
	platformType = "holdfast:index:Platform"
	// operatorName is the name of every object of the operator.
	operatorName = "holdfast-operator"
)

// DefaultNamespace is the namespace of a [Platform] that names none.
const DefaultNamespace = "holdfast-system"

// PlatformArgs configures a [Platform].
type PlatformArgs struct {
	// Namespace that is made for the operator. Empty takes [DefaultNamespace].
	Namespace string
	// Operator configures the operator.
	Operator OperatorArgs
	// TenantNamespaces are the namespaces that the operator watches, each with the operator's Role in it. None: it
	// watches its own namespace only. Each is told to the operator by a ConfigMap, while it runs, and need not exist before:
	// what makes a namespace should depend on the Platform, so that the operator is there until it has gone.
	TenantNamespaces []string
	// TokenReviewers are tenants whose LeaseServices may ask the API server whose a ServiceAccount token is, as
	// spec.auth.tokenReview needs: a ClusterRoleBinding for each, which then is one of the Platform's objects and none of the
	// tenant's. Whoever may apply a tenant's objects need not have the right to give rights in the whole cluster.
	TokenReviewers []TokenReviewer
	// DeleteCRDs lets the CRDs go with the component. Otherwise they stay in the cluster, since every object of their
	// kinds, of whatever stack, would be deleted with them.
	DeleteCRDs bool
	// ArgoCD adds an Argo CD Application. Nil: none.
	ArgoCD *ArgoCDArgs
}

// TokenReviewer is a tenant among a Platform's TokenReviewers.
type TokenReviewer struct {
	// Tenant is the name of the tenant; required.
	Tenant string
	// Namespace of the tenant. Empty takes the tenant's name.
	Namespace string
}

// OperatorArgs configures the operator's Deployment.
type OperatorArgs struct {
	// Image of the operator; required.
	Image string
	// LeaseServiceImage is the image of a LeaseService that names none; required.
	LeaseServiceImage string
	// Replicas, of which one is elected to work and the others stand by. Zero means 1.
	Replicas int32
	// Resources of the container.
	Resources corev1.ResourceRequirements
	// LogLevel is "debug", "info", "warn" or "error". Empty means "info".
	LogLevel string
	// MaxConcurrentReconciles of LeaseServices. Zero means 4.
	MaxConcurrentReconciles int
	// PlainLeaseServices: no certificates are issued, and a LeaseService that says nothing of TLS speaks plain text.
	PlainLeaseServices bool
	// CertificateLifetime of what is issued, such as "720h", 1h to 4320h. Empty means 2160h.
	CertificateLifetime string
	// ProvisionEtcd lets the operator keep a user of etcd for each LeaseService, by the Secret holdfast-etcd-admin in its
	// namespace, which has to be there when the operator starts. Not with PlainLeaseServices.
	ProvisionEtcd bool
	// OperatorChanges is when pods of LeaseServices are replaced because another operator makes them otherwise: "Approve"
	// or "Automatic". Empty means "Approve".
	OperatorChanges string
	// ZooKeeper configures how it uses ZooKeeper. Nil: every ZooKeeperConfig names its own ensemble.
	ZooKeeper *ZooKeeperArgs
	// ReleaseGuard lets it serve ReleaseGuards. Nil: it has no right in Argo CD's namespace, and serves none.
	ReleaseGuard *ReleaseGuardOperatorArgs
}

// Platform is the operator and all that it needs.
type Platform struct {
	pulumi.ResourceState

	// Namespace is the operator's namespace.
	Namespace pulumi.StringOutput `pulumi:"namespace"`
	// OperatorImage is the image that runs, known once its rollout is complete.
	OperatorImage pulumi.StringOutput `pulumi:"operatorImage"`

	objects []pulumi.Resource
}

// Objects are all objects in it. What comes after the Platform should depend on them and not on the
// component: the SDK takes a component for the objects that have been registered in it by the time it looks, and it looks
// before all of them are.
func (p *Platform) Objects() []pulumi.Resource { return p.objects }

// NewPlatform registers a Platform. Custom resources should depend on its Objects, so that they are created when the
// operator runs and are deleted before it.
func NewPlatform(
	ctx *pulumi.Context, name string, args *PlatformArgs, opts ...pulumi.ResourceOption,
) (*Platform, error) {
	if args.Operator.Image == "" || args.Operator.LeaseServiceImage == "" {
		return nil, fmt.Errorf("Platform %s: operator.image %q and operator.leaseServiceImage %q must both be set",
			name, args.Operator.Image, args.Operator.LeaseServiceImage)
	}
	if err := args.Operator.ZooKeeper.check(); err != nil {
		return nil, fmt.Errorf("Platform %s: %w", name, err)
	}
	for i, reviewer := range args.TokenReviewers {
		if reviewer.Tenant == "" {
			return nil, fmt.Errorf("Platform %s: tokenReviewers[%d].tenant is required", name, i)
		}
	}
	platform := &Platform{}
	if err := ctx.RegisterComponentResource(platformType, name, platform, opts...); err != nil {
		return nil, fmt.Errorf("register Platform %s: %w", name, err)
	}
	namespace := orDefault(args.Namespace, DefaultNamespace)
	own := children{ctx: ctx, name: name, parent: platform, made: &platform.objects}
	definitions, err := addCRDs(own, args.DeleteCRDs)
	if err != nil {
		return nil, err
	}
	ns, err := own.add("namespace", restrictedNamespace(namespace, operatorLabels()), timeouts("", "", "5m"))
	if err != nil {
		return nil, err
	}
	deployment, err := addOperator(own, namespace, args, ns, definitions)
	if err != nil {
		return nil, err
	}
	if args.ArgoCD != nil {
		if _, err := own.add("application", argoApplication(args.ArgoCD, namespace),
			pulumi.DependsOn([]pulumi.Resource{deployment})); err != nil {
			return nil, err
		}
	}
	platform.Namespace = after(ns, namespace)
	platform.OperatorImage = after(deployment, args.Operator.Image)
	return platform, ctx.RegisterResourceOutputs(platform, pulumi.Map{
		"namespace": platform.Namespace, "operatorImage": platform.OperatorImage,
	})
}

// addCRDs registers the definitions. Each is awaited until the API server serves it, and applied by force: the CRDs are
// this project's own, and one that was left by an earlier stack has another field manager.
func addCRDs(own children, deleted bool) ([]pulumi.Resource, error) {
	list := make([]child, 0)
	for _, crd := range crds.All() {
		if crd.Annotations == nil {
			crd.Annotations = map[string]string{}
		}
		crd.Annotations[annotationWaitFor] = "condition=Established"
		crd.Annotations[annotationPatchForce] = "true"
		list = append(list, child{"crd-" + crd.Spec.Names.Plural, crd})
	}
	opts := []pulumi.ResourceOption{timeouts("2m", "2m", "2m")}
	if !deleted { // said only when it is true, for false would undo what the component is told
		opts = append(opts, pulumi.RetainOnDelete(true))
	}
	return own.addAll(list, opts...)
}

func addOperator(
	own children, namespace string, args *PlatformArgs, ns pulumi.Resource, definitions []pulumi.Resource,
) (*kube.Resource, error) {
	config, err := operatorConfigMap(namespace, args)
	if err != nil {
		return nil, err
	}
	within := pulumi.DependsOn([]pulumi.Resource{ns})
	objects := []child{
		{"serviceaccount", operatorServiceAccount(namespace)},
		{"role", role(objectMeta(namespace, operatorName, operatorLabels()), operatorRules(args))},
		{"rolebinding", roleBinding(objectMeta(namespace, operatorName, operatorLabels()), namespace)},
		{"clusterrole", operatorClusterRole(namespace)},
		{"clusterrolebinding", operatorClusterRoleBinding(namespace)},
		{"configmap", config},
		{"watchrecord", watchRecord(namespace)},
		{"networkpolicy", operatorPolicy(namespace)},
	}
	for _, watched := range watchedNamespaces(namespace, args) {
		objects = append(objects, child{"watch-" + watched, watchMarker(namespace, watched)})
	}
	for _, reviewer := range args.TokenReviewers {
		tenant := orDefault(reviewer.Namespace, reviewer.Tenant)
		objects = append(objects, child{"token-review-" + tenant, tokenReview("holdfast-platform-token-review", reviewer.Tenant, tenant)})
	}
	objects = append(objects, args.Operator.ReleaseGuard.roles(namespace)...)
	before, err := own.addAll(objects, within)
	if err != nil {
		return nil, err
	}
	beside := []child{{"service", operatorService(namespace)}}
	if replicas(args) > 1 {
		beside = append(beside, child{"pdb", operatorPDB(namespace)})
	}
	if _, err := own.addAll(beside, within); err != nil {
		return nil, err
	}
	before = append(before, ns)
	before = append(before, definitions...)
	return own.add("deployment", operatorDeployment(namespace, args, config), pulumi.DependsOn(before),
		timeouts("5m", "5m", "5m"))
}

// operatorRules are the operator's rules in its own namespace, which it also serves when it is given no other.
func operatorRules(args *PlatformArgs) []rbacv1.PolicyRule {
	rules := crds.OperatorRules()
	if len(args.TenantNamespaces) == 0 {
		rules = append(rules, crds.TenantRules()...)
	}
	return rules
}

// watchedNamespaces are those that the operator is to watch.
func watchedNamespaces(namespace string, args *PlatformArgs) []string {
	if len(args.TenantNamespaces) == 0 {
		return []string{namespace}
	}
	return args.TenantNamespaces
}

func replicas(args *PlatformArgs) int32 { return max(args.Operator.Replicas, 1) }
