package tenants

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/stacks/internal/configschema"
	"github.com/holdfast-io/holdfast/stacks/internal/selfservice"
)

// countLeaseServices is the entry of a quota that counts LeaseServices.
const countLeaseServices corev1.ResourceName = "count/leaseservices.dist.system"

// within returns the specs of the tenants' LeaseServices, with what the platform gives them, or a [ConfigError] with
// everything that the platform does not allow.
func within(config *Config, space *selfservice.Space) ([]v1alpha1.LeaseServiceSpec, error) {
	specs := make([]v1alpha1.LeaseServiceSpec, 0, len(config.Tenants))
	problems := together(config, space)
	for i := range config.Tenants {
		spec := *config.Tenants[i].DeepCopy()
		// A volume is for a replica's own etcd: who asks for one does not want the platform's.
		if len(spec.EtcdEndpoints) == 0 && spec.Storage == nil {
			spec.EtcdEndpoints = space.EtcdEndpoints
		}
		path := itemPath(i, config.Tenants[i].Name)
		for _, problem := range space.Limits.Check(space.Namespace, &spec) {
			problems = append(problems, configschema.Problem{Path: configschema.Field(path, problem.Field), Message: problem.Message})
		}
		if field, message := alone(&spec, space); message != "" {
			problems = append(problems, configschema.Problem{Path: configschema.Field(path, field), Message: message})
		}
		specs = append(specs, spec)
	}
	if len(problems) > 0 {
		return nil, &ConfigError{Problems: problems}
	}
	return specs, nil
}

// together checks what the tenants have in common.
func together(config *Config, space *selfservice.Space) []configschema.Problem {
	var problems []configschema.Problem
	check := func(resource corev1.ResourceName, count int64, what string) {
		if most, counted := space.Quota[resource]; counted && count > most.Value() {
			problems = append(problems, configschema.Problem{Path: "tenants", Message: fmt.Sprintf(
				"are %d %s together, but the quota of the namespace %s is %s", count, what, space.Namespace, most.String())})
		}
	}
	var replicas int64
	for i := range config.Tenants {
		replicas += int64(max(config.Tenants[i].Replicas, v1alpha1.DefaultReplicas))
	}
	check(corev1.ResourcePods, replicas, "pods")
	check(countLeaseServices, int64(len(config.Tenants)), "LeaseServices")
	return problems
}

// alone checks one tenant against what its namespace has.
func alone(spec *v1alpha1.LeaseServiceSpec, space *selfservice.Space) (field, message string) {
	if spec.Replicas > 1 && len(spec.EtcdEndpoints) == 0 {
		return "etcdEndpoints", fmt.Sprintf("is missing, but %d replicas need an etcd they share; only 1 replica may run "+
			"an etcd of its own", spec.Replicas)
	}
	if spec.Storage != nil && len(spec.EtcdEndpoints) > 0 {
		return "storage", "is the volume of a replica's own etcd; leave it out, since the tenant uses another etcd"
	}
	if missing := selfservice.Undeclared(space.Quota, spec.Resources); len(missing) > 0 {
		return "resources", "must set " + strings.Join(missing, ", ") + ", which the platform's quota counts: pods without it are refused"
	}
	return "", ""
}
