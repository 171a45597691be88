package cluster

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); -update writes it:\n%s", file, diff)
	}
}

func testLayout() layout { return layoutOf("/state", "dev") }

func testSettings(change ...func(*settings)) settings {
	s := settings{binDir: "/bin-dir", cniDir: "/usr/lib/cni", containerd: "/usr/bin/containerd"}
	for _, f := range change {
		f(&s)
	}
	return s
}

func fast(s *settings) { s.fastNodeFailure = true }

func TestNodeConfigFiles(t *testing.T) {
	for _, file := range []string{"containerd.toml", "kubelet.yaml", "kube-proxy.yaml", "10-bridge.conflist"} {
		got, err := render(file, testLayout().nodeConfig(testSettings(), 2))
		require.NoError(t, err)
		golden(t, file, string(got))
	}
}

func TestFastNodeFailure(t *testing.T) {
	got, err := render("kubelet.yaml", testLayout().nodeConfig(testSettings(fast), 1))
	require.NoError(t, err)
	assert.Contains(t, string(got), "nodeStatusUpdateFrequency: 2s\nnodeLeaseDurationSeconds: 8\n")
	assert.Contains(t, testLayout().controllerManager(testSettings(fast)).args, "--node-monitor-grace-period=8s")
	assert.Contains(t, testLayout().controlPlaneFirst(testSettings(fast))[1].args, "--default-unreachable-toleration-seconds=4")
}

func TestComponents(t *testing.T) {
	var b strings.Builder
	for _, machine := range []string{controlPlane, "node1"} {
		for _, comp := range testLayout().components(testSettings(), machine) {
			b.WriteString(logName(machine, comp.name) + ": " + comp.path + " " + comp.health + "\n")
			b.WriteString("  " + strings.Join(comp.args, "\n  ") + "\n")
		}
	}
	golden(t, "components", b.String())
}

func TestLinks(t *testing.T) {
	lines := append(controlPlaneLinks(), nodePort(3, "/networks/node3")...)
	golden(t, "links", strings.Join(append(lines, nodeLinks(3)...), "\n")+"\n")
}

func TestPolicyRules(t *testing.T) {
	golden(t, "policy", policyRules(3))
}

func TestKubeconfig(t *testing.T) {
	got, err := render("kubeconfig.yaml", kubeconfig{Name: "dev", Server: "https://127.0.0.1:6443", User: "admin", CA: "Y2E=", Cert: "Y2VydA==", Key: "a2V5"})
	require.NoError(t, err)
	golden(t, "kubeconfig.yaml", string(got))
}
