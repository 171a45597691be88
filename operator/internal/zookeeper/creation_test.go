package zookeeper_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// requests returns how many requests of each operation were made.
func requests(t *testing.T, registry *prometheus.Registry) map[string]int {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	out := map[string]int{}
	for _, family := range families {
		if family.GetName() != "holdfast_zookeeper_request_duration_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "op" {
					out[label.GetValue()] += int(metric.GetHistogram().GetSampleCount())
				}
			}
		}
	}
	return out
}

func counted(t *testing.T, opts zookeeper.Options) (*zookeeper.Pool, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	var err error
	opts.Metrics, err = zookeeper.NewMetrics(registry)
	require.NoError(t, err)
	return newPool(t, opts), registry
}

// made creates a znode as the operator does, and asserts that it was seen as it is.
func made(ctx context.Context, t *testing.T, s *zookeeper.Session, told *counter) {
	t.Helper()
	acl := aclOf(alice, zktypes.PermAll)
	node, err := s.Observe(ctx, "/made", told.subscription("me"))
	require.NoError(t, err)
	require.False(t, node.Exists)
	node, err = s.Create(ctx, "me", "/made", []byte("v"), acl)
	require.NoError(t, err)
	require.True(t, node.Untouched())
	require.Equal(t, acl, node.ACL)
	require.Equal(t, zktypes.SumOf([]byte("v")), node.Sum)
}

// A znode that is looked for, created and watched from then on costs three requests.
func TestCreatingCostsThreeRequests(t *testing.T) {
	ctx := deadline(t)
	pool, registry := counted(t, options())
	s := session(t, pool, chroot(t, shared), alice)
	eventually(t, "it has caught up with the server", func() bool { return requests(t, registry)["sync"] == 1 })
	require.NoError(t, s.EnsureParents(ctx, "/made", aclOf(alice, zktypes.PermAll)))
	before := requests(t, registry)
	var told counter
	made(ctx, t, s, &told)
	after := requests(t, registry)
	for _, op := range []string{"exists", "create", "get"} {
		require.Equal(t, 1, after[op]-before[op], op)
		delete(after, op)
		delete(before, op)
	}
	require.Equal(t, before, after, "and no others")
}

// The list of a znode that we created is read by the next audit, once.
func TestTheListOfWhatWasCreatedIsReadOnce(t *testing.T) {
	ctx := deadline(t)
	opts := options()
	opts.AuditInterval = 50 * time.Millisecond
	pool, registry := counted(t, opts)
	s := session(t, pool, chroot(t, shared), alice)
	require.NoError(t, s.EnsureParents(ctx, "/made", aclOf(alice, zktypes.PermAll)))
	var told counter
	made(ctx, t, s, &told)
	eventually(t, "the audit reads the list", func() bool { return requests(t, registry)["getACL"] == 1 })
	settled := requests(t, registry)
	eventually(t, "audits go on", func() bool { return requests(t, registry)["exists"] > settled["exists"]+5 })
	require.Equal(t, 1, requests(t, registry)["getACL"], "a list that was read is not read again")
	require.Zero(t, told.calls.Load(), "nothing is other than it was said to be")
}

// What is assumed is never what somebody else made.
func TestAnotherCreationIsReadWhole(t *testing.T) {
	ctx := deadline(t)
	pool, registry := counted(t, options())
	connect := chroot(t, shared)
	hers, his := session(t, pool, connect, alice), session(t, pool, connect, bob)
	both := append(aclOf(alice, zktypes.PermAll), aclOf(bob, zktypes.PermAll)...)
	require.NoError(t, hers.EnsureParents(ctx, "/x/y/z", both))
	var told counter
	for _, path := range []string{"/x/y/exists", "/x/y/foreign"} {
		_, err := hers.Observe(ctx, path, told.subscription(path))
		require.NoError(t, err)
	}
	_, err := his.Create(ctx, "", "/x/y/exists", []byte("v"), both)
	require.NoError(t, err)
	node, err := hers.Create(ctx, "/x/y/exists", "/x/y/exists", []byte("v"), aclOf(alice, zktypes.PermAll))
	require.ErrorIs(t, err, zookeeper.ErrNodeExists)
	require.Equal(t, both, node.ACL)
	require.Positive(t, requests(t, registry)["getACL"])

	// A scheme that the server replaces by something else: here by the session's identities.
	lists := requests(t, registry)["getACL"]
	node, err = hers.Create(ctx, "/x/y/foreign", "/x/y/foreign", []byte("v"), []zktypes.ACL{{Scheme: "auth", Perms: zktypes.PermAll}})
	require.NoError(t, err)
	require.Equal(t, aclOf(alice, zktypes.PermAll), node.ACL)
	require.Equal(t, lists+1, requests(t, registry)["getACL"])
}

func TestSessionsAreCapped(t *testing.T) {
	opts := options()
	opts.MaxSessions, opts.IdleTimeout = 2, 100*time.Millisecond
	pool := newPool(t, opts)
	targets := make([]zookeeper.Target, 3)
	for i, user := range []string{"a", "b", "c"} {
		parsed, err := zktypes.ParseConnectString(chroot(t, shared))
		require.NoError(t, err)
		targets[i] = zookeeper.Target{Connect: parsed, Credential: zookeeper.Credential{User: user, Password: "p"}}
	}
	for _, target := range targets[:2] {
		_, err := pool.Session(target)
		require.NoError(t, err)
	}
	_, err := pool.Session(targets[2])
	require.ErrorIs(t, err, zookeeper.ErrTooManySessions)
	_, err = pool.Session(targets[0])
	require.NoError(t, err, "those that there are go on")
	eventually(t, "one that nobody uses makes room", func() bool {
		_, err := pool.Session(targets[2])
		return err == nil
	})
}
