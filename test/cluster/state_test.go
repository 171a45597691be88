package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func fullState(t *testing.T) *state {
	t.Helper()
	boot, err := bootID()
	require.NoError(t, err)
	s := newState()
	s.BootID, s.BinDir, s.Nodes, s.FastNodeFailure = boot, "/bin-dir", 2, true
	m := s.machine("node1")
	m.Init = Process{PID: 10, Start: 100}
	m.Components["kubelet"] = Process{PID: 11, Start: 101}
	m.Images["abc"] = true
	s.Forwards = []*forward{{Target: apiTarget, Listen: "127.0.0.1:4000", Process: Process{PID: 12, Start: 102}}}
	s.Images = []image{{Refs: []string{"a:1"}, SHA256: "abc"}}
	return s
}

func TestStateRoundTrip(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	want := fullState(t)
	require.NoError(t, want.save(file))
	got, err := loadState(file)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestStateOfAnEarlierBoot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	old := fullState(t)
	old.BootID = "earlier"
	require.NoError(t, old.save(file))
	got, err := loadState(file)
	require.NoError(t, err)
	assert.Equal(t, Process{}, got.Machines["node1"].Init)
	assert.Empty(t, got.Machines["node1"].Components)
	assert.Equal(t, map[string]bool{"abc": true}, got.Machines["node1"].Images, "what is on disk is still there")
	assert.Equal(t, &forward{Target: apiTarget, Listen: "127.0.0.1:4000"}, got.Forwards[0], "the port is kept")
}

func TestStateThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	for content, want := range map[string]string{"{": file, `{"version": 99}`: "version 99"} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		_, err := loadState(file)
		assert.ErrorContains(t, err, want)
	}
}

func TestLockExcludes(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "dev")
	unlock, err := lockFolder(t.Context(), folder)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Millisecond)
	defer cancel()
	_, err = lockFolder(ctx, folder)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	// `down` removes the folder with its lock: who waited gets the new one.
	require.NoError(t, os.RemoveAll(folder))
	again, err := lockFolder(t.Context(), folder)
	require.NoError(t, err)
	again()
	unlock()
}

func TestAddImage(t *testing.T) {
	a1, a2 := image{[]string{"a:1"}, "1"}, image{[]string{"a:1"}, "2"}
	both := image{[]string{"a:1", "b:1"}, "3"}
	kept, dropped := addImage([]image{a1}, a2)
	assert.Equal(t, []image{a2}, kept)
	assert.Equal(t, []image{a1}, dropped)
	kept, dropped = addImage([]image{both}, a2)
	assert.Equal(t, []image{both, a2}, kept, "b:1 is only there")
	assert.Empty(t, dropped)
	kept, dropped = addImage([]image{a1}, a1)
	assert.Equal(t, []image{a1}, kept)
	assert.Empty(t, dropped)
}

func TestParseMounts(t *testing.T) {
	const info = `22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 0:4 net:[1] /s/clusters/dev/networks/a rw - nsfs nsfs rw
31 22 0:4 net:[1] /s/clusters/dev/with\040space rw - nsfs nsfs rw
32 22 0:4 net:[1] /s/clusters/dev2/networks/a rw - nsfs nsfs rw
`
	assert.Equal(t, []string{"/s/clusters/dev/networks/a", "/s/clusters/dev/with space"}, parseMounts(info, "/s/clusters/dev"))
}

func TestComponentErrorShowsTheLog(t *testing.T) {
	log := filepath.Join(t.TempDir(), "etcd.log")
	require.NoError(t, os.WriteFile(log, []byte("first\nsecond\n"), 0o600))
	cause := errors.New("process has ended")
	err := error(&ComponentError{Machine: controlPlane, Component: "etcd", Log: log, Err: cause})
	assert.Equal(t, "etcd: process has ended\nlog: "+log+", which ends with:\n  first\n  second", err.Error())
	require.ErrorIs(t, err, cause)
	assert.Equal(t, []string{"second"}, tail(log, 1))
	assert.Empty(t, tail(log+".none", 1))
}
