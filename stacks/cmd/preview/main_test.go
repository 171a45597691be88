package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/stacks/platform"
)

const stackFile = `config:
  holdfast:operator: {image: "example.com/operator:1"}
  holdfast:leaseService: {image: "example.com/lease-service:1"}
  holdfast:tenants:
    - {name: team-a, leaseTTLSeconds: 30}
`

// checkout is a repository in which the rendering of the stack is committed, and the folder that the test runs in.
func checkout(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	values, err := platform.StackFile([]byte(stackFile))
	require.NoError(t, err)
	config, err := platform.ParseConfig(values, nil)
	require.NoError(t, err)
	manifests, err := platform.RenderManifests(config)
	require.NoError(t, err)
	for _, manifest := range manifests {
		file := filepath.Join("stacks", "gitops", "dev", manifest.Path)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, manifest.Content, 0o600))
	}
	require.NoError(t, os.WriteFile("Pulumi.dev.yaml", []byte(stackFile), 0o600))
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "--all"}, {"commit", "--quiet", "--message", "one"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@t", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@t")
		output, err := cmd.CombinedOutput()
		require.NoErrorf(t, err, "git %v: %s", args, output)
	}
}

func TestPreviewShowsWhatAChangeOfTheConfigurationDeploys(t *testing.T) {
	checkout(t)
	var out strings.Builder
	changed, err := run(t.Context(), options{stack: "dev", base: "HEAD"}, &out)
	require.NoError(t, err)
	require.False(t, changed, out.String())
	require.Contains(t, out.String(), "stack dev deploys what it does at HEAD")

	edited := strings.Replace(stackFile, "leaseTTLSeconds: 30", "leaseTTLSeconds: 31", 1)
	require.NoError(t, os.WriteFile("Pulumi.dev.yaml", []byte(edited), 0o600))
	out.Reset()
	changed, err = run(t.Context(), options{stack: "dev", base: "HEAD"}, &out)
	require.NoError(t, err)
	require.True(t, changed)
	require.Contains(t, out.String(), "changed  LeaseService team-a/team-a")
	require.Contains(t, out.String(), "-  leaseTTLSeconds: 30\n+  leaseTTLSeconds: 31\n")
}

func TestPreviewSaysWhenItCannotTell(t *testing.T) {
	checkout(t)
	_, err := run(t.Context(), options{stack: "dev", base: "nowhere"}, &strings.Builder{})
	require.ErrorContains(t, err, `revision "nowhere"`)
	_, err = run(t.Context(), options{stack: "moon", base: "HEAD"}, &strings.Builder{})
	require.ErrorContains(t, err, `stack "moon"`)
	require.NoError(t, os.WriteFile("Pulumi.dev.yaml", []byte("config: {holdfast:tenats: []}\n"), 0o600))
	_, err = run(t.Context(), options{stack: "dev", base: "HEAD"}, &strings.Builder{})
	require.ErrorContains(t, err, "tenats: is not a known key")
}

func TestExitCode(t *testing.T) {
	require.Equal(t, 0, exitCode(false, nil))
	require.Equal(t, 2, exitCode(true, nil))
	require.Equal(t, 1, exitCode(false, errors.New("x")))
	require.Equal(t, 1, exitCode(true, errors.New("x")))
}
