package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
	zktest "github.com/holdfast-io/holdfast/test/zookeeper"
)

var shared *zktest.Ensemble

func TestMain(m *testing.M) { os.Exit(zktest.Main(m, 1, &shared)) }

func run(t *testing.T, auth string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, log bytes.Buffer
	root := newRoot(&out, &log, auth)
	root.SetArgs(append([]string{"export"}, args...))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = root.ExecuteContext(ctx)
	return out.String(), log.String(), err
}

func TestExport(t *testing.T) {
	ctx := t.Context()
	pool := zookeeper.New(zookeeper.Options{})
	t.Cleanup(func() { require.NoError(t, pool.Close(context.Background())) })
	connect, err := zktypes.ParseConnectString(shared.ConnectString())
	require.NoError(t, err)
	credential := zookeeper.Credential{User: "alice", Password: "wonder"}
	session, err := pool.Session(zookeeper.Target{Connect: connect, Credential: credential})
	require.NoError(t, err)
	own := []zktypes.ACL{{Scheme: "digest", ID: zktypes.DigestID("alice", "wonder"), Perms: zktypes.PermAll}}
	world := []zktypes.ACL{{Scheme: "world", ID: "anyone", Perms: zktypes.PermRead}}
	both := append(own, world...)
	for _, node := range [][2]string{
		{"/flags/a", "on"}, {"/flags/B_c", "off"}, {"/flags/bin", "\xff\x00"}, {"/flags/password", "hunter2"}, {"/flags/a/deep", ""},
	} {
		_, err := session.CreateBelow(ctx, "", node[0], []byte(node[1]), both, both)
		require.NoError(t, err)
	}
	require.NoError(t, session.EnsureParents(ctx, "/flags/hidden/x", append(own, zktypes.ACL{Scheme: "world", ID: "anyone", Perms: zktypes.PermCreate})))

	out, log, err := run(t, "alice:wonder", "--connect", shared.ConnectString(), "--root", "/flags", "--namespace", "team-a", "--secret", "/flags/pass*")
	require.NoError(t, err)
	require.NotContains(t, out, "hunter2")
	require.Contains(t, log, "left out /flags: it is empty and has children")
	again, _, err := run(t, "alice:wonder", "--connect", shared.ConnectString(), "--root", "/flags", "--namespace", "team-a", "--secret", "/flags/pass*")
	require.NoError(t, err)
	require.Equal(t, out, again, "an export of the same state is the same")

	objects := map[string]v1alpha1.ZooKeeperConfig{}
	names := map[string]bool{}
	for document := range strings.SplitSeq(strings.TrimPrefix(out, "---\n"), "---\n") {
		var object v1alpha1.ZooKeeperConfig
		require.NoError(t, yaml.UnmarshalStrict([]byte(document), &object))
		objects[object.Spec.Path] = object
		require.False(t, names[object.Name], "%s is there twice", object.Name)
		names[object.Name] = true
		require.Equal(t, "team-a", object.Namespace)
		require.Equal(t, v1alpha1.AdoptionIfEqual, object.Spec.Adoption)
		require.Equal(t, v1alpha1.DriftReport, object.Spec.DriftPolicy)
		require.Equal(t, v1alpha1.DeletionOrphan, object.Spec.DeletionPolicy)
	}
	require.Equal(t, "on", *objects["/flags/a"].Spec.StringData)
	require.Equal(t, "flags-a", objects["/flags/a"].Name)
	require.Equal(t, []byte("\xff\x00"), objects["/flags/bin"].Spec.Data)
	require.Equal(t, v1alpha1.EncodingBinary, objects["/flags/bin"].Spec.Encoding)
	require.Equal(t, "zk-flags-password", objects["/flags/password"].Spec.DataFrom.SecretKeyRef.Name)
	require.Equal(t, []v1alpha1.ZnodeACL{
		{Scheme: "digest", ID: own[0].ID, Perms: "cdrwa"}, {Scheme: "world", ID: "anyone", Perms: "r"},
	}, objects["/flags/a"].Spec.ACL)
	require.True(t, strings.HasPrefix(objects["/flags/B_c"].Name, "flags-b-c-"), "a name that hides something of the path has a hash")

	_, log, err = run(t, "", "--connect", shared.ConnectString(), "--root", "/flags")
	require.NoError(t, err)
	require.Contains(t, log, "left out /flags/hidden: the credential may not read it")
}

func TestExportRefusals(t *testing.T) {
	for _, c := range []struct {
		auth string
		args []string
		want string
	}{
		{"", nil, "connect"},
		{"", []string{"--connect", "zk:0"}, "--connect"},
		{"alice", []string{"--connect", "zk"}, authVariable},
		{"", []string{"--connect", "zk", "--root", "flags"}, "--root"},
		{"", []string{"--connect", "zk", "--secret", "["}, "--secret"},
		{"", []string{"--connect", shared.ConnectString(), "--root", "/none"}, "znode /none does not exist"},
	} {
		_, _, err := run(t, c.auth, c.args...)
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "alice")
	}
}

func TestNames(t *testing.T) {
	for at, want := range map[string]string{"/a": "a", "/a/b": "a-b"} {
		require.Equal(t, want, nameOf(at))
	}
	seen := map[string]string{}
	for _, at := range []string{"/a-b", "/a/b", "/A/b", "/a_b", "/a.b", "/" + strings.Repeat("x", 300), "/" + strings.Repeat("x", 301), "/ä", "/-"} {
		name := nameOf(at)
		require.Regexp(t, `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`, name, at)
		require.Less(t, len(name), 240)
		require.Empty(t, seen[name], "%s and %s are both %s", at, seen[name], name)
		seen[name] = at
	}
}
