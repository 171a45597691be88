package zookeeper_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
	zktest "github.com/holdfast-io/holdfast/test/zookeeper"
)

func TestTLS(t *testing.T) {
	ctx := deadline(t)
	address, certificates := zktest.StartSecure(t)
	connect, err := zktypes.ParseConnectString(address)
	require.NoError(t, err)
	patient := options()
	// The first handshake of a Java process takes its time.
	patient.DialTimeout, patient.RequestTimeout = 10*time.Second, 30*time.Second
	pool := newPool(t, patient)
	open := func(tls *zookeeper.TLS) *zookeeper.Session {
		s, err := pool.Session(zookeeper.Target{Connect: connect, Credential: alice, TLS: tls})
		require.NoError(t, err)
		return s
	}
	mutual := &zookeeper.TLS{CA: certificates.CA, Cert: certificates.ClientCert, Key: certificates.ClientKey}
	_, err = open(mutual).Create(ctx, "", "/x", []byte("v"), aclOf(alice, zktypes.PermAll))
	require.NoError(t, err)
	got, err := open(mutual).Get(ctx, "/x")
	require.NoError(t, err)
	require.Equal(t, "v", string(got.Value))

	for name, tls := range map[string]*zookeeper.TLS{
		"the CAs of the system": {},
		"no client certificate": {CA: certificates.CA},
		"another name":          {CA: certificates.CA, Cert: certificates.ClientCert, Key: certificates.ClientKey, ServerName: "elsewhere"},
	} {
		other := newPool(t, options())
		s, err := other.Session(zookeeper.Target{Connect: connect, TLS: tls})
		require.NoError(t, err)
		_, err = s.Get(ctx, "/x")
		require.True(t, isUnavailable(err), "%s: %v", name, err)
	}
	_, err = pool.Session(zookeeper.Target{Connect: connect, TLS: &zookeeper.TLS{CA: []byte("no PEM")}})
	require.ErrorContains(t, err, "CA")
	_, err = pool.Session(zookeeper.Target{Connect: connect, TLS: &zookeeper.TLS{Cert: certificates.ClientCert}})
	require.ErrorContains(t, err, "certificate and key")
}
