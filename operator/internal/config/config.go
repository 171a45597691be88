// Package config is the operator's config file: one versioned YAML document, strictly decoded. A key that is not known, a
// value that cannot be and two values that don't fit together are refused, all of them at once, each with its path.
package config

import (
	"errors"
	"fmt"
	"os"
	"time"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const (
	// APIVersion of the document.
	APIVersion = "config.dist.system/v1alpha1"
	// Kind of the document.
	Kind = "OperatorConfig"
)

// OperatorConfig is the document. A key that is left out has the value that Default gives it, Namespaces excepted.
type OperatorConfig struct {
	// APIVersion is "config.dist.system/v1alpha1".
	APIVersion string `json:"apiVersion"`
	// Kind is "OperatorConfig".
	Kind string `json:"kind"`
	// Namespaces are watched, and no others. It is required; an empty list watches only the operator's own
	// namespace, which is LeaderElection.Namespace.
	Namespaces []string `json:"namespaces"`
	// NamespacesFromConfigMaps adds those that ConfigMaps in the operator's own namespace name, by the value of the label
	// dist.system/watch-namespace: they come and go while the operator runs. With it, an empty list of Namespaces is one of
	// none. Default false.
	NamespacesFromConfigMaps bool `json:"namespacesFromConfigMaps"`
	// LeaderElection between the replicas of the operator.
	LeaderElection LeaderElection `json:"leaderElection"`
	// Metrics are served in the format of Prometheus, at /metrics.
	Metrics Server `json:"metrics"`
	// Health is served at /healthz and /readyz.
	Health Server `json:"health"`
	// Log says what is logged.
	Log Log `json:"log"`
	// GracefulShutdownTimeout is how long running passes and components have to end. Default 20s.
	GracefulShutdownTimeout Duration `json:"gracefulShutdownTimeout"`
	// Components selects what runs.
	Components Components `json:"components"`
	// LeaseService configures the kind LeaseService.
	LeaseService LeaseService `json:"leaseService"`
	// ZooKeeper configures the kinds that use ZooKeeper.
	ZooKeeper ZooKeeper `json:"zookeeper"`
	// ReleaseGuard configures the kind ReleaseGuard.
	ReleaseGuard ReleaseGuard `json:"releaseGuard"`
}

// LeaderElection configures the election, by a Lease named "holdfast-operator".
type LeaderElection struct {
	// Enabled: without it, a second replica would work at the same time. Default true.
	Enabled bool `json:"enabled"`
	// Namespace is the operator's own, with the Lease. Default "holdfast-system".
	Namespace string `json:"namespace"`
	// LeaseDuration is how long the others wait for a leader that is silent. Default 15s.
	LeaseDuration Duration `json:"leaseDuration"`
	// RenewDeadline is how long a leader tries to renew before it stops. Less than LeaseDuration; default 10s.
	RenewDeadline Duration `json:"renewDeadline"`
	// RetryPeriod is the time between tries. RenewDeadline is more than 1.2 times as long; default 2s.
	RetryPeriod Duration `json:"retryPeriod"`
}

// Server is something that listens.
type Server struct {
	// BindAddress is "host:port" or ":port"; port 0 picks a free one. "0" turns the server off.
	BindAddress string `json:"bindAddress"`
}

// Log says what is logged: JSON lines on standard error.
type Log struct {
	// Level is the least severe one logged: debug, info, warn or error. Default info.
	Level string `json:"level"`
}

// Components selects what runs.
type Components struct {
	// Disabled names components that are left out.
	Disabled []string `json:"disabled"`
}

// LeaseService configures the kind LeaseService.
type LeaseService struct {
	// Image is used by a LeaseService whose spec names none. Empty: such an object is Stalled.
	Image string `json:"image"`
	// MaxConcurrentReconciles is the number of objects that are worked on at once, 1 to 64. Default 4.
	MaxConcurrentReconciles int `json:"maxConcurrentReconciles"`
	// TLS of LeaseServices.
	TLS LeaseServiceTLS `json:"tls"`
	// OperatorChanges is when pods are replaced because this operator makes them otherwise than the one before it, of a
	// LeaseService that does not say it: "Approve" (with an approval) or "Automatic" (at once). Default Approve.
	OperatorChanges string `json:"operatorChanges"`
	// ProvisionEtcd: a LeaseService in the etcd of the Secret holdfast-etcd-admin, in the operator's namespace, has a user
	// there of its own. It needs TLS.Enabled, since passwords have the same origin as certificates. Default false.
	ProvisionEtcd bool `json:"provisionEtcd"`
}

// LeaseServiceTLS says whether and how the operator issues certificates.
type LeaseServiceTLS struct {
	// Enabled: a LeaseService that says nothing of TLS has certificates of the operator. Without it, such a one speaks
	// plain text, and none can have any. Default true.
	Enabled bool `json:"enabled"`
	// CertificateLifetime is how long a certificate is good for, 1h to 4320h; it is renewed after two thirds. Default
	// 2160h.
	CertificateLifetime Duration `json:"certificateLifetime"`
}

// The values of LeaseService.OperatorChanges.
const (
	OperatorChangesApprove   = "Approve"
	OperatorChangesAutomatic = "Automatic"
)

// Duration is a time.Duration that is written like "15s". What cannot be parsed is kept for Validate, which knows the path.
type Duration struct {
	time.Duration
	unparsed string
}

// UnmarshalJSON never fails.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &text); err != nil {
		d.unparsed = string(data)
		return nil
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		d.unparsed = fmt.Sprintf("%q", text)
		return nil
	}
	*d = Duration{Duration: parsed}
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (d Duration) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%q", d.Duration), nil }

