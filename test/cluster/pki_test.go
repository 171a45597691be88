package cluster

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPKI(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	require.NoError(t, ensurePKI(dir, 1, now))
	first := readAll(t, dir)
	require.NoError(t, ensurePKI(dir, 2, now), "a node is added")
	second := readAll(t, dir)
	for name, content := range first {
		assert.Equal(t, content, second[name], "%s is kept", name)
	}
	for _, l := range leaves(2) {
		cert := readCert(t, dir, l.name)
		roots := x509.NewCertPool()
		roots.AddCert(readCert(t, dir, l.ca))
		_, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: l.usage, CurrentTime: now.Add(9 * 365 * 24 * time.Hour)})
		require.NoError(t, err, l.name)
	}
	assert.NoError(t, readCert(t, dir, "apiserver").VerifyHostname("127.0.0.1"), "the forwarder's address")
	keys, err := filepath.Glob(filepath.Join(dir, "*.key"))
	require.NoError(t, err)
	assert.Len(t, keys, len(leaves(2))+3)
	for _, key := range keys {
		info, err := os.Stat(key)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode(), key)
	}
}

func readAll(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		files[e.Name()] = string(b)
	}
	return files
}

func readCert(t *testing.T, dir, name string) *x509.Certificate {
	t.Helper()
	der, err := readPEM(filepath.Join(dir, name+".crt"))
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert
}
