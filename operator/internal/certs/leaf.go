package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"slices"
	"time"
)

const (
	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"

	// backdate is how far the clocks of those who verify may lag behind.
	backdate = 5 * time.Minute
)

// Keys are a leaf certificate with its key, and the certificates to trust, all as PEM. The zero value is none.
type Keys struct {
	CA, Cert, Key []byte
}

// Leaf says what a leaf certificate is for. All usages are allowed: replicas are each other's clients.
type Leaf struct {
	// Identity becomes the URI, by which the lease service knows who calls.
	Identity *url.URL
	// DNSNames and IPs are where it may serve. A client needs none.
	DNSNames []string
	IPs      []net.IP
	// Lifetime of a new certificate, at most MaxLifetime.
	Lifetime time.Duration
}

// Renew returns the keys that should be in place of those that are there, and when they have to be looked at again. It
// returns keys that are good as they are, so that at rest nothing changes:
//
//   - a certificate is replaced after two thirds of its life, when it is not for leaf, when it does not come from the
//     authority, or when its key is another one;
//   - otherwise the certificate stays, and the bundle becomes that of now.
func (a *Authority) Renew(have Keys, leaf Leaf, now time.Time) (keys Keys, next time.Time, err error) {
	bundle, err := a.Bundle(now)
	if err != nil {
		return Keys{}, time.Time{}, err
	}
	cert, why := a.usable(have, leaf, bundle, now)
	if why != nil {
		if have, err = a.Issue(leaf, now); err != nil {
			return Keys{}, time.Time{}, err
		}
		if cert, err = parse(have); err != nil {
			return Keys{}, time.Time{}, err
		}
	}
	have.CA = bundle
	next = renewal(cert)
	if ends := a.BundleEnds(now); ends.Before(next) {
		next = ends
	}
	return have, next, nil
}

// renewal is two thirds of a certificate's life after it was issued.
func renewal(cert *x509.Certificate) time.Time {
	issued := cert.NotBefore.Add(backdate)
	return issued.Add(cert.NotAfter.Sub(issued) / 3 * 2)
}

// usable returns the certificate that is there, or why another is needed.
func (a *Authority) usable(have Keys, leaf Leaf, bundle []byte, now time.Time) (*x509.Certificate, error) {
	cert, err := parse(have)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return nil, err
	}
	sameIPs := slices.EqualFunc(cert.IPAddresses, leaf.IPs, func(a, b net.IP) bool { return a.Equal(b) })
	switch {
	case !now.Before(renewal(cert)):
		return nil, errors.New("two thirds of its life are over")
	case len(cert.URIs) != 1 || cert.URIs[0].String() != leaf.Identity.String():
		return nil, errors.New("it is for another identity")
	case !slices.Equal(cert.DNSNames, leaf.DNSNames) || !sameIPs:
		return nil, errors.New("it is for other names")
	}
	return cert, nil
}

func parse(keys Keys) (*x509.Certificate, error) {
	pair, err := tls.X509KeyPair(keys.Cert, keys.Key)
	if err != nil {
		return nil, err
	}
	return pair.Leaf, nil
}

// Issue makes a certificate with a new key.
func (a *Authority) Issue(leaf Leaf, now time.Time) (Keys, error) {
	if leaf.Identity == nil || leaf.Lifetime <= 0 || leaf.Lifetime > MaxLifetime {
		return Keys{}, fmt.Errorf("a certificate needs an identity, and a lifetime of at most %s; it is %s", MaxLifetime, leaf.Lifetime)
	}
	present, err := a.at(now)
	if err != nil {
		return Keys{}, err
	}
	issuer := present.issuer
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Keys{}, fmt.Errorf("make a key: %w", err)
	}
	serial := make([]byte, 16)
	if _, err := rand.Read(serial); err != nil {
		return Keys{}, fmt.Errorf("make a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial),
		Subject:      pkix.Name{Organization: []string{"holdfast"}},
		NotBefore:    now.Add(-backdate).UTC(),
		NotAfter:     now.Add(leaf.Lifetime).UTC(),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:         []*url.URL{leaf.Identity},
		DNSNames:     leaf.DNSNames,
		IPAddresses:  leaf.IPs,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, key.Public(), issuer.key)
	if err != nil {
		return Keys{}, fmt.Errorf("make a certificate: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Keys{}, fmt.Errorf("encode a key: %w", err)
	}
	return Keys{CA: bytes.Clone(present.bundle), Cert: encode(pemCertificate, der), Key: encode(pemKey, secret)}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// Equal tells whether two are the same, byte by byte.
func (k Keys) Equal(other Keys) bool {
	return bytes.Equal(k.CA, other.CA) && bytes.Equal(k.Cert, other.Cert) && bytes.Equal(k.Key, other.Key)
}

// ClientTLS returns the configuration of a client that shows the certificate and connects to a server of that name.
func (k Keys) ClientTLS(serverName string) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(k.Cert, k.Key)
	if err != nil {
		return nil, fmt.Errorf("the certificate and its key: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(k.CA) {
		return nil, errors.New("the authorities: no PEM certificate")
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: serverName}, nil
}
