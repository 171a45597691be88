package znode_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/operator/internal/plan/znode"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

var (
	me     = []zktypes.ACL{{Scheme: "digest", ID: "me:hash"}}
	mine   = []zktypes.ACL{{Scheme: "digest", ID: "me:hash", Perms: zktypes.PermAll}}
	shared = append([]zktypes.ACL{{Scheme: "digest", ID: "app:hash", Perms: zktypes.PermRead}}, mine...)
	world  = []zktypes.ACL{{Scheme: "world", ID: "anyone", Perms: zktypes.PermAll}}
)

// want is data "v" under the list mine.
func want(change ...func(*znode.Want)) znode.Want {
	out := znode.Want{Sum: zktypes.SumOf([]byte("v")), Size: 1, ACL: mine, ParentACL: mine, Identities: me}
	for _, f := range change {
		f(&out)
	}
	return out
}

// node is as want would have it, created by transaction 7.
func node(change ...func(*zktypes.Node)) zktypes.Node {
	out := zktypes.Node{Exists: true, Czxid: 7, Mzxid: 7, Size: 1, Sum: zktypes.SumOf([]byte("v")), ACL: mine}
	for _, f := range change {
		f(&out)
	}
	return out
}

func data(text string, version int32) func(*zktypes.Node) {
	return func(n *zktypes.Node) {
		n.Sum, n.Size, n.Version = zktypes.SumOf([]byte(text)), len(text), version
	}
}

func acl(list []zktypes.ACL, aversion int32) func(*zktypes.Node) {
	return func(n *zktypes.Node) { n.ACL, n.Aversion = list, aversion }
}

func TestDecide(t *testing.T) {
	record := &znode.Record{Czxid: 7}
	report := func(w *znode.Want) { w.ReportOnly = true }
	createOnly := func(w *znode.Want) { w.CreateOnly = true }
	adopt := func(a znode.Adoption) func(*znode.Want) { return func(w *znode.Want) { w.Adoption = a } }
	for name, c := range map[string]struct {
		want    znode.Want
		node    zktypes.Node
		record  *znode.Record
		claimed bool
		verb    znode.Verb
		cause   znode.Cause
		refusal znode.Refusal
		ours    bool
	}{
		"it never existed":                         {want: want(), verb: znode.Create, cause: znode.ByNew},
		"it never existed, create only":            {want: want(createOnly), verb: znode.Create, cause: znode.ByNew},
		"ours and as wanted":                       {want: want(), node: node(), record: record, verb: znode.Nothing, ours: true},
		"ours, and the object was changed":         {want: want(), node: node(data("old", 0)), record: record, verb: znode.SetData, cause: znode.BySpec, ours: true},
		"ours, changed by hand":                    {want: want(), node: node(data("x", 1)), record: record, verb: znode.SetData, cause: znode.ByDrift, ours: true},
		"ours, changed by hand, reported":          {want: want(report), node: node(data("x", 1)), record: record, verb: znode.Report, cause: znode.ByDrift, ours: true},
		"ours, the object changed, reporting":      {want: want(report), node: node(data("old", 0)), record: record, verb: znode.SetData, cause: znode.BySpec, ours: true},
		"ours, changed by hand and back":           {want: want(), node: node(data("v", 2)), record: record, verb: znode.Nothing, ours: true},
		"ours, the list changed by hand":           {want: want(), node: node(acl(world, 1)), record: record, verb: znode.SetACL, cause: znode.ByDrift, ours: true},
		"ours, the list in another order":          {want: want(func(w *znode.Want) { w.ACL = shared }), node: node(acl([]zktypes.ACL{shared[1], shared[0]}, 0)), record: record, verb: znode.Nothing, ours: true},
		"ours, list and data differ: list first":   {want: want(), node: node(acl(world, 1), data("x", 1)), record: record, verb: znode.SetACL, cause: znode.ByDrift, ours: true},
		"ours, deleted by hand":                    {want: want(), record: record, verb: znode.Create, cause: znode.ByDrift},
		"ours, deleted by hand, reported":          {want: want(report), record: record, verb: znode.Report, cause: znode.ByDrift, ours: true},
		"ours, create only, changed by hand":       {want: want(createOnly), node: node(data("x", 1)), record: record, verb: znode.Nothing, ours: true},
		"ours, hidden by hand":                     {want: want(), node: zktypes.Node{Exists: true, Hidden: true, Czxid: 7, Aversion: 1}, record: record, verb: znode.Refuse, refusal: znode.Hidden},
		"replaced by an equal one":                 {want: want(), node: node(func(n *zktypes.Node) { n.Czxid = 9 }), record: record, verb: znode.Nothing, cause: znode.ByDrift, ours: true},
		"replaced by another":                      {want: want(), node: node(data("x", 0), func(n *zktypes.Node) { n.Czxid = 9 }), record: record, verb: znode.SetData, cause: znode.ByDrift},
		"replaced by another, reported":            {want: want(report), node: node(data("x", 0), func(n *zktypes.Node) { n.Czxid = 9 }), record: record, verb: znode.Report, cause: znode.ByDrift},
		"created before a crash":                   {want: want(), node: node(), claimed: true, verb: znode.Nothing, ours: true},
		"created before a crash, then edited":      {want: want(), node: node(data("old", 0)), claimed: true, verb: znode.SetData, cause: znode.BySpec, ours: true},
		"being taken over at a crash":              {want: want(), node: node(data("old", 3), acl(mine, 1)), claimed: true, verb: znode.SetData, cause: znode.BySpec, ours: true},
		"somebody else's":                          {want: want(), node: node(), verb: znode.Refuse, refusal: znode.Exists},
		"somebody else's, create only":             {want: want(createOnly), node: node(data("x", 3)), verb: znode.Leave},
		"somebody else's and hidden":               {want: want(adopt(znode.AdoptForce)), node: zktypes.Node{Exists: true, Hidden: true, Czxid: 7}, verb: znode.Refuse, refusal: znode.Hidden},
		"adoptable, equal":                         {want: want(adopt(znode.AdoptIfEqual)), node: node(data("v", 5)), verb: znode.Nothing, cause: znode.ByAdoption, ours: true},
		"adoptable if equal, and different":        {want: want(adopt(znode.AdoptIfEqual)), node: node(data("x", 5)), verb: znode.Refuse, refusal: znode.Exists},
		"adoptable by force":                       {want: want(adopt(znode.AdoptForce)), node: node(data("x", 5)), verb: znode.SetData, cause: znode.ByAdoption},
		"ephemeral, even by force":                 {want: want(adopt(znode.AdoptForce)), node: node(func(n *zktypes.Node) { n.Ephemeral = true }), verb: znode.Refuse, refusal: znode.Exists},
		"a parent that was made for a znode below": {want: want(), node: node(data("", 0)), verb: znode.SetData, cause: znode.ByNew},
		"empty, but with another list":             {want: want(), node: node(data("", 0), acl(world, 0)), verb: znode.Refuse, refusal: znode.Exists},
		"empty, but emptied by hand":               {want: want(), node: node(data("", 1)), verb: znode.Refuse, refusal: znode.Exists},
		"the list would lock the operator out":     {want: want(func(w *znode.Want) { w.ACL = shared[:1] }), verb: znode.Refuse, refusal: znode.LockOut},
		"without a credential only world will do":  {want: want(func(w *znode.Want) { w.Identities = nil }), verb: znode.Refuse, refusal: znode.LockOut},
	} {
		t.Run(name, func(t *testing.T) {
			got := znode.Decide(c.want, c.node, c.record, c.claimed)
			require.Equal(t, []any{c.verb, c.cause, c.refusal, c.ours}, []any{got.Verb, got.Cause, got.Refusal, got.Ours}, "%s", got.Detail)
			if c.verb == znode.Refuse || c.verb == znode.Report {
				require.NotEmpty(t, got.Detail)
			}
		})
	}
}

