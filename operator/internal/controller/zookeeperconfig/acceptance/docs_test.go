package acceptance_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
)

var examples = filepath.Join("..", "..", "..", "..", "..", "docs", "examples")

// kubectl runs the real one in the namespace of the fixture.
func (f *fixture) kubectl(stdin string, args ...string) (string, error) {
	f.Helper()
	config := api.NewConfig()
	config.Clusters["test"] = &api.Cluster{Server: env.Config.Host, CertificateAuthorityData: env.Config.CAData}
	config.AuthInfos["test"] = &api.AuthInfo{ClientCertificateData: env.Config.CertData, ClientKeyData: env.Config.KeyData}
	config.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "test", Namespace: f.ns}
	config.CurrentContext = "test"
	file := filepath.Join(f.TempDir(), "kubeconfig")
	require.NoError(f, clientcmd.WriteToFile(*config, file))
	cmd := exec.CommandContext(f.ctx, filepath.Join(os.Getenv(testkit.Assets), "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+file)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The examples work as they are written. Of the one with an ensemble of its own the servers are the test's.
func TestExamples(t *testing.T) {
	f := start(t, shared.ConnectString())
	must := func(stdin string, args ...string) string {
		out, err := f.kubectl(stdin, args...)
		require.NoError(t, err, out)
		return out
	}
	must("", "apply", "-f", filepath.Join(examples, "zookeeperconfig.yaml"))
	must("", "apply", "-f", filepath.Join(examples, "zookeeperconfig-known-fields.yaml"))
	must("", "wait", "--timeout=60s", "--for=condition=Ready", "zkc/checkout-flag", "zkc/routing")
	require.Equal(t, "off", string(f.znode("/flags/checkout").Value))
	require.Equal(t, `{"v2": 10}`, string(f.znode("/routing/rules").Value))
	table := must("", "get", "zkc")
	require.Regexp(t, `NAME +PATH +STATE +READY +AGE`, table)
	require.Regexp(t, `checkout-flag +/flags/checkout +Synced +True`, table)

	full, err := os.ReadFile(filepath.Join(examples, "zookeeperconfig-full.yaml"))
	require.NoError(t, err)
	const servers = "zk-0.zookeeper:2181,zk-1.zookeeper:2181,zk-2.zookeeper:2181/team-a"
	require.Contains(t, string(full), servers)
	must(strings.ReplaceAll(string(full), servers, shared.ConnectString()+"/"+f.ns+"-a"), "apply", "-f", "-")
	must("", "wait", "--timeout=60s", "--for=condition=Ready", "zkc/database-url")
	must("", "delete", "zkc", "--all", "--timeout=60s")
}

// What cannot be is refused by the API server, with a sentence that says what to do.
func TestValidation(t *testing.T) {
	f := start(t, shared.ConnectString())
	for body, want := range map[string]string{
		"{path: /a}": "exactly one of spec.data",
		"{path: /a, data: 'AA==', stringData: x}":                                                         "exactly one of spec.data",
		"{path: /a, data: 'not base64'}":                                                                  "spec.data",
		"{path: a, stringData: x}":                                                                        "begins with /",
		"{path: /a/, stringData: x}":                                                                      "empty part",
		"{path: /a//b, stringData: x}":                                                                    "empty part",
		"{path: /a/../b, stringData: x}":                                                                  "no part '.' or '..'",
		"{path: /zookeeper/quota, stringData: x}":                                                         "keeps for itself",
		"{path: /a, stringData: x, syncPolicy: sometimes}":                                                "syncPolicy",
		"{path: /a, dataFrom: {}}":                                                                        "exactly one of configMapKeyRef and secretKeyRef",
		"{path: /a, stringData: x, acl: [{scheme: world, id: me, perms: r}]}":                             "scheme world has the id anyone",
		"{path: /a, stringData: x, acl: [{scheme: digest, perms: r}]}":                                    "exactly one of id and secretRef",
		"{path: /a, stringData: x, acl: [{scheme: digest, id: 'me:password', perms: r}]}":                 "base64(sha1",
		"{path: /a, stringData: x, acl: [{scheme: ip, id: 10.0.0.1, perms: rx}]}":                         "perms",
		"{path: /a, stringData: x, connection: {connectString: a, connectStringFrom: {name: a, key: b}}}": "at most one of",
	} {
		out, err := f.kubectl("apiVersion: dist.system/v1alpha1\nkind: ZooKeeperConfig\nmetadata: {name: bad}\nspec: "+body+"\n", "apply", "-f", "-")
		require.Error(t, err, body)
		require.Contains(t, out, want, body)
	}
	for _, body := range []string{
		"{path: /a/..b/.c, stringData: ''}", "{path: /zookeeperx, data: ''}", "{path: /b, data: '//79+A=='}",
		"{path: /c, stringData: x, acl: [{scheme: digest, id: 'me:D/InIHSb7yEEbrWz8b9l71RjZJU=', perms: cdrwa}]}",
	} {
		out, err := f.kubectl("apiVersion: dist.system/v1alpha1\nkind: ZooKeeperConfig\nmetadata: {name: good}\nspec: "+body+"\n", "apply", "--dry-run=server", "-f", "-")
		require.NoError(t, err, "%s: %s", body, out)
	}
}

// What ZooKeeper itself limits is checked before anything is sent, and the largest that is accepted works.
func TestSize(t *testing.T) {
	f := start(t, shared.ConnectString())
	const most = 1<<20 - 16<<10
	f.create(f.object("most", "/most", strings.Repeat("x", most)))
	f.ready("most")
	require.Len(t, f.znode("/most").Value, most)
	f.create(f.object("more", "/more", strings.Repeat("x", most+1)))
	obj := f.not("more", v1alpha1.ReasonInvalidSpec)
	require.Contains(t, obj.Status.Message, "1032193 bytes")
	f.absent("/more")
}
