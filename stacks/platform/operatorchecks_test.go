package platform_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// What the operator does not start with is refused before it is deployed, and what it starts with is not. The operator's own
// test reads the same file.
func TestTheOperatorsRules(t *testing.T) {
	content, err := os.ReadFile("../../operator/internal/config/testdata/stacks.yaml")
	require.NoError(t, err)
	var cases []struct {
		Path   string                    `json:"path"`
		Config map[string]map[string]any `json:"config"`
	}
	require.NoError(t, yaml.UnmarshalStrict(content, &cases))
	require.NotEmpty(t, cases)
	for _, tc := range cases {
		if service := tc.Config["leaseService"]; service != nil {
			service["image"] = "example.com/lease-service:1"
		}
		changes := map[string]string{}
		for key, value := range tc.Config {
			text, err := json.Marshal(value)
			require.NoError(t, err)
			changes[key] = string(text)
		}
		problems := problemsOf(t, changes)
		if tc.Path == "" {
			require.Emptyf(t, problems, "%v", changes)
			continue
		}
		require.Lenf(t, problems, 1, "%v", changes)
		require.Contains(t, problems[0], tc.Path+": ")
	}
}

func TestRefusalsOfTheOperatorsRulesSayWhatIsAllowed(t *testing.T) {
	require.Equal(t, []string{
		`zookeeper.grants[0].paths[0]: "/a/.." is not allowed; a path has no part "." or ".."`,
		`leaseService.tls.certificateLifetime: "4321h" is not allowed; allowed are 1h to 4320h`,
		`zookeeper.connectString: "zk-0:2181,zk-1:0" has the port "0"; allowed are 1 to 65535`,
		`zookeeper.tls.secret: is "zk", which needs zookeeper.tls.enabled`,
		`zookeeper.tls.serverName: is "zk:1", which needs zookeeper.tls.enabled`,
		`zookeeper.tls.serverName: "zk:1" is not allowed; allowed are a DNS name in lower case and an IP address`,
		`zookeeper.grants[0].ensembles[0]: ":2181" has the host "", which is neither a name nor an address`,
		`releaseGuard.namespaces[2]: "argocd" is releaseGuard.namespaces[0] already; list each once`,
		`releaseGuard.prometheus[0]: "http:///metrics" is not allowed; allowed are URLs with a host, such as http://prometheus.monitoring:9090`,
	}, problemsOf(t, map[string]string{
		"leaseService": `{"image": "l", "tls": {"certificateLifetime": "4321h"}}`,
		"zookeeper":    `{"connectString": "zk-0:2181,zk-1:0", "tls": {"secret": "zk", "serverName": "zk:1"}, "grants": [{"namespaces": ["*"], "ensembles": [":2181"], "paths": ["/a/.."]}]}`,
		"releaseGuard": `{"namespaces": ["argocd", "other", "argocd"], "prometheus": ["http:///metrics"]}`,
	}))
}

func TestTLSWithNoZooKeeper(t *testing.T) {
	require.Equal(t, []string{
		`zookeeper.tls.enabled: is true, which needs zookeeper.connectString: an object that names its own ensemble names its TLS too`,
	}, problemsOf(t, map[string]string{"zookeeper": `{"tls": {"enabled": true}}`}))
}