// Default returns what holds for keys that are left out. It has no namespaces, and so is not valid by itself.
func Default() OperatorConfig {
	return OperatorConfig{
		LeaderElection: LeaderElection{
			Enabled: true, Namespace: "holdfast-system",
			LeaseDuration: Duration{Duration: 15 * time.Second},
			RenewDeadline: Duration{Duration: 10 * time.Second},
			RetryPeriod:   Duration{Duration: 2 * time.Second},
		},
		Metrics:                 Server{BindAddress: ":8080"},
		Health:                  Server{BindAddress: ":8081"},
		Log:                     Log{Level: "info"},
		GracefulShutdownTimeout: Duration{Duration: 20 * time.Second},
		LeaseService:            defaultLeaseService(),
		ZooKeeper:               defaultZooKeeper(),
		ReleaseGuard:            defaultReleaseGuard(),
	}
}

func defaultLeaseService() LeaseService {
	return LeaseService{
		MaxConcurrentReconciles: 4, OperatorChanges: OperatorChangesApprove,
		TLS: LeaseServiceTLS{Enabled: true, CertificateLifetime: Duration{Duration: 90 * 24 * time.Hour}},
	}
}

// Load reads, decodes and validates a file.
func Load(path string) (OperatorConfig, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return OperatorConfig{}, fmt.Errorf("read the configuration: %w", err)
	}
	config, err := Parse(data)
	if err != nil {
		return OperatorConfig{}, fmt.Errorf("configuration %s:\n%w", path, err)
	}
	return config, nil
}

// Parse decodes and validates a document. The error joins everything that is wrong with it.
func Parse(data []byte) (OperatorConfig, error) {
	config := Default()
	document, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return OperatorConfig{}, fmt.Errorf("no YAML: %w", err)
	}
	unknown, err := kjson.UnmarshalStrict(document, &config)
	if err != nil {
		return OperatorConfig{}, fmt.Errorf("decode: %w", errors.Join(append(unknown, err)...))
	}
	if err := errors.Join(append(unknown, config.Validate())...); err != nil {
		return OperatorConfig{}, err
	}
	return config, nil
}

// WatchedNamespaces returns the namespaces to watch for as long as the operator runs: those that are listed, or the
// operator's own when there can be no other.
func (c OperatorConfig) WatchedNamespaces() []string {
	if len(c.Namespaces) == 0 && !c.NamespacesFromConfigMaps {
		return []string{c.LeaderElection.Namespace}
	}
	return c.Namespaces
}
