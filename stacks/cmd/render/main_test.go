package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

func TestRenderWritesTheStackAndNothingElse(t *testing.T) {
	out := t.TempDir()
	stale := filepath.Join(out, "gone", "14-leaseservice-gone.yaml")
	require.NoError(t, os.MkdirAll(filepath.Dir(stale), 0o755))
	require.NoError(t, os.WriteFile(stale, []byte("{}"), 0o600))
	readme := filepath.Join(out, "README.md")
	require.NoError(t, os.WriteFile(readme, []byte("mine"), 0o600))

	count, err := run(options{root: root, out: out, environment: "dev"})
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(out, "*", "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, count)
	require.NoDirExists(t, filepath.Dir(stale))
	require.FileExists(t, readme)
	require.FileExists(t, filepath.Join(out, "team-a", "14-leaseservice-team-a.yaml"))
}

func TestRenderNeedsAnEnvironmentThatExists(t *testing.T) {
	_, err := run(options{root: root, out: t.TempDir()})
	require.ErrorContains(t, err, "usage: render")
	_, err = run(options{root: root, out: t.TempDir(), environment: "moon"})
	require.ErrorContains(t, err, `environment "moon"`)
	require.ErrorIs(t, err, os.ErrNotExist)
}
