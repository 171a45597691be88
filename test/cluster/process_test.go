package cluster

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	line := "42 (a ) (b) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 200 18446744073709551615"
	got, err := parseStat([]byte(line))
	require.NoError(t, err)
	assert.Equal(t, stat{state: 'S', parent: 7, start: 98765}, got)
	for _, bad := range []string{"", "42 a S", "42 (a) S 7 42", "42 (a) S x 42 42 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 98765"} {
		_, err := parseStat([]byte(bad))
		assert.Error(t, err, bad)
	}
}

func TestReusedPidIsNotKilled(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	started, err := identify(cmd.Process.Pid)
	require.NoError(t, err)
	require.True(t, started.Alive())

	other := Process{PID: started.PID, Start: started.Start - 1}
	assert.False(t, other.Alive())
	require.NoError(t, other.kill(t.Context()))
	assert.True(t, started.Alive(), "the process that has the pid now")

	require.NoError(t, started.kill(t.Context()))
	assert.False(t, started.Alive(), "also while nobody has reaped it")
	require.NoError(t, started.kill(t.Context()), "killing twice is fine")
}

func TestNoProcess(t *testing.T) {
	assert.False(t, Process{}.Alive())
	require.NoError(t, Process{}.kill(t.Context()))
}

func TestChildOf(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 60 & echo $!; wait")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := make([]byte, 32)
	_, err = out.Read(line)
	require.NoError(t, err)
	child, err := childOf(cmd.Process.Pid)
	require.NoError(t, err)
	assert.True(t, child.Alive())
	require.NoError(t, child.kill(t.Context()))
	_ = cmd.Wait() // the exit code depends on the shell
	_, err = childOf(os.Getpid())
	assert.ErrorContains(t, err, "no child")
}
