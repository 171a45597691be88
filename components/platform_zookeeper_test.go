package components_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/components"
)

// zooKeeperSection is that of the operator's file.
func zooKeeperSection(t *testing.T, s *stack) any {
	t.Helper()
	content, _ := at(s.find("ConfigMap", "holdfast-configmap"), "data", "operator.yaml").(string)
	var config map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(content), &config))
	return config["zookeeper"]
}

func TestPlatformTellsTheOperatorOfZooKeeper(t *testing.T) {
	s := recordPlatform(t, func(a *components.PlatformArgs) {
		a.Operator.ZooKeeper = &components.ZooKeeperArgs{
			ConnectString: "zk-0:2181,zk-1:2181/apps", CredentialSecret: "zookeeper",
			Grants: []components.ZooKeeperGrant{{Namespaces: []string{"*"}, Paths: []string{"/teams/{namespace}"}}},
		}
	})
	s.requireSound()
	require.Equal(t, map[string]any{
		"connectString": "zk-0:2181,zk-1:2181/apps", "credentialFolder": "/etc/holdfast-zookeeper",
		"grants": []any{map[string]any{"namespaces": []any{"*"}, "paths": []any{"/teams/{namespace}"}}},
	}, zooKeeperSection(t, s))

	deployment := s.find("Deployment", "holdfast-deployment")
	pod := []any{"spec", "template", "spec"}
	require.Equal(t, map[string]any{"secretName": "zookeeper", "optional": true}, at(deployment, append(pod, "volumes", 1, "secret")...))
	mount := at(deployment, append(pod, "containers", 0, "volumeMounts", 1)...)
	require.Equal(t, map[string]any{"name": "zookeeper", "mountPath": "/etc/holdfast-zookeeper", "readOnly": true}, mount)
}

func TestPlatformWithoutACredentialMountsNone(t *testing.T) {
	s := recordPlatform(t, func(a *components.PlatformArgs) {
		a.Operator.ZooKeeper = &components.ZooKeeperArgs{ConnectString: "zk:2181"}
	})
	require.Equal(t, map[string]any{"connectString": "zk:2181"}, zooKeeperSection(t, s))
	require.Len(t, at(s.find("Deployment", "holdfast-deployment"), "spec", "template", "spec", "volumes"), 1)
}
