package lab

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
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
)

// forLong is how long certificates are valid that are not meant to expire.
const forLong = 24 * time.Hour

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(name string) (*authority, error) {
	template := template(name, forLong)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	return &authority{cert: cert, key: key}, nil
}

func template(name string, valid time.Duration) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(valid),
	}
}

// party is somebody who has a certificate, in files that are replaced when it gets another one.
type party struct {
	name, dir string
	issuer    *authority

	// mu is for faults that happen at the same time.
	mu sync.Mutex
	// doubtful says that its certificate may have expired.
	doubtful bool
}

// files name the party's certificate, its key and the authorities that it believes.
func (p *party) files() leasetls.Files {
	return leasetls.Files{Cert: filepath.Join(p.dir, "tls.crt"), Key: filepath.Join(p.dir, "tls.key"), CA: filepath.Join(p.dir, "ca.crt")}
}

// issue gives the party a new key and a certificate, of its issuer, that is valid on this machine for a time.
func (p *party) issue(valid time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	template := template(p.name, valid)
	template.DNSNames, template.IPAddresses = []string{p.name}, []net.IP{net.IPv4(127, 0, 0, 1)}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("certificate of %s: %w", p.name, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, p.issuer.cert, &key.PublicKey, p.issuer.key)
	if err != nil {
		return fmt.Errorf("certificate of %s: %w", p.name, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("certificate of %s: %w", p.name, err)
	}
	p.doubtful = valid < forLong
	if err := replace(p.files().Cert, "CERTIFICATE", der); err != nil {
		return err
	}
	return replace(p.files().Key, "PRIVATE KEY", keyDER)
}

// moveTo makes another authority the issuer of the party's next certificates.
func (p *party) moveTo(issuer *authority) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.issuer = issuer
}

// believe sets the authorities that the party accepts.
func (p *party) believe(authorities ...*authority) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ders [][]byte
	for _, a := range authorities {
		ders = append(ders, a.cert.Raw)
	}
	return replace(p.files().CA, "CERTIFICATE", ders...)
}

// replace writes a PEM file that nobody sees half of. The certificate and the key are two files all the same: a handshake between
// their replacements fails, and is made again.
func replace(path, kind string, ders ...[]byte) error {
	var data []byte
	for _, der := range ders {
		data = append(data, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})...)
	}
	next := path + ".next"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// newParty makes a party with a certificate of an issuer, whom it believes too.
func newParty(dir, name string, issuer *authority) (*party, error) {
	p := &party{name: name, dir: filepath.Join(dir, "tls-"+name), issuer: issuer}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", name, err)
	}
	if err := p.believe(issuer); err != nil {
		return nil, err
	}
	return p, p.issue(forLong)
}
