package zookeeper_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
	zktest "github.com/holdfast-io/holdfast/test/zookeeper"
)

// A session that shows the previous credential beside the present one gets to what was made before, also after a reconnect and
// under a new session, and replaces the lists; the present one is enough then.
func TestRotationOfACredential(t *testing.T) {
	ctx := deadline(t)
	pool := newPool(t, options())
	old, rotated := alice, zookeeper.Credential{User: "alice", Password: "new"}
	both := rotated
	both.PreviousUser, both.PreviousPassword = old.User, old.Password
	before, after := aclOf(old, zktypes.PermAll), aclOf(rotated, zktypes.PermAll)
	first := session(t, pool, chroot(t, shared), old)
	require.NoError(t, first.EnsureParents(ctx, "/a/b/x", before))
	for path, acl := range map[string][]zktypes.ACL{"/a/b/x": before, "/a/theirs": append(aclOf(bob, zktypes.PermRead), before...)} {
		_, err := first.Create(ctx, "", path, []byte("v"), acl)
		require.NoError(t, err)
	}
	require.NoError(t, first.EnsureParents(ctx, "/a/theirs/x/y", before))

	locked := session(t, pool, chroot(t, shared), rotated)
	_, err := locked.Get(ctx, "/a/b/x")
	require.ErrorIs(t, err, zookeeper.ErrNoAuth)

	proxy := zktest.NewProxy(t, shared.Server(0).Address())
	s := session(t, pool, proxy.Address()+"/"+t.Name(), both)
	readable := func() bool {
		got, err := s.Get(ctx, "/a/b/x")
		return err == nil && string(got.Value) == "v"
	}
	require.True(t, readable())
	proxy.Cut()
	eventually(t, "the connection is lost", func() bool { return !s.Established() })
	proxy.Restore()
	eventually(t, "it is read again", readable)

	require.NoError(t, s.ReplaceParentLists(ctx, "/a/b/x", before, after))
	require.NoError(t, s.ReplaceParentLists(ctx, "/a/theirs/x/y", before, after))
	require.NoError(t, s.ReplaceParentLists(ctx, "/never/there", before, after))
	_, err = s.SetACL(ctx, "", "/a/b/x", after, 0)
	require.NoError(t, err)
	for path, acl := range map[string][]zktypes.ACL{"/": after, "/a": after, "/a/b": after, "/a/b/x": after, "/a/theirs/x": after} {
		got, err := locked.Get(ctx, path)
		require.NoError(t, err, path)
		require.Equal(t, acl, got.ACL, path)
	}
	_, err = locked.Get(ctx, "/a/theirs")
	require.ErrorIs(t, err, zookeeper.ErrNoAuth, "a list that says anything else is not the operator's to replace")
	require.NoError(t, locked.Delete(ctx, "", "/a/b/x", 0))
}
