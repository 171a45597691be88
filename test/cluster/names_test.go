package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestValidateName(t *testing.T) {
	for _, name := range []string{"a", "dev", "e2e-1", "abcdefghijklmnopqrstuvwxyz-01234"} {
		assert.NoError(t, validateName(name), name)
	}
	for _, name := range []string{"", "-a", "a-", "A", "1a", "a_b", "../a", "a/b", "abcdefghijklmnopqrstuvwxyz-012345"} {
		assert.Error(t, validateName(name), name)
	}
}

func TestNodesAreApart(t *testing.T) {
	seen := map[string]bool{controlPlaneIP: true}
	for i := 1; i <= MaxNodes; i++ {
		for _, address := range []string{nodeIP(i), podSubnet(i)} {
			assert.False(t, seen[address], address)
			seen[address] = true
		}
		assert.Equal(t, i, nodeIndex(nodeName(i)))
	}
	assert.Zero(t, nodeIndex("node0"))
	assert.Error(t, validateNodes(0))
	assert.Error(t, validateNodes(MaxNodes+1))
}

func TestCgroupName(t *testing.T) {
	a, b := cgroupName("/one/clusters/dev"), cgroupName("/two/clusters/dev")
	assert.NotEqual(t, a, b, "clusters of one name in two state folders")
	assert.Regexp(t, `^holdfast/dev-[0-9a-f]{8}$`, a)
}

func TestQualify(t *testing.T) {
	for host, want := range map[string]string{
		"web.demo.svc":                      "web.demo.svc.cluster.local.",
		"web-0.web.demo.svc":                "web-0.web.demo.svc.cluster.local.",
		"web.demo.svc.cluster.local":        "web.demo.svc.cluster.local.",
		"web-0.web.demo.svc.cluster.local.": "web-0.web.demo.svc.cluster.local.",
	} {
		got, err := qualify(host)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, host := range []string{"", "web", "web.demo", "localhost", "example.com"} {
		_, err := qualify(host)
		assert.ErrorContains(t, err, "service.namespace.svc", host)
	}
}

func TestWithin(t *testing.T) {
	paths := []string{"/tmp", "/tmp/a", "/tmp/a/b", "/tmpfile", "/var/x", "/tmp/..a"}
	assert.Equal(t, []string{"/tmp/a", "/tmp/a/b", "/tmp/..a"}, within("/tmp", paths))
}

func TestOpenUnknownCluster(t *testing.T) {
	_, err := Open(t.TempDir(), "dev")
	require.ErrorIs(t, err, ErrNoCluster)
	_, err = Open(t.TempDir(), "No/Such")
	require.ErrorContains(t, err, `"No/Such"`)
}
