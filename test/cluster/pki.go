package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const certLifetime = 10 * 365 * 24 * time.Hour

// leaf is one certificate of the cluster.
type leaf struct {
	name, ca     string
	commonName   string
	organization []string
	usage        []x509.ExtKeyUsage
	dns, ips     []string
}

// leaves lists the certificates of a cluster, each signed by the CA it names.
func leaves(nodes int) []leaf {
	client, server := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	masters := []string{"system:masters"}
	all := []leaf{
		{
			name: "apiserver", ca: "ca", commonName: "kube-apiserver", usage: server,
			dns: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + clusterDomain},
			ips: []string{"127.0.0.1", controlPlaneIP, apiServiceIP},
		},
		{name: "kubelet-client", ca: "ca", commonName: "kube-apiserver-kubelet-client", organization: masters, usage: client},
		{name: "front-proxy-client", ca: "front-proxy-ca", commonName: "front-proxy-client", usage: client},
		{name: "admin", ca: "ca", commonName: "admin", organization: masters, usage: client},
		{name: "controller-manager", ca: "ca", commonName: "system:kube-controller-manager", usage: client},
		{name: "scheduler", ca: "ca", commonName: "system:kube-scheduler", usage: client},
		{name: "proxy", ca: "ca", commonName: "system:kube-proxy", usage: client},
		{name: "network-policy", ca: "ca", commonName: "network-policy", usage: client},
	}
	for i := 1; i <= nodes; i++ {
		all = append(all, leaf{
			name: nodeName(i), ca: "ca", commonName: "system:node:" + nodeName(i), organization: []string{"system:nodes"},
			usage: append(client, server...), dns: []string{nodeName(i)}, ips: []string{nodeIP(i), "127.0.0.1"},
		})
	}
	return all
}

// ensurePKI makes what is missing of the cluster's keys and certificates.
func ensurePKI(dir string, nodes int, now time.Time) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	cas := map[string]*authority{}
	for _, name := range []string{"ca", "front-proxy-ca"} {
		ca, err := ensureCA(dir, name, now)
		if err != nil {
			return err
		}
		cas[name] = ca
	}
	for _, l := range leaves(nodes) {
		if exists(filepath.Join(dir, l.name+".crt")) {
			continue
		}
		if err := cas[l.ca].sign(dir, l, now); err != nil {
			return fmt.Errorf("certificate %s: %w", l.name, err)
		}
	}
	return ensureSigningKey(dir)
}

// authority is a CA with its key.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func ensureCA(dir, name string, now time.Time) (*authority, error) {
	if exists(filepath.Join(dir, name+".crt")) {
		return loadCA(dir, name)
	}
	template, err := newTemplate(name, now)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	key, err := newKey(dir, name)
	if err != nil {
		return nil, err
	}
	if err := writeCert(dir, name, template, template, &key.PublicKey, key); err != nil {
		return nil, err
	}
	return loadCA(dir, name)
}

func loadCA(dir, name string) (*authority, error) {
	cert, err := readPEM(filepath.Join(dir, name+".crt"))
	if err != nil {
		return nil, err
	}
	key, err := readPEM(filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, err
	}
	a := &authority{}
	if a.cert, err = x509.ParseCertificate(cert); err != nil {
		return nil, fmt.Errorf("CA %s: %w", name, err)
	}
	if a.key, err = x509.ParseECPrivateKey(key); err != nil {
		return nil, fmt.Errorf("CA %s: %w", name, err)
	}
	return a, nil
}

func (a *authority) sign(dir string, l leaf, now time.Time) error {
	template, err := newTemplate(l.commonName, now)
	if err != nil {
		return err
	}
	template.Subject.Organization = l.organization
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = l.usage
	template.DNSNames = l.dns
	for _, ip := range l.ips {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	key, err := newKey(dir, l.name)
	if err != nil {
		return err
	}
	return writeCert(dir, l.name, template, a.cert, &key.PublicKey, a.key)
}

func newTemplate(commonName string, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-time.Hour), // clocks that were put back still accept it
		NotAfter:              now.Add(certLifetime),
		BasicConstraintsValid: true,
	}, nil
}

// newKey writes the private key before the certificate is made: a certificate that exists always
// has its key beside it.
func newKey(dir, name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(filepath.Join(dir, name+".key"), "EC PRIVATE KEY", der, 0o600)
}

func writeCert(dir, name string, template, parent *x509.Certificate, public *ecdsa.PublicKey, signer *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, name+".crt"), "CERTIFICATE", der, 0o644)
}

// ensureSigningKey makes the key pair that signs service account tokens.
func ensureSigningKey(dir string) error {
	public := filepath.Join(dir, "sa.pub")
	if exists(public) {
		return nil
	}
	key, err := newKey(dir, "sa")
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	return writePEM(public, "PUBLIC KEY", der, 0o644)
}

func writePEM(file, kind string, der []byte, mode os.FileMode) error {
	return writeFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}

func readPEM(file string) ([]byte, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("%s: no PEM block in it", file)
	}
	return block.Bytes, nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}
