package zktypes_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

func TestConnectString(t *testing.T) {
	for text, want := range map[string]string{
		"zk":                             "zk:2181",
		"zk-1:2181,zk-0:2181":            "zk-0:2181,zk-1:2181",
		"ZK.example:2181,zk.example":     "zk.example:2181",
		" zk:2182 , other:2183 ":         "other:2183,zk:2182",
		"[2001:db8::1]:2182":             "[2001:db8::1]:2182",
		"2001:DB8::1":                    "[2001:db8::1]:2181",
		"[::1]":                          "[::1]:2181",
		"zk:2181/":                       "zk:2181",
		"zk:2181/a/b":                    "zk:2181/a/b",
		"zk:2181/a/b/":                   "zk:2181/a/b",
		"[::1]:2181,127.0.0.1:2181/team": "127.0.0.1:2181,[::1]:2181/team",
	} {
		got, err := zktypes.ParseConnectString(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got.String(), text)
		again, err := zktypes.ParseConnectString(got.String())
		require.NoError(t, err)
		require.Equal(t, got, again, "%s: the normal form is stable", text)
	}
	for text, why := range map[string]string{
		"":                  "empty",
		"zk,,zk2":           "empty",
		"zk:0":              "not a number from 1 to 65535",
		"zk:99999":          "not a number from 1 to 65535",
		"zk:port":           "not a number from 1 to 65535",
		"2001:db8::1:99999": "brackets",
		"zk:1:2":            "brackets",
		"user@zk:2181":      "neither a name nor an address",
		"zk:2181/a//b":      "empty part",
		"zk:2181/a/../b":    "relative parts",
		"zk:2181/zookeeper": "keeps for itself",
		":2181":             "neither a name nor an address",
	} {
		_, err := zktypes.ParseConnectString(text)
		require.ErrorContains(t, err, why, text)
	}
}

func TestConnectStringIdentity(t *testing.T) {
	parse := func(text string) zktypes.ConnectString {
		out, err := zktypes.ParseConnectString(text)
		require.NoError(t, err)
		return out
	}
	require.True(t, parse("a,b/x").SharesServer(parse("c,b/y")))
	require.False(t, parse("a,b").SharesServer(parse("a:2182")))
	require.Equal(t, "/x/y", parse("a/x").Full("/y"))
	require.Equal(t, "/x", parse("a/x").Full("/"))
	require.Equal(t, "/y", parse("a").Full("/y"))
}

func TestPaths(t *testing.T) {
	for _, good := range []string{"/a", "/a/b.c", "/a/..b", "/a/...", "/zookeeperx", "/ä/日本"} {
		require.NoError(t, zktypes.ValidatePath(good), good)
	}
	for bad, why := range map[string]string{
		"": "must begin with /", "a": "must begin with /", "/": "root", "//": "empty part", "/a//b": "empty part",
		"/a/": "empty part", "/.": "relative", "/a/../b": "relative", "/a/./b": "relative", "/zookeeper": "itself",
		"/zookeeper/quota": "itself", "/a\x00b": "refuses", "/a\x1f": "refuses", "/a\u0085": "refuses",
		"/\ufff0": "refuses", "/a\xff": "UTF-8", "/" + strings.Repeat("x", 1024): "at most",
	} {
		require.ErrorContains(t, zktypes.ValidatePath(bad), why, "%q", bad)
	}
	require.Equal(t, []string{"/a", "/a/b"}, zktypes.Ancestors("/a/b/c"))
	require.Empty(t, zktypes.Ancestors("/a"))
	require.Equal(t, "/", zktypes.Parent("/a"))
	require.Equal(t, "/a", zktypes.Parent("/a/b"))
	require.True(t, zktypes.Below("/a/b", "/a"))
	require.True(t, zktypes.Below("/a", "/a"))
	require.True(t, zktypes.Below("/a", "/"))
	require.False(t, zktypes.Below("/ab", "/a"), "a prefix of the text is no ancestor")
}

func TestPerms(t *testing.T) {
	for text, want := range map[string]string{"cdrwa": "cdrwa", "r": "r", "awrdc": "cdrwa", "rr": "r"} {
		got, err := zktypes.ParsePerms(text)
		require.NoError(t, err)
		require.Equal(t, want, got.String())
	}
	for _, bad := range []string{"", "x", "read", "rwx"} {
		_, err := zktypes.ParsePerms(bad)
		require.Error(t, err, "%q", bad)
	}
}

// The digest is the example of ZooKeeper's own documentation.
func TestDigest(t *testing.T) {
	require.Equal(t, "super:D/InIHSb7yEEbrWz8b9l71RjZJU=", zktypes.DigestID("super", "test"))
}

func TestACLs(t *testing.T) {
	mine := []zktypes.ACL{{Scheme: "digest", ID: "me:hash"}}
	list := []zktypes.ACL{
		{Scheme: "digest", ID: "me:hash", Perms: zktypes.PermRead},
		{Scheme: "world", ID: "anyone", Perms: zktypes.PermWrite},
		{Scheme: "ip", ID: "0.0.0.0/0", Perms: zktypes.PermAdmin},
		{Scheme: "digest", ID: "you:hash", Perms: zktypes.PermAll},
	}
	require.Equal(t, zktypes.PermRead|zktypes.PermWrite, zktypes.GrantedTo(list, mine))
	require.Equal(t, zktypes.PermWrite, zktypes.GrantedTo(list, nil))
	require.Equal(t, []string{"digest:me:***:r", "digest:you:***:cdrwa", "ip:0.0.0.0/0:a", "world:anyone:w"}, zktypes.ACLStrings(list))
}

// What a list grants does not depend on its order, nor on being split into several entries of one identity.
func TestEqualACLs(t *testing.T) {
	entry := rapid.Custom(func(t *rapid.T) zktypes.ACL {
		return zktypes.ACL{
			Scheme: rapid.SampledFrom([]string{"world", "digest", "ip"}).Draw(t, "scheme"),
			ID:     rapid.SampledFrom([]string{"a", "b", "anyone"}).Draw(t, "id"),
			Perms:  zktypes.Perms(rapid.IntRange(1, 31).Draw(t, "perms")),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(entry, 1, 6).Draw(t, "list")
		shuffled := rapid.Permutation(list).Draw(t, "shuffled")
		if !zktypes.EqualACL(list, shuffled) || !zktypes.EqualACL(list, zktypes.NormalizeACL(list)) {
			t.Fatalf("%v is not equal to %v", list, shuffled)
		}
		who := []zktypes.ACL{{Scheme: "digest", ID: "a"}}
		if zktypes.GrantedTo(list, who) != zktypes.GrantedTo(zktypes.NormalizeACL(list), who) {
			t.Fatalf("normalizing %v changes what it grants", list)
		}
		more := append(list, zktypes.ACL{Scheme: "digest", ID: "somebody else", Perms: zktypes.PermRead})
		if zktypes.EqualACL(list, more) {
			t.Fatalf("%v is equal to %v", list, more)
		}
	})
}
