package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const devFile = "../../../Pulumi.dev.yaml"

func TestRenderWritesTheStackAndNothingElse(t *testing.T) {
	out := t.TempDir()
	for _, stale := range []string{"gone/14-leaseservice-gone.yaml", "team-a/deep/er/x.yml", "team-a/x.json", "team-a/Kustomization"} {
		file := filepath.Join(out, stale)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte("{}"), 0o600))
	}
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "kept.yaml"), []byte("{}"), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(out, "team-a", "link")))
	readme := filepath.Join(out, "README.md")
	require.NoError(t, os.WriteFile(readme, []byte("mine"), 0o600))

	count, err := run(options{stack: "dev", config: devFile, out: out})
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(out, "*", "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, count)
	for _, stale := range []string{"gone", "team-a/deep", "team-a/x.json", "team-a/Kustomization", "team-a/link"} {
		_, err := os.Lstat(filepath.Join(out, stale))
		require.ErrorIs(t, err, os.ErrNotExist, stale)
	}
	require.FileExists(t, filepath.Join(outside, "kept.yaml"))
	require.FileExists(t, readme)
	require.FileExists(t, filepath.Join(out, "team-a", "14-leaseservice-team-a.yaml"))
}

func TestRenderNeedsAStackThatExists(t *testing.T) {
	_, err := run(options{out: t.TempDir()})
	require.ErrorContains(t, err, "usage: render")
	_, err = run(options{stack: "moon", out: t.TempDir()})
	require.ErrorContains(t, err, `stack "moon"`)
	require.ErrorIs(t, err, os.ErrNotExist)
}
