package zktypes

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// The keys of a Secret, and the names of files, that TLS is made of.
const (
	KeyCA      = "ca.crt"
	KeyTLSCert = "tls.crt"
	KeyTLSKey  = "tls.key"
)

// TLS are the PEM blocks of a TLS connection.
type TLS struct {
	// CA are the certificates that the server's is verified against. Empty: those of the system.
	CA []byte
	// Cert and Key are this side's. Empty: none is shown.
	Cert, Key []byte
	// ServerName is what the server's certificate is verified for. Empty: the host that is dialled.
	ServerName string
}

// ReadTLS makes TLS of values by their keys, each of which may be empty. Whether they fit together Config tells.
func ReadTLS(value func(key string) []byte, serverName string) *TLS {
	return &TLS{CA: value(KeyCA), Cert: value(KeyTLSCert), Key: value(KeyTLSKey), ServerName: serverName}
}

// Config makes the configuration of the standard library. Nil makes nil, which is plain TCP. Errors have no values.
func (t *TLS) Config() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if len(t.CA) > 0 {
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(t.CA) {
			return nil, errors.New("TLS: the CA has no certificate in PEM")
		}
	}
	if len(t.Cert) > 0 || len(t.Key) > 0 {
		pair, err := tls.X509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("TLS: certificate and key: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// Parts are what tells one TLS from another. There are none for plain TCP.
func (t *TLS) Parts() []string {
	if t == nil {
		return nil
	}
	return []string{string(t.CA), string(t.Cert), string(t.Key), t.ServerName}
}
