package components

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/components/kube"
	"github.com/holdfast-io/holdfast/crds"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

const tenantSpaceType = "holdfast:index:TenantSpace"

// TenantSpaceArgs configures a [TenantSpace].
type TenantSpaceArgs struct {
	// Tenant is the name of the tenant, put on every object as a label; required.
	Tenant string
	// Namespace of the tenant. Empty takes the tenant's name.
	Namespace string
	// ExistingNamespace says that the namespace exists: it is neither made nor deleted, its labels stay as they are.
	ExistingNamespace bool
	// OperatorNamespace is where the operator runs. Empty takes [DefaultNamespace].
	OperatorNamespace string
	// Quota limits what the namespace may hold in total. Empty: no quota.
	Quota corev1.ResourceList
	// TokenReview lets the pods of the tenant's LeaseService ask the API server whose a ServiceAccount token is, as its
	// spec.auth.tokenReview needs: a ClusterRoleBinding, which the operator cannot make. Where somebody applies the tenant's
	// objects who may not apply that, the Platform's TokenReviewers say it instead.
	TokenReview bool
	// Team are the users, groups and ServiceAccounts who may manage the tenant's LeaseServices in the namespace
	// themselves. None: whoever has rights in the namespace already.
	Team []rbacv1.Subject
	// ZooKeeperConfigs lets the team manage ZooKeeperConfigs as well. By these it reads every Secret of its namespace,
	// and writes to the operator's ensemble wherever the operator's grants let the namespace.
	ZooKeeperConfigs bool
	// Limits is what the LeaseServices in the namespace may ask for; the API server refuses others. Nil: no limits.
	Limits *TenantLimits
}

// TenantSpace is a namespace prepared for one tenant: Pod Security "restricted", a quota, network policies that close it
// to every other namespace, and the operator's Role. It should depend on the [Platform] whose operator watches it: when the
// tenant goes, the operator is then there until the namespace has gone.
type TenantSpace struct {
	pulumi.ResourceState

	// Namespace is the name of the namespace, known once it exists.
	Namespace pulumi.StringOutput `pulumi:"namespace"`

	objects []pulumi.Resource
}

// Objects are all objects in it. What comes after the TenantSpace should depend on them and not on the
// component: the SDK takes a component for the objects that have been registered in it by the time it looks, and it looks
// before all of them are.
func (s *TenantSpace) Objects() []pulumi.Resource { return s.objects }

// NewTenantSpace registers a TenantSpace.
func NewTenantSpace(
	ctx *pulumi.Context, name string, args *TenantSpaceArgs, opts ...pulumi.ResourceOption,
) (*TenantSpace, error) {
	if args.Tenant == "" {
		return nil, fmt.Errorf("TenantSpace %s: tenant is required", name)
	}
	space := &TenantSpace{}
	if err := ctx.RegisterComponentResource(tenantSpaceType, name, space, opts...); err != nil {
		return nil, fmt.Errorf("register TenantSpace %s: %w", name, err)
	}
	namespace := orDefault(args.Namespace, args.Tenant)
	own := children{ctx: ctx, name: name, parent: space, made: &space.objects}
	space.Namespace = pulumi.String(namespace).ToStringOutput()
	var within []pulumi.ResourceOption
	if !args.ExistingNamespace {
		ns, err := own.add("namespace", restrictedNamespace(namespace, tenantLabels(args.Tenant)), timeouts("", "", "5m"))
		if err != nil {
			return nil, err
		}
		// What is in the namespace goes with it. Were it deleted first, the operator would lose its Role before the
		// namespace's objects are deleted, some of which wait for it.
		within = append(within, pulumi.DependsOn([]pulumi.Resource{ns}), pulumi.DeletedWith(ns))
		space.Namespace = after(ns, namespace)
	}
	if _, err := own.addAll(tenantSpaceObjects(namespace, args), within...); err != nil {
		return nil, err
	}
	if _, err := own.addAll(append(limitObjects(namespace, args), reviewObjects(namespace, args)...)); err != nil { // no part of the namespace
		return nil, err
	}
	return space, ctx.RegisterResourceOutputs(space, pulumi.Map{"namespace": space.Namespace})
}

