package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/lease/embedded"
	"github.com/holdfast-io/holdfast/operator/internal/lease/service"
)

// TestMain lets the test binary be lease-service.
func TestMain(m *testing.M) {
	if os.Getenv("TEST_LEASE_SERVICE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// fails runs lease-service, which must not start, and returns what it prints.
func fails(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"--listen=127.0.0.1:0", "--metrics-listen="}, args...)...)
	cmd.Env = append(os.Environ(), "TEST_LEASE_SERVICE=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Run(), &exit, "%s", out.String())
	require.Equal(t, 1, exit.ExitCode())
	return out.String()
}

func TestAFailedStartIsOneLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	damaged := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(damaged, "member", "snap"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(damaged, "member", "snap", "db"), []byte(strings.Repeat("no database", 10_000)), 0o600))
	used := t.TempDir()
	etcd, err := embedded.Start(t.Context(), embedded.Options{Dir: used, LogLevel: "fatal"})
	require.NoError(t, err)
	t.Cleanup(etcd.Close)
	for want, dir := range map[string]string{
		"not a directory":                  filepath.Join(file, "data"),
		"invalid database":                 damaged,
		"is in use by another process":     used,
		"the embedded etcd needs one (or ": "",
	} {
		out := fails(t, "--data-dir="+dir)
		assert.Equal(t, 1, strings.Count(out, "\n"), out)
		assert.Regexp(t, `^lease-service: --data-dir`, out)
		assert.Contains(t, out, want)
	}
}

// Without etcd and TLS everybody who reaches the service may do everything, and so only this machine does.
func TestAloneItListensOnThisMachine(t *testing.T) {
	listens := func(args ...string) []string {
		var opts service.Options
		cmd := newCommand(&opts)
		require.NoError(t, cmd.ParseFlags(args))
		closed(cmd, &opts)
		return []string{opts.Listen, opts.MetricsListen}
	}
	assert.Equal(t, []string{"127.0.0.1:7400", "127.0.0.1:7401"}, listens())
	assert.Equal(t, []string{":7400", "127.0.0.1:7401"}, listens("--listen=:7400"))
	assert.Equal(t, []string{"127.0.0.1:7400", ""}, listens("--metrics-listen="))
	assert.Equal(t, []string{":7400", ":7401"}, listens("--tls-cert=tls.crt"))
	assert.Equal(t, []string{":7400", ":7401"}, listens("--etcd-endpoints=http://etcd:2379"))
}

func TestTheDataIsWhereTheUserMayWrite(t *testing.T) {
	env := func(vars map[string]string) func(string) string {
		return func(name string) string { return vars[name] }
	}
	assert.Equal(t, "/var/lib/lease-service", defaultDataDir(0, env(map[string]string{"HOME": "/root"})))
	assert.Equal(t, "/home/me/.local/state/lease-service", defaultDataDir(1000, env(map[string]string{"HOME": "/home/me"})))
	assert.Equal(t, "/state/lease-service", defaultDataDir(1000, env(map[string]string{"HOME": "/home/me", "XDG_STATE_HOME": "/state"})))
	assert.Empty(t, defaultDataDir(1000, env(nil)))
}
