package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast/operator/internal/config"
)

func TestZooKeeper(t *testing.T) {
	got, err := config.Parse([]byte(head + `
namespaces: []
zookeeper:
  connectString: "zk-0:2181,[::1]:2181/holdfast"
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
