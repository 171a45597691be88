package znode_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/plan/znode"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// The operator set what the object wanted, died before it wrote that down, and finds the object changed once more. What it
// set itself is not somebody else's change, which driftPolicy Report would leave for ever.
func TestAChangeOfOursIsNotTakenForDriftAfterACrash(t *testing.T) {
	record := znode.Record{Czxid: 7}
	second := want(func(w *znode.Want) { w.ReportOnly, w.Sum, w.ACL = true, zktypes.SumOf([]byte("second")), shared })
	third := want(func(w *znode.Want) { w.ReportOnly, w.Sum, w.ACL = true, zktypes.SumOf([]byte("third")), mine })
	first := znode.NewChange("uid", "zk:2181", "/a", second, node(), &record)
	afterList := znode.NewChange("uid", "zk:2181", "/a", second, node(acl(shared, 1)), &record)
	for _, test := range []struct {
		name  string
		claim znode.Claim
		node  zktypes.Node
		verb  znode.Verb
		cause znode.Cause
	}{
		{"before anything was set", first, node(), znode.SetData, znode.BySpec},
		{"after the list was set", first, node(acl(shared, 1)), znode.SetACL, znode.BySpec},
		{"after both were", afterList, node(acl(shared, 1), data("second", 1)), znode.SetACL, znode.BySpec},
		{"and somebody changed the data since", afterList, node(data("foreign", 2)), znode.Report, znode.ByDrift},
		{"and somebody changed the list since", afterList, node(acl(world, 2), data("second", 1)), znode.Report, znode.ByDrift},
		{"and somebody set the data instead of us", first, node(acl(shared, 1), data("foreign", 1)), znode.SetACL, znode.BySpec},
	} {
		t.Run(test.name, func(t *testing.T) {
			parsed, ok := znode.ParseClaim(test.claim.String(), "uid")
			require.True(t, ok)
			moved := parsed.Moved(test.node, record)
			d := znode.Decide(third, test.node, &moved, false)
			require.Equal(t, test.verb, d.Verb, d.Detail)
			require.Equal(t, test.cause, d.Cause)
		})
	}
}

func TestClaimsThatMoveNothing(t *testing.T) {
	record := znode.Record{Czxid: 7}
	set := node(data("second", 1))
	second := want(func(w *znode.Want) { w.Sum = zktypes.SumOf([]byte("second")) })
	good := znode.NewChange("uid", "zk:2181", "/a", second, node(), &record)
	require.EqualValues(t, 1, good.Moved(set, record).Version)
	for name, claim := range map[string]znode.Claim{
		"of another record": znode.NewChange("uid", "zk:2181", "/a", second, node(), &znode.Record{Czxid: 6}),
		"of a creation":     znode.NewClaim("uid", "zk:2181", "/a", second, &record),
		"of other data":     znode.NewChange("uid", "zk:2181", "/a", want(func(w *znode.Want) { w.Sum = zktypes.SumOf([]byte("x")) }), node(), &record),
		"of other versions": znode.NewChange("uid", "zk:2181", "/a", second, node(data("v", 5)), &record),
		"in words":          {Connect: "zk:2181", Path: "/a", After: "0x7", Sets: "something"},
	} {
		require.Zero(t, claim.Moved(set, record).Version, name)
	}
}

// A znode that was to be taken over is not ours before anything was done to it.
func TestTakingOverBegins(t *testing.T) {
	taking := znode.NewChange("uid", "zk:2181", "/a", want(), node(data("x", 3), acl(world, 2)), nil)
	require.False(t, taking.Begun(node(data("x", 3), acl(world, 2))))
	require.True(t, taking.Begun(node(data("x", 3), acl(mine, 3))))
	require.True(t, taking.Begun(node(data("v", 4), acl(world, 2))))
	require.True(t, znode.NewClaim("uid", "zk:2181", "/a", want(), nil).Begun(node()), "one that was created is")
}

func TestSpentClaims(t *testing.T) {
	first := znode.NewClaim("uid", "zk:2181", "/a", want(), nil)
	require.False(t, first.Spent(nil))
	require.True(t, first.Spent(&znode.Record{Czxid: 7}))
	later := znode.NewClaim("uid", "zk:2181", "/a", want(), &znode.Record{Czxid: 7})
	require.True(t, later.Spent(nil))
	require.False(t, later.Spent(&znode.Record{Czxid: 7}))
	require.True(t, later.Spent(&znode.Record{Czxid: 8}))
}
