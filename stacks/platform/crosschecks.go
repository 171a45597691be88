package platform

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/stacks/internal/configschema"
)

// crossChecks finds what no schema can: rules that tie several keys together.
func crossChecks(c *Config) []configschema.Problem {
	var problems []configschema.Problem
	names, namespaces := map[string]string{}, map[string]string{c.Namespace: "the operator"}
	if c.DevEtcd != nil {
		problems = claim(problems, namespaces, "devEtcd", "namespace", c.DevEtcd.Namespace)
	}
	for i := range c.Tenants {
		tenant := &c.Tenants[i]
		path := configschema.Item("tenants", i, map[string]any{"name": tenant.Name})
		before := len(problems)
		problems = claim(problems, names, path, "name", tenant.Name)
		if len(problems) == before || tenant.Namespace != tenant.Name { // one problem for one mistake
			problems = claim(problems, namespaces, path, "namespace", tenant.Namespace)
		}
		for _, rule := range []tenantRule{checkEtcd, checkStorage, checkQuota} {
			if key, message := rule(c, tenant); message != "" {
				problems = append(problems, configschema.Problem{Path: configschema.Field(path, key), Message: message})
			}
		}
	}
	return problems
}

// claim notes that owner takes value, or adds a problem when another has taken it.
func claim(
	problems []configschema.Problem, taken map[string]string, owner, key, value string,
) []configschema.Problem {
	if value == "" {
		return problems
	}
	if other, found := taken[value]; found {
		return append(problems, configschema.Problem{
			Path:    configschema.Field(owner, key),
			Message: fmt.Sprintf("%q is taken by %s; each needs its own", value, other),
		})
	}
	taken[value] = owner
	return problems
}

// tenantRule returns the key at fault and what is wrong with it, or an empty message.
type tenantRule func(*Config, *Tenant) (key, message string)

func checkEtcd(c *Config, t *Tenant) (key, message string) {
	switch {
	case t.UseDevEtcd && len(t.EtcdEndpoints) > 0:
		return "useDevEtcd", "cannot be true together with etcdEndpoints; keep one of them"
	case t.UseDevEtcd && c.DevEtcd == nil:
		return "useDevEtcd", "is true, but the stack has no devEtcd; configure holdfast:devEtcd or give etcdEndpoints"
	case t.Replicas > 1 && !t.UseDevEtcd && len(t.EtcdEndpoints) == 0:
		return "etcdEndpoints", fmt.Sprintf(
			"is missing, but %d replicas need an etcd they share; only 1 replica may run an etcd of its own", t.Replicas)
	default:
		return "", ""
	}
}

func checkStorage(_ *Config, t *Tenant) (key, message string) {
	if t.Storage != nil && (t.UseDevEtcd || len(t.EtcdEndpoints) > 0) {
		return "storage", "is the volume of a replica's own etcd; leave it out, since the tenant uses another etcd"
	}
	return "", ""
}

// checkQuota finds compute resources that the quota counts and the pods do not declare: Kubernetes would refuse the pods.
func checkQuota(_ *Config, t *Tenant) (key, message string) {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(t.Quota)) {
		side, resource, found := strings.Cut(string(name), ".")
		declared := t.Resources.Requests
		switch {
		case found && side == "limits":
			declared = t.Resources.Limits
		case found && side == "requests":
		case name == corev1.ResourceCPU || name == corev1.ResourceMemory:
			side, resource = "requests", string(name)
		default:
			continue
		}
		if resource != string(corev1.ResourceCPU) && resource != string(corev1.ResourceMemory) {
			continue
		}
		_, ok := declared[corev1.ResourceName(resource)]
		if side == "requests" && !ok {
			_, ok = t.Resources.Limits[corev1.ResourceName(resource)] // a request defaults to the limit
		}
		if !ok {
			missing = append(missing, side+"."+resource)
		}
	}
	if len(missing) == 0 {
		return "", ""
	}
	return "resources", "must set " + strings.Join(missing, ", ") + ", which quota counts: pods without it are refused"
}
