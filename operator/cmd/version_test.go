package cmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The linker ignores a -X that names no string variable, and so only a build tells whether the flag of the build scripts arrives.
func TestTheLinkedVersionIsShown(t *testing.T) {
	for _, script := range []string{"../../tools/dev/lib.sh", "../../tools/dev/Dockerfile"} {
		text, err := os.ReadFile(script)
		require.NoError(t, err)
		require.Contains(t, string(text), "-X main.version=", script)
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w -X main.version=v1.2.3-test", "-o", dir+"/", "./...")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, binary := range []string{"operator", "lease-service", "leasectl", "holdfast-zk"} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, binary), "--version").CombinedOutput()
		require.NoError(t, err, "%s: %s", binary, out)
		assert.Equal(t, binary+" version v1.2.3-test\n", string(out))
	}
}
