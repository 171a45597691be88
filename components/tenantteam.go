package components

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/holdfast-io/holdfast/components/kube"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// teamName is the name of the objects that let a team keep its tenant by itself.
const teamName = "holdfast-team"

// teamObjects let the team manage the LeaseServices of its namespace, within limits, and see what becomes of them.
// Nothing else: no Secrets, no Roles, nothing outside of the namespace; and no ZooKeeperConfigs unless asked for, since
// by one of them the operator, who reads Secrets, writes a Secret's content to whatever ensemble the object names.
func teamObjects(namespace string, args *TenantSpaceArgs) []child {
	if len(args.Team) == 0 {
		return nil
	}
	labels := tenantLabels(args.Tenant)
	return []child{
		{"team-role", role(objectMeta(namespace, teamName, labels), teamRules(args.ZooKeeperConfigs))},
		{"team-rolebinding", &rbacv1.RoleBinding{
			TypeMeta:   kube.Type(rbacv1.SchemeGroupVersion, "RoleBinding"),
			ObjectMeta: objectMeta(namespace, teamName, labels),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: teamName},
			Subjects:   args.Team,
		}},
	}
}

func teamRules(zooKeeperConfigs bool) []rbacv1.PolicyRule {
	managed := []string{"leaseservices"}
	if zooKeeperConfigs {
		managed = append(managed, "zookeeperconfigs")
	}
	read := []string{"get", "list", "watch"}
	group := []string{v1alpha1.GroupVersion.Group}
	return []rbacv1.PolicyRule{
		{
			APIGroups: group, Resources: managed,
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
		},
		{APIGroups: []string{""}, Resources: []string{"pods", "events", "services", "resourcequotas"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
		{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"}, Verbs: read},
	}
}