func TestDetailsShowNoHash(t *testing.T) {
	secretive := node(acl([]zktypes.ACL{{Scheme: "digest", ID: "me:theHash=", Perms: zktypes.PermAll}}, 1), data("a secret", 1))
	got := znode.Decide(want(func(w *znode.Want) { w.ReportOnly = true }), secretive, &znode.Record{Czxid: 7}, false)
	require.Equal(t, znode.Report, got.Verb)
	require.NotContains(t, got.Detail, "theHash")
	require.NotContains(t, got.Detail, "a secret")
	require.Contains(t, got.Detail, "8 bytes")
}

// draws of a small world, in which everything that can happen does.
var (
	lists    = [][]zktypes.ACL{mine, shared, world, shared[:1]}
	contents = []string{"", "v", "w"}
	anyWant  = rapid.Custom(func(t *rapid.T) znode.Want {
		text := rapid.SampledFrom(contents).Draw(t, "wanted data")
		return znode.Want{
			Sum: zktypes.SumOf([]byte(text)), Size: len(text), ParentACL: mine, Identities: me,
			ACL:        rapid.SampledFrom(lists[:3]).Draw(t, "wanted list"),
			CreateOnly: rapid.Bool().Draw(t, "create only"), ReportOnly: rapid.Bool().Draw(t, "report only"),
			Adoption: rapid.SampledFrom([]znode.Adoption{znode.AdoptNever, znode.AdoptIfEqual, znode.AdoptForce}).Draw(t, "adoption"),
		}
	})
	anyNode = rapid.Custom(func(t *rapid.T) zktypes.Node {
		if rapid.IntRange(0, 4).Draw(t, "absent") == 0 {
			return zktypes.Node{}
		}
		text := rapid.SampledFrom(contents).Draw(t, "data")
		return zktypes.Node{
			Exists: true, Czxid: rapid.Int64Range(1, 3).Draw(t, "czxid"), Version: rapid.Int32Range(0, 2).Draw(t, "version"),
			Aversion: rapid.Int32Range(0, 2).Draw(t, "aversion"), Sum: zktypes.SumOf([]byte(text)), Size: len(text),
			ACL: rapid.SampledFrom(lists).Draw(t, "list"), Ephemeral: rapid.IntRange(0, 9).Draw(t, "ephemeral") == 0,
		}
	})
	anyRecord = rapid.Custom(func(t *rapid.T) *znode.Record {
		if rapid.Bool().Draw(t, "no record") {
			return nil
		}
		return &znode.Record{Czxid: rapid.Int64Range(1, 3).Draw(t, "recorded czxid"), Version: rapid.Int32Range(0, 2).Draw(t, "recorded version")}
	})
)

