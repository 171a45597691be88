package zookeeper_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// Sessions that differ in nothing but their chroot are one for the servers and for MaxSessions, and see one tree; what one of
// them changes, the others are told of.
func TestChrootsShareASession(t *testing.T) {
	ctx := deadline(t)
	opts := options()
	opts.MaxSessions = 1
	pool := newPool(t, opts)
	root := session(t, pool, shared.ConnectString(), alice)
	above, below := session(t, pool, chroot(t, shared), alice), session(t, pool, chroot(t, shared)+"/deep", alice)
	require.Equal(t, 1, pool.Sessions())
	require.Equal(t, root.Key(), below.Key())
	require.Equal(t, "/"+t.Name(), above.Target().Connect.Chroot)

	var told counter
	node, err := above.Observe(ctx, "/deep/x", told.subscription("watcher"))
	require.NoError(t, err)
	require.False(t, node.Exists)
	made, err := below.CreateBelow(ctx, "writer", "/x", []byte("v"), aclOf(alice, zktypes.PermAll), worldACL())
	require.NoError(t, err)
	eventually(t, "told of the other's write", func() bool { return told.calls.Load() == 1 })
	for path, s := range map[string]*zookeeper.Session{"/x": below, "/deep/x": above, "/" + t.Name() + "/deep/x": root} {
		got, err := s.Get(ctx, path)
		require.NoError(t, err, path)
		require.Equal(t, made.Czxid, got.Czxid)
	}
	names, err := below.Children(ctx, "/")
	require.NoError(t, err)
	require.Equal(t, []string{"x"}, names)
	above.Forget("/deep/x", "watcher")
	require.NoError(t, root.DeleteCreated(ctx, "writer", "/"+t.Name()+"/deep/x", made.Czxid, made.Version))
	require.EqualValues(t, 1, told.calls.Load())
}

// The operator's own session is there however many others are.
func TestTheOwnSessionIsAlwaysAdmitted(t *testing.T) {
	opts := options()
	opts.MaxSessions = 1
	pool := newPool(t, opts)
	session(t, pool, chroot(t, shared), bob)
	parsed, err := zktypes.ParseConnectString(chroot(t, shared))
	require.NoError(t, err)
	own := zookeeper.Target{Connect: parsed, Credential: alice}
	_, err = pool.Session(own)
	require.ErrorIs(t, err, zookeeper.ErrTooManySessions)
	own.Own = true
	s, err := pool.Session(own)
	require.NoError(t, err)
	_, err = s.Get(deadline(t), "/never-there")
	require.ErrorIs(t, err, zookeeper.ErrNoNode)
}
