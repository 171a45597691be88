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
	stale := filepath.Join(out, "gone", "14-leaseservice-gone.yaml")
	require.NoError(t, os.MkdirAll(filepath.Dir(stale), 0o755))
	require.NoError(t, os.WriteFile(stale, []byte("{}"), 0o600))
	readme := filepath.Join(out, "README.md")
	require.NoError(t, os.WriteFile(readme, []byte("mine"), 0o600))

	count, err := run(options{stack: "dev", config: devFile, out: out})
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(out, "*", "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, count)
	require.NoDirExists(t, filepath.Dir(stale))
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