// A znode that is neither on record nor claimed nor adoptable is never changed.
func TestForeignZnodesAreSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, node := anyWant.Draw(t, "want"), anyNode.Draw(t, "node")
		want.Adoption = znode.AdoptNever
		got := znode.Decide(want, node, nil, false)
		parent := node.Size == 0 && node.Untouched() && zktypes.EqualACL(node.ACL, mine)
		if node.Exists && !parent && (got.Verb == znode.SetData || got.Verb == znode.SetACL || got.Ours) {
			t.Fatalf("%+v", got)
		}
	})
}

// Whatever is found, doing what is decided again and again ends in Nothing, Report, Leave or Refuse within four steps,
// and Nothing means what it says. A crash before any step changes nothing about that: each is decided from what is there.
func TestDecisionsConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, node, record := anyWant.Draw(t, "want"), anyNode.Draw(t, "node"), anyRecord.Draw(t, "record")
		var claim znode.Claim
		for step := 0; ; step++ {
			got := znode.Decide(want, node, record, claim.Covers("c", "/p", node, record))
			switch got.Verb {
			case znode.Create:
				claim = znode.NewClaim("uid", "c", "/p", want, record)
				node = zktypes.Node{Exists: true, Czxid: 100, Sum: want.Sum, Size: want.Size, ACL: want.ACL}
			case znode.SetACL:
				claim = znode.NewChange("uid", "c", "/p", want, node, record)
				node.ACL, node.Aversion = want.ACL, node.Aversion+1
			case znode.SetData:
				claim = znode.NewChange("uid", "c", "/p", want, node, record)
				node.Sum, node.Size, node.Version = want.Sum, want.Size, node.Version+1
			case znode.Nothing:
				equal := node.Exists && node.Sum == want.Sum && zktypes.EqualACL(node.ACL, want.ACL)
				if !got.Ours || (!equal && !want.CreateOnly) {
					t.Fatalf("nothing is left to do, yet %+v is not %+v", node, want)
				}
				return
			default:
				return
			}
			if step == 4 {
				t.Fatalf("no end: %+v", got)
			}
		}
	})
}

// A want that only reports changes nothing that somebody else changed last.
func TestReportOnlyNeverReverts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, node := anyWant.Draw(t, "want"), anyNode.Draw(t, "node")
		want.ReportOnly = true
		record := &znode.Record{Czxid: node.Czxid, Version: node.Version + 1, Aversion: node.Aversion + 1}
		got := znode.Decide(want, node, record, false)
		if got.Verb == znode.SetData || got.Verb == znode.SetACL || got.Verb == znode.Create {
			t.Fatalf("%+v", got)
		}
	})
}

func TestClaims(t *testing.T) {
	claim, ok := znode.ParseClaim(znode.NewClaim("uid", "zk:2181", "/p", want(), nil).String(), "uid")
	require.True(t, ok)
	require.True(t, claim.Covers("zk:2181", "/p", node(), nil))
	require.False(t, claim.Covers("zk:2182", "/p", node(), nil), "another ensemble")
	require.False(t, claim.Covers("zk:2181", "/q", node(), nil), "another path")
	require.False(t, claim.Covers("zk:2181", "/p", node(data("x", 0)), nil), "other data")
	require.False(t, claim.Covers("zk:2181", "/p", node(acl(world, 0)), nil), "another list")
	require.False(t, claim.Covers("zk:2181", "/p", node(data("v", 2)), nil), "touched since")
	require.False(t, claim.Covers("zk:2181", "/p", node(), &znode.Record{Czxid: 7}), "spent: it is on record")
	require.False(t, claim.Covers("zk:2181", "/p", zktypes.Node{}, nil), "nothing there")

	taking, ok := znode.ParseClaim(znode.NewChange("uid", "zk:2181", "/p", want(), node(), nil).String(), "uid")
	require.True(t, ok)
	require.True(t, taking.Covers("zk:2181", "/p", node(data("x", 5)), nil), "whatever is in it")
	require.False(t, taking.Covers("zk:2181", "/p", node(func(n *zktypes.Node) { n.Czxid = 8 }), nil), "replaced")

	changing := znode.NewChange("uid", "zk:2181", "/p", want(), node(), &znode.Record{Czxid: 7})
	require.False(t, changing.Covers("zk:2181", "/p", node(), &znode.Record{Czxid: 7}), "a change of what is on record claims nothing")

	for _, text := range []string{"", "{", "null", `"x"`, claim.String()[:20], znode.NewClaim("another", "zk:2181", "/p", want(), nil).String(), `{"connect":"zk:2181","path":"/p"}`} {
		_, ok := znode.ParseClaim(text, "uid")
		require.False(t, ok, text)
	}
}

