package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast/operator/internal/config"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

func TestZooKeeper(t *testing.T) {
	got, err := config.Parse([]byte(head + `
namespaces: []
zookeeper:
  connectString: "zk-0:2181,[::1]:2181/holdfast"
  tls: {enabled: true, folder: /etc/holdfast-zookeeper-tls, serverName: zk.example}
  sessionTimeout: 6s
  grants:
  - {namespaces: ["*"], paths: ["/teams/{namespace}"], ensembles: ["zk-0:2181"]}
`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/teams/{namespace}"}, got.ZooKeeper.PlanGrants()[0].Paths); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(config.ZooKeeperTLS{Enabled: true, Folder: "/etc/holdfast-zookeeper-tls", ServerName: "zk.example"}, got.ZooKeeper.TLS); diff != "" {
		t.Error(diff)
	}
	if got.ZooKeeper.BreakerFailures != 5 || got.ZooKeeper.SessionTimeout != seconds(6) {
		t.Errorf("%+v", got.ZooKeeper)
	}
}

func TestZooKeeperRefusals(t *testing.T) {
	for body, want := range map[string]string{
		"connectString: 'zk:0'":                                            "zookeeper.connectString",
		"auditInterval: never":                                             "zookeeper.auditInterval",
		"breakerFailures: 0":                                               "zookeeper.breakerFailures",
		"maxConcurrentReconciles: 1000":                                    "zookeeper.maxConcurrentReconciles",
		"maxSessionsPerNamespace: 0":                                       "zookeeper.maxSessionsPerNamespace",
		"tls: {enabled: true}":                                             "zookeeper.tls.enabled: Invalid value: true: needs zookeeper.connectString",
		"tls: {folder: /tls}":                                              `zookeeper.tls.folder: Invalid value: "/tls": needs zookeeper.tls.enabled`,
		"tls: {serverName: zk}":                                            `zookeeper.tls.serverName: Invalid value: "zk": needs zookeeper.tls.enabled`,
		"tls: {enabled: true, serverName: 'zk:1'}":                         `zookeeper.tls.serverName: Invalid value: "zk:1": must be a DNS name in lower case, or an IP address`,
		"tls: {secret: zk}":                                                `unknown field "zookeeper.tls.secret"`,
		"grants: [{paths: [/a]}]":                                          "zookeeper.grants[0].namespaces",
		"grants: [{namespaces: [A], paths: [/a]}]":                         "zookeeper.grants[0].namespaces[0]",
		"grants: [{namespaces: [a]}]":                                      "zookeeper.grants[0].paths",
		"grants: [{namespaces: [a], paths: [/a/../b]}]":                    "zookeeper.grants[0].paths[0]",
		"grants: [{namespaces: [a], paths: [/a], ensembles: ['zk/root']}]": "zookeeper.grants[0].ensembles[0]",
		"grant: []": `unknown field "zookeeper.grant"`,
	} {
		_, err := config.Parse([]byte(head + "namespaces: []\nzookeeper:\n  " + body + "\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error does not say %q: %v", body, want, err)
		}
	}
}

func TestZooKeeperCredentialIsReadAgain(t *testing.T) {
	folder := t.TempDir()
	z := config.ZooKeeper{CredentialFolder: folder}
	if _, err := z.Credential(); err == nil {
		t.Error("files that are missing are accepted")
	}
	for _, password := range []string{"first", "second"} {
		for name, content := range map[string]string{"username": "me\n", "password": password} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := z.Credential()
		if err != nil || got.User != "me" || got.Password != password {
			t.Errorf("%+v %v", got, err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "previous-password"), []byte("first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := z.Credential(); err != nil || got.Password != "second" || got.PreviousUser != "me" || got.PreviousPassword != "first" {
		t.Errorf("%+v %v", got, err)
	}
}

// pair makes a certificate and its key.
func pair(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

func TestZooKeeperTLSIsReadAgain(t *testing.T) {
	cert, key := pair(t)
	otherCert, otherKey := pair(t)
	for _, c := range []struct {
		name  string
		files map[string][]byte
		fault string // is in the error
	}{
		{"no file", nil, "there must be ca.crt, or tls.crt and tls.key"},
		{"the servers' certificates", map[string][]byte{"ca.crt": cert}, ""},
		{"the operator's own", map[string][]byte{"tls.crt": cert, "tls.key": key}, ""},
		{"both", map[string][]byte{"ca.crt": otherCert, "tls.crt": cert, "tls.key": key}, ""},
		{"a CA that is none", map[string][]byte{"ca.crt": []byte("s3cr3t")}, "the CA has no certificate in PEM"},
		{"a certificate without its key", map[string][]byte{"ca.crt": cert, "tls.crt": cert}, "certificate and key"},
		{"the key of another", map[string][]byte{"tls.crt": cert, "tls.key": otherKey}, "certificate and key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			z := config.ZooKeeper{TLS: config.ZooKeeperTLS{Enabled: true, Folder: t.TempDir(), ServerName: "zk"}}
			if _, err := z.ReadTLS(); err == nil {
				t.Error("an empty folder is accepted")
			}
			for name, content := range c.files {
				if err := os.WriteFile(filepath.Join(z.TLS.Folder, name), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := z.ReadTLS()
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) || !strings.Contains(err.Error(), "zookeeper.tls.folder "+z.TLS.Folder) || strings.Contains(err.Error(), "s3cr3t") {
					t.Errorf("the error does not say %q, where, or says too much: %v", c.fault, err)
				}
				return
			}
			want := &zktypes.TLS{CA: c.files["ca.crt"], Cert: c.files["tls.crt"], Key: c.files["tls.key"], ServerName: "zk"}
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s %v", diff, err)
			}
		})
	}
}

func TestZooKeeperTLSWithoutAFolder(t *testing.T) {
	if got, err := (config.ZooKeeper{}).ReadTLS(); got != nil || err != nil {
		t.Errorf("plain TCP: %v %v", got, err)
	}
	got, err := config.ZooKeeper{TLS: config.ZooKeeperTLS{Enabled: true, ServerName: "zk"}}.ReadTLS()
	if diff := cmp.Diff(&zktypes.TLS{ServerName: "zk"}, got); diff != "" || err != nil {
		t.Errorf("the system's certificates: %s %v", diff, err)
	}
}
