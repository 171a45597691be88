package cluster

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOpenVolumes(t *testing.T) {
	folder := t.TempDir()
	volume := func(name string, mode fs.FileMode) {
		require.NoError(t, os.Mkdir(filepath.Join(folder, name), mode))
	}
	mode := func(name string) fs.FileMode {
		info, err := os.Stat(filepath.Join(folder, name))
		require.NoError(t, err)
		return info.Mode().Perm()
	}
	volume("earlier", 0o750)
	volume("used", 0o700)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "used", "data"), nil, 0o600))

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- OpenVolumes(ctx, folder) }()
	opened := func(name string) {
		require.Eventually(t, func() bool { return mode(name) == 0o777 }, 10*time.Second, time.Millisecond, name)
	}
	opened("earlier")
	volume("new", 0o750)
	opened("new")
	assert.Equal(t, fs.FileMode(0o700), mode("used"), "what its user may have chosen stays")

	cancel()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("it does not end with its context")
	}
}

func TestOpenVolumesNeedsTheFolder(t *testing.T) {
	require.ErrorIs(t, OpenVolumes(t.Context(), filepath.Join(t.TempDir(), "none")), fs.ErrNotExist)
}