func TestPart(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)
	ours := znode.Release{Czxid: 7, Node: node(), Since: now.Add(-time.Second), Deadline: 8 * time.Second}
	with := func(change func(*znode.Release)) znode.Release {
		out := ours
		change(&out)
		return out
	}
	away := func(r *znode.Release) { r.Unseen, r.Obstacle, r.Node = true, "ZooKeeper is away", zktypes.Node{} }
	for name, c := range map[string]struct {
		release znode.Release
		want    znode.Parting
	}{
		"ours":                       {ours, znode.Delete},
		"ours, changed since":        {with(func(r *znode.Release) { r.Node.Version = 9 }), znode.Delete},
		"by policy":                  {with(func(r *znode.Release) { r.Keep = true }), znode.Orphan},
		"gone already":               {with(func(r *znode.Release) { r.Node = zktypes.Node{} }), znode.Gone},
		"replaced by somebody":       {with(func(r *znode.Release) { r.Node.Czxid = 8 }), znode.Gone},
		"never had one":              {with(func(r *znode.Release) { r.Czxid = 0 }), znode.Gone},
		"claimed, never recorded":    {with(func(r *znode.Release) { r.Czxid, r.Claimed = 0, true }), znode.Delete},
		"unseen":                     {with(away), znode.Await},
		"unseen past the deadline":   {with(func(r *znode.Release) { away(r); r.Since = now.Add(-8 * time.Second) }), znode.Orphan},
		"has children":               {with(func(r *znode.Release) { r.Obstacle = "it has children" }), znode.Await},
		"has children, past":         {with(func(r *znode.Release) { r.Obstacle, r.Deadline = "it has children", time.Second }), znode.Orphan},
		"unseen, no record, a claim": {with(func(r *znode.Release) { away(r); r.Czxid = 0 }), znode.Await},
	} {
		got, detail, wait := znode.Part(c.release, now)
		require.Equal(t, c.want, got, "%s: %s", name, detail)
		require.Equal(t, c.want == znode.Await, wait > 0, name)
	}
}

func TestWinner(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC) }
	old, young := znode.Claimant{Namespace: "b", Name: "old", Created: at(0)}, znode.Claimant{Namespace: "a", Name: "young", Created: at(1)}
	require.Nil(t, znode.Winner(nil))
	require.Equal(t, "old", znode.Winner([]znode.Claimant{young, old}).Name)
	young.Holds = true
	require.Equal(t, "young", znode.Winner([]znode.Claimant{old, young}).Name, "whoever has it keeps it")
	old.Holds = true
	require.Equal(t, "old", znode.Winner([]znode.Claimant{young, old}).Name)
	twin := old
	twin.Namespace = "a"
	require.Equal(t, "a", znode.Winner([]znode.Claimant{old, twin}).Namespace)
}

func TestGranted(t *testing.T) {
	parse := func(text string) zktypes.ConnectString {
		out, err := zktypes.ParseConnectString(text)
		require.NoError(t, err)
		return out
	}
	grants := []znode.Grant{
		{Namespaces: []string{"*"}, Ensembles: []zktypes.ConnectString{parse("zk-0,zk-1")}, Paths: []string{"/teams/{namespace}"}},
		{Namespaces: []string{"platform"}, Paths: []string{"/"}},
	}
	require.True(t, znode.Granted(nil, "a", parse("anything"), "/x"))
	require.True(t, znode.Granted(grants, "a", parse("zk-1"), "/teams/a/x"))
	require.True(t, znode.Granted(grants, "a", parse("zk-1/teams"), "/a"), "the chroot counts")
	require.False(t, znode.Granted(grants, "a", parse("zk-1"), "/teams/b"))
	require.False(t, znode.Granted(grants, "a", parse("zk-1"), "/teams/ab"))
	require.False(t, znode.Granted(grants, "a", parse("other"), "/teams/a"))
	require.True(t, znode.Granted(grants, "platform", parse("other"), "/x"))
}
