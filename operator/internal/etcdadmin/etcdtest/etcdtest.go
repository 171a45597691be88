// Package etcdtest runs a real etcd as a platform team secures one: TLS that demands client certificates, and users.
package etcdtest

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/holdfast-io/holdfast/operator/internal/certs"
	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
)

// RootPassword is the password of the user root.
const RootPassword = "root's own"

// startTimeout bounds how long the server may take.
const startTimeout = 30 * time.Second

// Server is an etcd that ends with the test.
type Server struct {
	// Endpoint is its https URL.
	Endpoint string
	// Keys are a client certificate that it takes, and the authority of its own.
	Keys certs.Keys
	// Files are the same as files.
	Files leasetls.Files
	// Root is a client with all permissions.
	Root *clientv3.Client
}

// Start starts it with authentication enabled, and with no other user than root.
func Start(t testing.TB) *Server {
	t.Helper()
	authority, err := certs.NewAuthority("etcd", bytes.Repeat([]byte{9}, certs.SeedSize))
	must(t, err)
	issue := func(name string) certs.Keys {
		keys, err := authority.Issue(certs.Leaf{
			Identity: &url.URL{Scheme: "test", Host: name}, DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Lifetime: time.Hour,
		}, time.Now())
		must(t, err)
		return keys
	}
	serverFiles := Write(t, t.TempDir(), issue("server"))
	s := &Server{Keys: issue("client")}
	s.Files = Write(t, t.TempDir(), s.Keys)

	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.LogLevel = "secure", t.TempDir(), "fatal"
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ListenPeerUrls = nil
	cfg.ListenClientUrls = []url.URL{{Scheme: "https", Host: "127.0.0.1:0"}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.ClientTLSInfo = transport.TLSInfo{
		CertFile: serverFiles.Cert, KeyFile: serverFiles.Key, TrustedCAFile: serverFiles.CA, ClientCertAuth: true,
	}
	cfg.TickMs, cfg.ElectionMs = 20, 200
	cfg.BcryptCost = 4
	etcd, err := embed.StartEtcd(cfg)
	must(t, err)
	t.Cleanup(etcd.Close)
	select {
	case <-etcd.Server.ReadyNotify():
	case <-time.After(startTimeout):
		t.Fatal("etcd is not ready")
	}
	s.Endpoint = "https://" + etcd.Clients[0].Addr().String()

	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	first, err := s.client("", "")
	must(t, err)
	defer func() { _ = first.Close() }() // nothing is lost
	_, err = first.UserAdd(ctx, "root", RootPassword)
	must(t, err)
	_, err = first.UserGrantRole(ctx, "root", "root")
	must(t, err)
	_, err = first.AuthEnable(ctx)
	must(t, err)
	s.Root = s.Login(t, "root", RootPassword)
	return s
}

// Login connects as a user until the test ends.
func (s *Server) Login(t testing.TB, user, password string) *clientv3.Client {
	t.Helper()
	client, err := s.client(user, password)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (s *Server) client(user, password string) (*clientv3.Client, error) {
	config, err := s.Keys.ClientTLS("localhost")
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{
		Endpoints: []string{s.Endpoint}, TLS: config, Username: user, Password: password, DialTimeout: startTimeout, Logger: zap.NewNop(),
	})
}

// Write writes keys as the files of a mounted Secret.
func Write(t testing.TB, dir string, keys certs.Keys) leasetls.Files {
	t.Helper()
	files := leasetls.Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	for file, content := range map[string][]byte{files.CA: keys.CA, files.Cert: keys.Cert, files.Key: keys.Key} {
		must(t, os.WriteFile(file, content, 0o600))
	}
	return files
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
