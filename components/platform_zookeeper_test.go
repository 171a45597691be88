package components_test

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/components/render"
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

func TestPlatformTellsTheOperatorOfTLSWithZooKeeper(t *testing.T) {
	s := recordPlatform(t, func(a *components.PlatformArgs) {
		a.Operator.ZooKeeper = &components.ZooKeeperArgs{
			ConnectString: "zk:2281", CredentialSecret: "zookeeper",
			TLS: components.ZooKeeperOperatorTLS{Enabled: true, Secret: "zookeeper-tls", ServerName: "zk.example.com"},
		}
	})
	s.requireSound()
	require.Equal(t, map[string]any{
		"connectString": "zk:2281", "credentialFolder": "/etc/holdfast-zookeeper",
		"tls": map[string]any{"enabled": true, "folder": "/etc/holdfast-zookeeper-tls", "serverName": "zk.example.com"},
	}, zooKeeperSection(t, s))

	deployment := s.find("Deployment", "holdfast-deployment")
	pod := []any{"spec", "template", "spec"}
	require.Equal(t, map[string]any{"secretName": "zookeeper-tls", "optional": true}, at(deployment, append(pod, "volumes", 2, "secret")...))
	mount := at(deployment, append(pod, "containers", 0, "volumeMounts", 2)...)
	require.Equal(t, map[string]any{"name": "zookeeper-tls", "mountPath": "/etc/holdfast-zookeeper-tls", "readOnly": true}, mount)
}

func TestPlatformWithTLSByTheSystemsCertificatesMountsNone(t *testing.T) {
	s := recordPlatform(t, func(a *components.PlatformArgs) {
		a.Operator.ZooKeeper = &components.ZooKeeperArgs{ConnectString: "zk:2281", TLS: components.ZooKeeperOperatorTLS{Enabled: true}}
	})
	require.Equal(t, map[string]any{"connectString": "zk:2281", "tls": map[string]any{"enabled": true}}, zooKeeperSection(t, s))
	require.Len(t, at(s.find("Deployment", "holdfast-deployment"), "spec", "template", "spec", "volumes"), 1)
}

func TestPlatformRefusesTLSThatWouldBeNone(t *testing.T) {
	for want, zk := range map[string]components.ZooKeeperArgs{
		"operator.zooKeeper.tls.enabled is true, which needs operator.zooKeeper.connectString":  {TLS: components.ZooKeeperOperatorTLS{Enabled: true}},
		`operator.zooKeeper.tls.secret is "s", which needs operator.zooKeeper.tls.enabled`:      {ConnectString: "zk", TLS: components.ZooKeeperOperatorTLS{Secret: "s"}},
		`operator.zooKeeper.tls.serverName is "zk", which needs operator.zooKeeper.tls.enabled`: {ConnectString: "zk", TLS: components.ZooKeeperOperatorTLS{ServerName: "zk"}},
	} {
		_, err := render.Record(func(ctx *pulumi.Context) error {
			_, err := components.NewPlatform(ctx, "holdfast", platformArgs(func(a *components.PlatformArgs) { a.Operator.ZooKeeper = &zk }))
			return err
		})
		require.ErrorContains(t, err, want)
	}
}

func TestPlatformWithoutACredentialMountsNone(t *testing.T) {
	s := recordPlatform(t, func(a *components.PlatformArgs) {
		a.Operator.ZooKeeper = &components.ZooKeeperArgs{ConnectString: "zk:2181"}
	})
	require.Equal(t, map[string]any{"connectString": "zk:2181"}, zooKeeperSection(t, s))
	require.Len(t, at(s.find("Deployment", "holdfast-deployment"), "spec", "template", "spec", "volumes"), 1)
}