func tenantLabels(tenant string) map[string]string {
	return map[string]string{labelPartOf: partOf, labelTenant: tenant}
}

func tenantSpaceObjects(namespace string, args *TenantSpaceArgs) []child {
	labels := tenantLabels(args.Tenant)
	operatorNamespace := orDefault(args.OperatorNamespace, DefaultNamespace)
	objects := []child{
		{"default-deny", defaultDenyPolicy(objectMeta(namespace, "default-deny", labels))},
		{"allow-dns", allowDNSPolicy(objectMeta(namespace, "allow-dns", labels))},
		{"allow-same-namespace", sameNamespacePolicy(objectMeta(namespace, "allow-same-namespace", labels))},
		{"operator-role", role(objectMeta(namespace, operatorName, labels), crds.TenantRules())},
		{"operator-rolebinding", roleBinding(objectMeta(namespace, operatorName, labels), operatorNamespace)},
	}
	if len(args.Quota) > 0 {
		objects = append(objects, child{"quota", &corev1.ResourceQuota{
			TypeMeta:   kube.Type(corev1.SchemeGroupVersion, "ResourceQuota"),
			ObjectMeta: objectMeta(namespace, "tenant", labels),
			Spec:       corev1.ResourceQuotaSpec{Hard: args.Quota},
		}})
	}
	return append(objects, teamObjects(namespace, args)...)
}

func reviewObjects(namespace string, args *TenantSpaceArgs) []child {
	if !args.TokenReview {
		return nil
	}
	return []child{{"token-review", tokenReview("holdfast-token-review", args.Tenant, namespace)}}
}

// tokenReview binds the role that every cluster has for those who review tokens to the pods of a tenant's LeaseService. It tells
// nothing but whose a token is and what somebody may do.
func tokenReview(prefix, tenant, namespace string) *rbacv1.ClusterRoleBinding {
	service := LeaseServiceName(tenant)
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   kube.Type(rbacv1.SchemeGroupVersion, "ClusterRoleBinding"),
		ObjectMeta: objectMeta("", prefix+"-"+namespace+"-"+service, tenantLabels(tenant)),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
		Subjects: []rbacv1.Subject{{
			Kind: rbacv1.ServiceAccountKind, Name: service + v1alpha1.LeaseServiceAccountSuffix, Namespace: namespace,
		}},
	}
}

func defaultDenyPolicy(meta metav1.ObjectMeta) *networkingv1.NetworkPolicy {
	return networkPolicy(meta, networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
	})
}

func allowDNSPolicy(meta metav1.ObjectMeta) *networkingv1.NetworkPolicy {
	return networkPolicy(meta, networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		Egress: []networkingv1.NetworkPolicyEgressRule{{Ports: []networkingv1.NetworkPolicyPort{
			policyPort(corev1.ProtocolUDP, dnsPort), policyPort(corev1.ProtocolTCP, dnsPort),
		}}},
	})
}

// sameNamespacePolicy lets the tenant's own pods talk to each other; the isolation is between tenants.
func sameNamespacePolicy(meta metav1.ObjectMeta) *networkingv1.NetworkPolicy {
	all := []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}
	return networkPolicy(meta, networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: all}},
		Egress:      []networkingv1.NetworkPolicyEgressRule{{To: all}},
	})
}

func role(meta metav1.ObjectMeta, rules []rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{
		TypeMeta:   kube.Type(rbacv1.SchemeGroupVersion, "Role"),
		ObjectMeta: meta,
		Rules:      rules,
	}
}

// roleBinding binds the Role of its own name to the operator's ServiceAccount.
func roleBinding(meta metav1.ObjectMeta, operatorNamespace string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   kube.Type(rbacv1.SchemeGroupVersion, "RoleBinding"),
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{
			Kind: rbacv1.ServiceAccountKind, Name: operatorName, Namespace: operatorNamespace,
		}},
	}
}
