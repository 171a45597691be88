package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPreflightNamesWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	for _, name := range binaries[1:] {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o755))
	}
	err := preflight(dir, filepath.Join(dir, "enforcer"))
	require.ErrorContains(t, err, dir+" has no program "+binaries[0]+" (tools/build.sh kubernetes")
	require.ErrorContains(t, err, "enforcer: no such program (tools/build.sh netpol")
	assert.ErrorContains(t, preflight("", ""), "HOLDFAST_KUBE_BIN")
}

func TestFailedUpLeavesNoFolder(t *testing.T) {
	dir := t.TempDir()
	_, err := Up(t.Context(), Options{StateDir: dir, Name: "dev", BinDir: filepath.Join(dir, "none")})
	require.ErrorContains(t, err, "has no program etcd")
	assert.NoDirExists(t, filepath.Join(dir, "clusters", "dev"))
	_, err = Up(t.Context(), Options{StateDir: dir, Name: "dev", BinDir: dir, Nodes: MaxNodes + 1})
	require.ErrorContains(t, err, "nodes 17: want 1 to 16")
}

func TestInotifyLimitIsRaisedButNeverLowered(t *testing.T) {
	for limit, want := range map[string]string{"128\n": "1024", "1024\n": "1024\n", "8192\n": "8192\n"} {
		file := filepath.Join(t.TempDir(), "max_user_instances")
		require.NoError(t, os.WriteFile(file, []byte(limit), 0o644))
		require.NoError(t, raiseInotify(file))
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
	assert.ErrorContains(t, raiseInotify(filepath.Join(t.TempDir(), "none")), "limit of inotify instances")
}
