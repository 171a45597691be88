package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/operator/internal/config"
)

const head = "apiVersion: config.dist.system/v1alpha1\nkind: OperatorConfig\n"

func seconds(n int) config.Duration {
	return config.Duration{Duration: time.Duration(n) * time.Second}
}

func TestEveryKey(t *testing.T) {
	got, err := config.Parse([]byte(head + `
namespaces: [team-a, team-b]
namespacesFromConfigMaps: true
leaderElection: {enabled: false, namespace: ops, leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 4s}
metrics: {bindAddress: "127.0.0.1:9090"}
health: {bindAddress: "0"}
log: {level: debug}
gracefulShutdownTimeout: 1m
components: {disabled: [lease-service]}
leaseService: {image: "example.com/lease-service@sha256:00", maxConcurrentReconciles: 16, operatorChanges: Automatic, tls: {enabled: false, certificateLifetime: 24h}}
zookeeper: {connectString: "zk:2181", breakerFailures: 3}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := config.OperatorConfig{
		APIVersion: config.APIVersion, Kind: config.Kind,
		Namespaces: []string{"team-a", "team-b"}, NamespacesFromConfigMaps: true,
		LeaderElection:          config.LeaderElection{Namespace: "ops", LeaseDuration: seconds(30), RenewDeadline: seconds(20), RetryPeriod: seconds(4)},
		Metrics:                 config.Server{BindAddress: "127.0.0.1:9090"},
		Health:                  config.Server{BindAddress: "0"},
		Log:                     config.Log{Level: "debug"},
		GracefulShutdownTimeout: seconds(60),
		Components:              config.Components{Disabled: []string{"lease-service"}},
		LeaseService:            config.LeaseService{Image: "example.com/lease-service@sha256:00", MaxConcurrentReconciles: 16, OperatorChanges: "Automatic", TLS: config.LeaseServiceTLS{CertificateLifetime: seconds(86400)}},
		ZooKeeper:               config.Default().ZooKeeper,
		ReleaseGuard:            config.Default().ReleaseGuard,
	}
	want.ZooKeeper.ConnectString, want.ZooKeeper.BreakerFailures = "zk:2181", 3
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(config.Duration{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDefaults(t *testing.T) {
	got, err := config.Parse([]byte(head + "namespaces: []\nleaderElection: {namespace: ops}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.APIVersion, want.Kind, want.Namespaces, want.LeaderElection.Namespace = config.APIVersion, config.Kind, []string{}, "ops"
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(config.Duration{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ops"}, got.WatchedNamespaces()); diff != "" {
		t.Errorf("an empty list watches the operator's own namespace (-want +got):\n%s", diff)
	}
}

func TestRefusals(t *testing.T) {
	cases := []struct {
		name string
		body string
		want []string // each is in the error
	}{
		{"an unknown key, by its path", "namespaces: []\nleaderElection: {leaseDurations: 3s}\n", []string{`unknown field "leaderElection.leaseDurations"`}},
		{"a key in another case", "Namespaces: []\n", []string{`unknown field "Namespaces"`, "namespaces: Required value"}},
		{"a key twice", "namespaces: []\nnamespaces: [a]\n", []string{"namespaces", "already"}},
		{"no namespaces", "log: {level: info}\n", []string{"namespaces: Required value: list the namespaces to watch, or []"}},
		{"a bad namespace", "namespaces: [Team_A]\n", []string{`namespaces[0]: Invalid value: "Team_A"`, "lower case"}},
		{"a namespace twice", "namespaces: [a, b, a]\n", []string{`namespaces[2]: Duplicate value: "a"`}},
		{"no duration", "namespaces: []\ngracefulShutdownTimeout: soon\n", []string{`gracefulShutdownTimeout: Invalid value`, "soon", `such as "15s"`}},
		{"a duration without unit", "namespaces: []\nleaderElection: {retryPeriod: 2}\n", []string{"leaderElection.retryPeriod: Invalid value", "with units"}},
		{"a duration of nothing", "namespaces: []\ngracefulShutdownTimeout: 0s\n", []string{`gracefulShutdownTimeout: Invalid value: "0s": must be 1s to 1h`}},
		{"a renewal longer than the lease", "namespaces: []\nleaderElection: {renewDeadline: 15s}\n", []string{`leaderElection.renewDeadline: Invalid value: "15s": must be less than leaseDuration (15s)`}},
		{"retries longer than the renewal", "namespaces: []\nleaderElection: {retryPeriod: 9s}\n", []string{`leaderElection.retryPeriod: Invalid value: "9s"`, "1.2 times"}},
		{"a lease of a fraction", "namespaces: []\nleaderElection: {leaseDuration: 15.5s}\n", []string{`leaderElection.leaseDuration: Invalid value: "15.5s"`, "whole seconds"}},
		{"no port", "namespaces: []\nmetrics: {bindAddress: localhost}\n", []string{`metrics.bindAddress: Invalid value: "localhost"`, `":port"`}},
		{"a port out of range", "namespaces: []\nhealth: {bindAddress: ':70000'}\n", []string{`health.bindAddress: Invalid value: ":70000"`}},
		{"a level that there is not", "namespaces: []\nlog: {level: verbose}\n", []string{`log.level: Unsupported value: "verbose"`, `"debug"`, `"error"`}},
		{"certificates for minutes", "namespaces: []\nleaseService: {tls: {certificateLifetime: 5m}}\n", []string{`leaseService.tls.certificateLifetime: Invalid value: "5m0s": must be 1h0m0s to 4320h0m0s`}},
		{"users without a seed", "namespaces: []\nleaseService: {provisionEtcd: true, tls: {enabled: false}}\n", []string{"leaseService.provisionEtcd: Invalid value: true: needs leaseService.tls.enabled"}},
		{"too many at once", "namespaces: []\nleaseService: {maxConcurrentReconciles: 0}\n", []string{"leaseService.maxConcurrentReconciles: Invalid value: 0: must be 1 to 64"}},
		{"a value of another type", "namespaces: []\nleaderElection: {enabled: maybe}\n", []string{"leaderElection.enabled", "bool"}},
		{"no YAML", "namespaces: [\n", []string{"no YAML"}},
		{"several faults at once", "namespaces: [A]\nlog: {level: loud}\ncolour: red\n", []string{`unknown field "colour"`, "namespaces[0]", "log.level"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.Parse([]byte(head + c.body))
			if err == nil {
				t.Fatal("accepted")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q:\n%v", part, err)
				}
			}
		})
	}
}

func TestOtherDocumentsAreRefused(t *testing.T) {
	_, err := config.Parse([]byte("apiVersion: v1\nkind: ConfigMap\nnamespaces: []\n"))
	for _, part := range []string{`apiVersion: Unsupported value: "v1": supported values: "config.dist.system/v1alpha1"`, `kind: Unsupported value: "ConfigMap"`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q:\n%v", part, err)
		}
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "operator.yaml")
	if _, err := config.Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte(head), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a bad file: %v", err)
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	want := config.Default()
	want.APIVersion, want.Kind, want.Namespaces = config.APIVersion, config.Kind, []string{"a"}
	data, err := yaml.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := config.Parse(data)
	if err != nil {
		t.Fatal(fmt.Errorf("%w\n%s", err, data))
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(config.Duration{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
