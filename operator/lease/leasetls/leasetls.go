// Package leasetls makes gRPC transport credentials of PEM files that are read anew for every connection, so that
// certificates and authorities can be rotated without a restart.
package leasetls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc/credentials"
)

// Files name PEM files.
type Files struct {
	// Cert and Key are the own certificate chain and its key. Both or none.
	Cert, Key string
	// CA is the authorities the other side's certificate must come from. A server without it asks for no
	// certificate; a client without it takes the system's authorities.
	CA string
}

// Validate says what is wrong with the files as they are now.
func (f Files) Validate() error {
	if (f.Cert == "") != (f.Key == "") {
		return errors.New("a certificate needs a key and a key a certificate")
	}
	if f.Cert != "" {
		if _, err := f.certificate(); err != nil {
			return err
		}
	}
	if f.CA != "" {
		if _, err := f.pool(); err != nil {
			return err
		}
	}
	return nil
}

func (f Files) certificate() (*tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate %q with the key %q: %w", f.Cert, f.Key, err)
	}
	return &cert, nil
}

func (f Files) pool() (*x509.CertPool, error) {
	data, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("read the authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%q holds no PEM certificate", f.CA)
	}
	return pool, nil
}

// Client returns the TLS configuration of a client, as the files are now.
func (f Files) Client() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pool, err := f.pool()
		if err != nil {
			return nil, err
		}
		config.RootCAs = pool
	}
	if f.Cert != "" {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.certificate() }
	}
	return config, nil
}

// Server returns the TLS configuration of a server, as the files are now.
func (f Files) Server() (*tls.Config, error) {
	cert, err := f.certificate()
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2"}}
	if f.CA != "" {
		if config.ClientCAs, err = f.pool(); err != nil {
			return nil, err
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config, nil
}

// ServerCredentials are those of a gRPC server. A handshake fails while the files are unreadable.
func ServerCredentials(f Files) credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.Server() },
	})
}

// ServerCredentialsOrToken are ServerCredentials for a server that knows its clients by tokens too: a client may show no
// certificate, but none that is not of the authorities.
func ServerCredentialsOrToken(f Files) credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config, err := f.Server()
			if err == nil && config.ClientAuth == tls.RequireAndVerifyClientCert {
				config.ClientAuth = tls.VerifyClientCertIfGiven
			}
			return config, err
		},
	})
}

// TokenFile makes a client send the bearer token in a file, which is read anew for each call, since the kubelet rotates it. It refuses
// to send it over a connection without TLS. Use it with grpc.WithPerRPCCredentials.
func TokenFile(path string) credentials.PerRPCCredentials { return tokenFile(path) }

type tokenFile string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (path tokenFile) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := os.ReadFile(string(path))
	if err != nil {
		return nil, fmt.Errorf("read the token: %w", err)
	}
	return map[string]string{"authorization": "Bearer " + strings.TrimSpace(string(token))}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (tokenFile) RequireTransportSecurity() bool { return true }

// ClientCredentials are those of a gRPC client. A connection attempt fails while the files are unreadable.
func ClientCredentials(f Files) credentials.TransportCredentials {
	return &clientCredentials{TransportCredentials: credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), files: f}
}

// clientCredentials makes new credentials for each handshake, since a tls.Config cannot change its authorities.
type clientCredentials struct {
	credentials.TransportCredentials

	files Files
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *clientCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := c.files.Client()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (c *clientCredentials) Clone() credentials.TransportCredentials {
	return &clientCredentials{TransportCredentials: c.TransportCredentials.Clone(), files: c.files}
}

// Identity returns who a certificate is for: its first URI (SPIFFE), else its first DNS name, else its common name.
func Identity(cert *x509.Certificate) string {
	switch {
	case len(cert.URIs) > 0:
		return cert.URIs[0].String()
	case len(cert.DNSNames) > 0:
		return cert.DNSNames[0]
	}
	return cert.Subject.CommonName
}

// OwnIdentity returns the Identity of the own certificate, as it is now.
func (f Files) OwnIdentity() (string, error) {
	cert, err := f.certificate()
	if err != nil {
		return "", err
	}
	if cert.Leaf == nil {
		return "", fmt.Errorf("the certificate %q was not parsed", f.Cert)
	}
	return Identity(cert.Leaf), nil
}
