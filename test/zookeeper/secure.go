package zookeeper

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certificates are what the two sides of a TLS connection need, as PEM.
type Certificates struct {
	// CA signed both others.
	CA []byte
	// ClientCert and ClientKey are a client's.
	ClientCert, ClientKey []byte
}

// StartSecure starts a standalone server that also takes TLS connections, from clients with a certificate of the CA. The
// address is where it takes them.
func StartSecure(tb TB) (address string, certificates Certificates) {
	tb.Helper()
	dir := tb.TempDir()
	ca, err := newAuthority()
	if err != nil {
		tb.Fatalf("make a CA: %v", err)
	}
	serverCert, serverKey, err := ca.issue("server")
	if err != nil {
		tb.Fatalf("make a server's certificate: %v", err)
	}
	out := Certificates{CA: ca.pem}
	if out.ClientCert, out.ClientKey, err = ca.issue("client"); err != nil {
		tb.Fatalf("make a client's certificate: %v", err)
	}
	files := map[string][]byte{"server.pem": append(serverKey, serverCert...), "ca.pem": ca.pem}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			tb.Fatalf("write %s: %v", name, err)
		}
	}
	ports, err := freePorts(2)
	if err != nil {
		tb.Fatalf("find free ports: %v", err)
	}
	server := &Server{
		id: 1, dir: filepath.Join(dir, "zookeeper"), address: fmt.Sprintf("127.0.0.1:%d", ports[0]),
		extra: fmt.Sprintf(`secureClientPort=%d
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider
ssl.clientAuth=need
ssl.keyStore.location=%s/server.pem
ssl.keyStore.type=PEM
ssl.trustStore.location=%s/ca.pem
ssl.trustStore.type=PEM
`, ports[1], dir, dir),
	}
	if err := server.configure(); err != nil {
		tb.Fatalf("configure: %v", err)
	}
	if err := server.launch(); err != nil {
		tb.Fatalf("start: %v", err)
	}
	tb.Cleanup(server.stop)
	if err := server.wait(startTimeout); err != nil {
		tb.Fatalf("start: %v", err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[1]), out
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// issue makes a certificate for the loopback address, and its key in PKCS 8, the only form that ZooKeeper reads.
func (a *authority) issue(name string) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), nil
}
