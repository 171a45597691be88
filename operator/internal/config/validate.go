package config

import (
	"errors"
	"net"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// off is the bind address that turns a server off.
const off = "0"

// Validate returns everything that is wrong with the values, joined; each part names the path, the value and what is
// allowed.
func (c OperatorConfig) Validate() error {
	faults := field.ErrorList{}
	check := func(list field.ErrorList) { faults = append(faults, list...) }

	check(oneOf(field.NewPath("apiVersion"), c.APIVersion, APIVersion))
	check(oneOf(field.NewPath("kind"), c.Kind, Kind))
	check(c.validateNamespaces(field.NewPath("namespaces")))
	check(c.LeaderElection.validate(field.NewPath("leaderElection")))
	check(c.Metrics.validate(field.NewPath("metrics")))
	check(c.Health.validate(field.NewPath("health")))
	check(oneOf(field.NewPath("log", "level"), c.Log.Level, "debug", "info", "warn", "error"))
	check(c.GracefulShutdownTimeout.validate(field.NewPath("gracefulShutdownTimeout"), time.Second, time.Hour))
	if n := c.LeaseService.MaxConcurrentReconciles; n < 1 || n > 64 {
		faults = append(faults, field.Invalid(field.NewPath("leaseService", "maxConcurrentReconciles"), n, "must be 1 to 64"))
	}
	check(c.LeaseService.TLS.CertificateLifetime.validate(field.NewPath("leaseService", "tls", "certificateLifetime"), time.Hour, 180*24*time.Hour))
	check(oneOf(field.NewPath("leaseService", "operatorChanges"), c.LeaseService.OperatorChanges, OperatorChangesApprove, OperatorChangesAutomatic))
	if c.LeaseService.ProvisionEtcd && !c.LeaseService.TLS.Enabled {
		faults = append(faults, field.Invalid(field.NewPath("leaseService", "provisionEtcd"), true, "needs leaseService.tls.enabled: passwords are derived from the same seed as certificates"))
	}
	check(c.ZooKeeper.validate(field.NewPath("zookeeper")))
	check(c.ReleaseGuard.validate(field.NewPath("releaseGuard")))

	joined := make([]error, 0, len(faults))
	for _, fault := range faults {
		joined = append(joined, fault)
	}
	return errors.Join(joined...)
}

func oneOf(path *field.Path, value string, allowed ...string) field.ErrorList {
	for _, each := range allowed {
		if value == each {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

func (c OperatorConfig) validateNamespaces(path *field.Path) field.ErrorList {
	if c.Namespaces == nil {
		return field.ErrorList{field.Required(path, "list the namespaces to watch, or [] for only the operator's own")}
	}
	var faults field.ErrorList
	seen := map[string]bool{}
	for i, name := range c.Namespaces {
		faults = append(faults, namespace(path.Index(i), name)...)
		if seen[name] {
			faults = append(faults, field.Duplicate(path.Index(i), name))
		}
		seen[name] = true
	}
	return faults
}

func namespace(path *field.Path, name string) field.ErrorList {
	var faults field.ErrorList
	for _, message := range validation.IsDNS1123Label(name) {
		faults = append(faults, field.Invalid(path, name, "no name of a namespace: "+message))
	}
	return faults
}

func (l LeaderElection) validate(path *field.Path) field.ErrorList {
	faults := namespace(path.Child("namespace"), l.Namespace)
	for _, each := range []struct {
		name  string
		value Duration
	}{{"leaseDuration", l.LeaseDuration}, {"renewDeadline", l.RenewDeadline}, {"retryPeriod", l.RetryPeriod}} {
		faults = append(faults, each.value.validate(path.Child(each.name), 100*time.Millisecond, time.Hour)...)
	}
	if len(faults) > 0 {
		return faults
	}
	if l.LeaseDuration.Duration < time.Second || l.LeaseDuration.Truncate(time.Second) != l.LeaseDuration.Duration {
		faults = append(faults, field.Invalid(path.Child("leaseDuration"), l.LeaseDuration.String(), "must be whole seconds: the Lease holds no fractions"))
	}
	if l.RenewDeadline.Duration >= l.LeaseDuration.Duration {
		faults = append(faults, field.Invalid(path.Child("renewDeadline"), l.RenewDeadline.String(),
			"must be less than leaseDuration ("+l.LeaseDuration.String()+"): a leader stops before the others take over"))
	}
	if l.RenewDeadline.Duration <= l.RetryPeriod.Duration*12/10 {
		faults = append(faults, field.Invalid(path.Child("retryPeriod"), l.RetryPeriod.String(),
			"renewDeadline ("+l.RenewDeadline.String()+") must be more than 1.2 times as long: else a leader has no second try"))
	}
	return faults
}

func (s Server) validate(path *field.Path) field.ErrorList {
	path = path.Child("bindAddress")
	if s.BindAddress == off {
		return nil
	}
	_, port, err := net.SplitHostPort(s.BindAddress)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return field.ErrorList{field.Invalid(path, s.BindAddress, `must be "host:port" or ":port" with a port of 0 to 65535, or "0" for no server`)}
	}
	return nil
}

func (d Duration) validate(path *field.Path, least, most time.Duration) field.ErrorList {
	if d.unparsed != "" {
		return field.ErrorList{field.Invalid(path, d.unparsed, `must be a text of numbers with units, such as "15s" or "1m30s"`)}
	}
	if d.Duration < least || d.Duration > most {
		return field.ErrorList{field.Invalid(path, d.String(), "must be "+least.String()+" to "+most.String())}
	}
	return nil
}
