package zookeeper_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// observeAll observes all at the same time.
func observeAll(ctx context.Context, t *testing.T, s *zookeeper.Session, paths []string, told *counter) []zktypes.Node {
	t.Helper()
	nodes, errs := make([]zktypes.Node, len(paths)), make([]error, len(paths))
	var wg sync.WaitGroup
	for i, path := range paths {
		wg.Go(func() { nodes[i], errs[i] = s.Observe(ctx, path, told.subscription("me")) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	return nodes
}

func numbered(format string, count int) []string {
	out := make([]string, count)
	for i := range out {
		out[i] = fmt.Sprintf(format, i)
	}
	return out
}

// Znodes that are looked at for the first time at the same time are looked at together; each that is there is seen whole, and
// each that is not is watched all the same.
func TestManyAreLookedAtTogether(t *testing.T) {
	ctx := deadline(t)
	pool, registry := counted(t, options())
	connect := chroot(t, shared)
	mine, theirs := session(t, pool, connect, alice), session(t, newPool(t, options()), connect, bob)
	require.NoError(t, theirs.EnsureParents(ctx, "/dir/x", worldACL()))
	const count, each = 1000, 100
	paths := numbered("/dir/n%d", count)
	for i := 0; i < count; i += each {
		_, err := theirs.Create(ctx, "", paths[i], []byte(paths[i]), worldACL())
		require.NoError(t, err)
	}
	var told counter
	nodes := observeAll(ctx, t, mine, paths, &told)
	sent := requests(t, registry)
	t.Logf("%d looks: %v", count, sent)
	require.Positive(t, sent["getChildren"])
	for i, node := range nodes {
		require.Equal(t, i%each == 0, node.Exists, paths[i])
		if node.Exists {
			require.Equal(t, zktypes.SumOf([]byte(paths[i])), node.Sum)
		}
	}
	// Whatever happens to any of them from now on is told: what is absent gets its watch by and by.
	for i, path := range paths[:2*each] {
		before := told.calls.Load()
		if i%each == 0 {
			require.NoError(t, theirs.Delete(ctx, "", path, -1))
		} else {
			_, err := theirs.Create(ctx, "", path, nil, worldACL())
			require.NoError(t, err)
		}
		eventually(t, "told of "+path, func() bool { return told.calls.Load() > before })
	}
	eventually(t, "each has a watch", func() bool { return requests(t, registry)["exists"] >= count-2*each })
}

// A znode that somebody else creates before its watch is set, and then leaves alone, is noticed by the look that sets it.
func TestWhatIsCreatedBeforeItsWatchIsSeen(t *testing.T) {
	ctx := deadline(t)
	connect := chroot(t, shared)
	mine, theirs := session(t, newPool(t, options()), connect, alice), session(t, newPool(t, options()), connect, bob)
	require.NoError(t, theirs.EnsureParents(ctx, "/dir/x", worldACL()))
	paths := numbered("/dir/n%d", 200)
	var told counter
	observeAll(ctx, t, mine, paths, &told)
	all := make([]creation, len(paths))
	for i, path := range paths {
		all[i] = creation{path: path, data: []byte("theirs"), acl: worldACL()}
	}
	for _, err := range createAll(ctx, theirs, all) {
		require.NoError(t, err)
	}
	eventually(t, "all are told of", func() bool { return told.calls.Load() == int64(len(paths)) })
	for _, node := range observeAll(ctx, t, mine, paths, &told) {
		require.Equal(t, zktypes.SumOf([]byte("theirs")), node.Sum)
	}
}

// A parent that may not be listed, or is not there, answers for each of its children all the same.
func TestLooksWithoutAListing(t *testing.T) {
	ctx := deadline(t)
	connect := chroot(t, shared)
	mine, theirs := session(t, newPool(t, options()), connect, alice), session(t, newPool(t, options()), connect, bob)
	require.NoError(t, theirs.EnsureParents(ctx, "/closed/x", aclOf(bob, zktypes.PermAll)))
	_, err := theirs.Create(ctx, "", "/closed/n7", []byte("v"), worldACL())
	require.NoError(t, err)
	var told counter
	for i, node := range observeAll(ctx, t, mine, numbered("/closed/n%d", 200), &told) {
		require.Equal(t, i == 7, node.Exists, i)
	}
	for _, node := range observeAll(ctx, t, mine, numbered("/nowhere/n%d", 200), &told) {
		require.False(t, node.Exists)
	}
}
