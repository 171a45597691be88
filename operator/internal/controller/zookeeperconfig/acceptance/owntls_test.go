package acceptance_test

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/config"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	pool "github.com/holdfast-io/holdfast/operator/internal/zookeeper/shared"
	zktest "github.com/holdfast-io/holdfast/test/zookeeper"
)

// unrelatedCA is a certificate that signed nothing of a server's.
func unrelatedCA(t *testing.T) []byte {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// The ensemble of the operator's configuration speaks TLS, by the files of a folder. They are read again when they change, and objects
// that bring a credential alone use them too.
func TestTheOperatorsOwnEnsembleSpeaksTLS(t *testing.T) {
	address, certificates := zktest.StartSecure(t)
	f := start(t, shared.ConnectString())
	f.stop()
	c := config.ZooKeeper{ConnectString: address + "/" + f.ns, TLS: config.ZooKeeperTLS{Enabled: true, Folder: t.TempDir()}}
	write := func(name string, content []byte) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(c.TLS.Folder, name), content, 0o600))
	}
	connect, ok := c.OwnConnect()
	require.True(t, ok)
	f.run(func(o *operatorOptions) {
		// The first handshake of a Java process takes its time.
		o.pool.DialTimeout, o.pool.RequestTimeout = 10*time.Second, 20*time.Second
		o.own = pool.NewOwn(connect, pool.Reader{
			Credential: func() (zookeeper.Credential, error) { return operatorCredential, nil }, TLS: c.ReadTLS,
		})
	})
	f.secret("auth", map[string]string{"username": operatorCredential.User, "password": operatorCredential.Password})
	f.create(f.object("relies", "/relies", "a"))
	f.create(f.object("brings", "/brings", "b", func(spec *v1alpha1.ZooKeeperConfigSpec) {
		spec.Connection = &v1alpha1.ZooKeeperConnection{AuthSecretRef: &v1alpha1.ObjectReference{Name: "auth"}}
	}))
	for _, name := range []string{"relies", "brings"} {
		obj := f.not(name, v1alpha1.ReasonOperatorTLS)
		require.Empty(t, obj.Finalizers)
		require.Contains(t, obj.Status.Message, "zookeeper.tls.folder")
		require.NotContains(t, obj.Status.Message, c.TLS.Folder, "the cause is the operator's business")
	}

	write("ca.crt", unrelatedCA(t))
	f.not("relies", v1alpha1.ReasonEnsembleUnavailable)
	write("tls.crt", certificates.ClientCert)
	write("tls.key", certificates.ClientKey)
	write("ca.crt", certificates.CA)
	f.ready("relies")
	f.ready("brings")
	target := targetAt(t, c.ConnectString, operatorCredential)
	target.TLS = &zookeeper.TLS{CA: certificates.CA, Cert: certificates.ClientCert, Key: certificates.ClientKey}
	f.hand = handOf(t, zookeeper.Options{DialTimeout: 10 * time.Second, RequestTimeout: 20 * time.Second}, target)
	f.holds("/relies", "a")
	f.holds("/brings", "b")

	require.NoError(t, os.Remove(filepath.Join(c.TLS.Folder, "tls.key")))
	f.not("relies", v1alpha1.ReasonOperatorTLS)
	f.remove("relies")
	f.gone("relies") // by what worked last
	f.absent("/relies")
}
