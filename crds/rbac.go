package crds

import (
	rbacv1 "k8s.io/api/rbac/v1"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// SeedSecret is the name of the Secret in the operator's namespace from which the certificate authorities of all
// LeaseServices are derived.
const SeedSecret = "holdfast-certificate-seed"

// EtcdAdminAccess is the name of the Secret in the operator's namespace with access to etcd as its administrator. Somebody
// makes it who wants the operator to keep a user of etcd for each LeaseService.
const EtcdAdminAccess = "holdfast-etcd-admin"

// TenantRules are the rules of the Role that the operator needs in every namespace it watches. A test runs the
// controllers under exactly these, so a verb that is missing fails there and one that is added is seen in review.
//
// Secrets and ConfigMaps are read for what the objects refer to (credentials, data): their names are the tenant's to
// choose, so the rule cannot list them, and it is one of the namespace's Role alone. Secrets are written too, for the
// certificates of LeaseServices; by what the reconciler does, only those that an object of ours controls. There is none for PersistentVolumeClaims (a StatefulSet keeps its own), and no verb "update":
// the operator writes by server-side apply, which is "patch", and "create" for an object that does not exist yet.
func TenantRules() []rbacv1.PolicyRule {
	read := []string{"get", "list", "watch"}
	own := []string{"get", "list", "watch", "create", "patch", "delete"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"leaseservices"}, Verbs: read},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"leaseservices/status"}, Verbs: []string{"get", "patch"}},
		// Clusters that enforce owner references ask for this verb of whoever sets blockOwnerDeletion.
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"leaseservices/finalizers"}, Verbs: []string{"update"}},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"zookeeperconfigs"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"zookeeperconfigs/status"}, Verbs: []string{"get", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: own},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts", "services"}, Verbs: own},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: read},
		{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"}, Verbs: own},
		{APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: own},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: own},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
}

// ClusterRules are the rules of the ClusterRole that the operator has beside its Roles. They are few, and none reads what a
// tenant keeps secret:
//
//   - Whether a namespace exists. What the operator keeps elsewhere (a user of etcd) goes only with the proof that its owner has.
//   - Its own kinds that have finalizers. A namespace that is deleted loses its RoleBinding in no certain order with the
//     rest, and an object whose finalizer nobody may remove any more keeps it from going, for ever.
func ClusterRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"zookeeperconfigs"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"zookeeperconfigs/status"}, Verbs: []string{"get", "patch"}},
	}
}

// WatchLabel is the label of a ConfigMap in the operator's namespace whose value names a namespace that the operator watches
// for as long as the ConfigMap exists.
const WatchLabel = "dist.system/watch-namespace"

// WatchRecord is the name of the ConfigMap in the operator's namespace in which the operator keeps the names of the namespaces
// where it may have left finalizers. Whoever installs the operator makes it, empty: the API server cannot tie "create" to a name.
const WatchRecord = "holdfast-watched-namespaces"

// OperatorRules are the rules of the Role that the operator needs in its own namespace: the Lease by which its
// replicas elect one of them, the events that they write about the election, and the seed of the certificate authorities:
// that Secret is read, and made if there is none. That of etcd's administrator is read. The API server cannot tie "create" to a name.
// ConfigMaps name the namespaces to watch, and one, which the operator writes, those that were watched.
func OperatorRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{SeedSecret, EtcdAdminAccess}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{WatchRecord}, Verbs: []string{"patch"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
}

// ReleaseGuardRules are the rules of the Role that the operator needs in a namespace of Argo CD, and only when it serves
// ReleaseGuards. Who may make ReleaseGuards there may move what the Applications there deploy; that is for the cluster's
// administrator to grant, as the right to change Applications is.
func ReleaseGuardRules() []rbacv1.PolicyRule {
	read := []string{"get", "list", "watch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"argoproj.io"}, Resources: []string{"applications"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"releaseguards"}, Verbs: read},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"releaseguards/status"}, Verbs: []string{"get", "patch"}},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
}
