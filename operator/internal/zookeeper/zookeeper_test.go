package zookeeper_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
	zktest "github.com/holdfast-io/holdfast/test/zookeeper"
)

var shared *zktest.Ensemble

func TestMain(m *testing.M) { os.Exit(zktest.Main(m, 1, &shared)) }

var (
	alice = zookeeper.Credential{User: "alice", Password: "wonder"}
	bob   = zookeeper.Credential{User: "bob", Password: "builder"}
)

// world is the list that admits everybody. The operator never sets it by itself.
func worldACL() []zktypes.ACL {
	return []zktypes.ACL{{Scheme: zktypes.SchemeWorld, ID: zktypes.AnyoneID, Perms: zktypes.PermAll}}
}

func aclOf(c zookeeper.Credential, perms zktypes.Perms) []zktypes.ACL {
	return []zktypes.ACL{{Scheme: zktypes.SchemeDigest, ID: zktypes.DigestID(c.User, c.Password), Perms: perms}}
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// options are quick to notice and to recover, as the servers of the tests are.
func options() zookeeper.Options {
	return zookeeper.Options{
		// Short enough for tests of expiry, and long enough for a server on a machine that is busy with other tests.
		SessionTimeout: 2 * time.Second, RequestTimeout: 3 * time.Second, DialTimeout: time.Second,
		MaxBackoff: 500 * time.Millisecond, AuditInterval: -1,
	}
}

func newPool(t *testing.T, opts zookeeper.Options) *zookeeper.Pool {
	t.Helper()
	pool := zookeeper.New(opts)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := pool.Close(ctx); err != nil {
			t.Errorf("close the pool: %v", err)
		}
	})
	return pool
}

func session(t *testing.T, pool *zookeeper.Pool, connect string, credential zookeeper.Credential) *zookeeper.Session {
	t.Helper()
	parsed, err := zktypes.ParseConnectString(connect)
	require.NoError(t, err)
	s, err := pool.Session(zookeeper.Target{Connect: parsed, Credential: credential})
	require.NoError(t, err)
	return s
}

// chroot gives each test a tree of its own.
func chroot(t *testing.T, ensemble *zktest.Ensemble) string {
	return fmt.Sprintf("%s/%s", ensemble.ConnectString(), t.Name())
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 30*time.Second, 5*time.Millisecond, what)
}

// counter is a subscriber that counts.
type counter struct{ calls atomic.Int64 }

func (c *counter) subscription(key string) zookeeper.Subscription {
	return zookeeper.Subscription{Key: key, Notify: func() { c.calls.Add(1) }}
}

func TestWritesAreCheckedAgainstVersions(t *testing.T) {
	ctx := deadline(t)
	s := session(t, newPool(t, options()), chroot(t, shared), alice)
	acl := aclOf(alice, zktypes.PermAll)

	_, err := s.Create(ctx, "me", "/a/b", []byte("v"), acl)
	require.ErrorIs(t, err, zookeeper.ErrNoNode)
	require.NoError(t, s.EnsureParents(ctx, "/a/b", acl))
	require.NoError(t, s.EnsureParents(ctx, "/a/b", acl), "idempotent")
	_, err = s.Create(ctx, "me", "/a/b", []byte("v"), acl)
	require.NoError(t, err)
	_, err = s.Create(ctx, "me", "/a/b", []byte("v"), acl)
	require.ErrorIs(t, err, zookeeper.ErrNodeExists)

	got, err := s.Get(ctx, "/a/b")
	require.NoError(t, err)
	require.Equal(t, "v", string(got.Value))
	require.Equal(t, acl, got.ACL)
	require.True(t, got.Untouched())

	_, err = s.Set(ctx, "me", "/a/b", []byte("w"), 0)
	require.NoError(t, err)
	_, err = s.Set(ctx, "me", "/a/b", []byte("x"), 0)
	require.ErrorIs(t, err, zookeeper.ErrBadVersion)
	require.ErrorIs(t, s.Delete(ctx, "me", "/a/b", 0), zookeeper.ErrBadVersion)
	require.ErrorIs(t, s.Delete(ctx, "me", "/a", 0), zookeeper.ErrNotEmpty)
	names, err := s.Children(ctx, "/a")
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, names)
	require.NoError(t, s.Delete(ctx, "me", "/a/b", 1))
	_, err = s.Get(ctx, "/a/b")
	require.ErrorIs(t, err, zookeeper.ErrNoNode)
}

func TestCredentials(t *testing.T) {
	ctx := deadline(t)
	pool := newPool(t, options())
	hers := session(t, pool, chroot(t, shared), alice)
	his := session(t, pool, chroot(t, shared), bob)
	require.Same(t, hers, session(t, pool, chroot(t, shared), alice), "equal targets share a session")
	require.NotSame(t, hers, his)

	require.NoError(t, hers.EnsureParents(ctx, "/x", worldACL()))
	_, err := hers.Create(ctx, "", "/x", []byte("secret"), aclOf(alice, zktypes.PermAll))
	require.NoError(t, err)
	_, err = his.Get(ctx, "/x")
	require.ErrorIs(t, err, zookeeper.ErrNoAuth)

	var told counter
	node, err := his.Observe(ctx, "/x", told.subscription("bob"))
	require.NoError(t, err)
	require.True(t, node.Exists && node.Hidden, "that it exists is seen, and that it may not be read")

	both := append(aclOf(alice, zktypes.PermAll), aclOf(bob, zktypes.PermRead)...)
	_, err = hers.SetACL(ctx, "", "/x", both, 0)
	require.NoError(t, err)
	_, err = hers.SetACL(ctx, "", "/x", both, 0)
	require.ErrorIs(t, err, zookeeper.ErrBadVersion)
	got, err := his.Get(ctx, "/x")
	require.NoError(t, err)
	require.Equal(t, "secret", string(got.Value))
	_, err = hers.SetACL(ctx, "", "/x", nil, 1)
	require.ErrorIs(t, err, zookeeper.ErrInvalidACL)
}

func TestObserveIsToldOfEveryChange(t *testing.T) {
	ctx := deadline(t)
	pool := newPool(t, options())
	mine := session(t, pool, chroot(t, shared), alice)
	theirs := session(t, newPool(t, options()), chroot(t, shared), alice)
	require.NoError(t, mine.EnsureParents(ctx, "/x", worldACL()))

	var told counter
	look := func() zktypes.Node {
		node, err := mine.Observe(ctx, "/x", told.subscription("me"))
		require.NoError(t, err)
		return node
	}
	require.False(t, look().Exists)
	for i := range 20 {
		before := told.calls.Load()
		_, err := theirs.Create(ctx, "", "/x", []byte(fmt.Sprint("created", i)), worldACL())
		require.NoError(t, err)
		eventually(t, "told of the creation", func() bool { return told.calls.Load() > before })
		require.Equal(t, zktypes.SumOf([]byte(fmt.Sprint("created", i))), look().Sum)

		before = told.calls.Load()
		_, err = theirs.Set(ctx, "", "/x", []byte(fmt.Sprint("set", i)), 0)
		require.NoError(t, err)
		eventually(t, "told of the change", func() bool { return told.calls.Load() > before })
		require.Equal(t, zktypes.SumOf([]byte(fmt.Sprint("set", i))), look().Sum)

		before = told.calls.Load()
		require.NoError(t, theirs.Delete(ctx, "", "/x", 1))
		eventually(t, "told of the deletion", func() bool { return told.calls.Load() > before })
		require.False(t, look().Exists)
	}
}

func TestWriterIsNotToldOfItsOwnWrites(t *testing.T) {
	ctx := deadline(t)
	s := session(t, newPool(t, options()), chroot(t, shared), alice)
	require.NoError(t, s.EnsureParents(ctx, "/x", worldACL()))
	var mine, other counter
	for key, c := range map[string]*counter{"me": &mine, "other": &other} {
		_, err := s.Observe(ctx, "/x", c.subscription(key))
		require.NoError(t, err)
	}
	node, err := s.Create(ctx, "me", "/x", []byte("0"), worldACL())
	require.NoError(t, err)
	for i := range int32(20) {
		require.Equal(t, i, node.Version)
		node, err = s.Set(ctx, "me", "/x", []byte(fmt.Sprint(i+1)), i)
		require.NoError(t, err)
		seen, err := s.Observe(ctx, "/x", mine.subscription("me"))
		require.NoError(t, err)
		require.Equal(t, node, seen, "what the writer got is what it then observes")
	}
	require.Zero(t, mine.calls.Load())
	require.EqualValues(t, 21, other.calls.Load(), "everybody else is told of each")
}

func TestNoWatchFiresOnAnAccessControlListButTheAuditSees(t *testing.T) {
	ctx := deadline(t)
	opts := options()
	opts.AuditInterval = 50 * time.Millisecond
	mine := session(t, newPool(t, opts), chroot(t, shared), alice)
	theirs := session(t, newPool(t, options()), chroot(t, shared), bob)
	require.NoError(t, mine.EnsureParents(ctx, "/x", worldACL()))
	_, err := mine.Create(ctx, "", "/x", nil, worldACL())
	require.NoError(t, err)
	var told counter
	_, err = mine.Observe(ctx, "/x", told.subscription("me"))
	require.NoError(t, err)
	_, err = theirs.SetACL(ctx, "", "/x", aclOf(bob, zktypes.PermAll), 0)
	require.NoError(t, err)
	eventually(t, "the audit sees it", func() bool { return told.calls.Load() > 0 })
	node, err := mine.Observe(ctx, "/x", told.subscription("me"))
	require.NoError(t, err)
	require.True(t, node.Hidden)
	require.EqualValues(t, 1, node.Aversion)
}

func TestForgottenSubscribersAreNotTold(t *testing.T) {
	ctx := deadline(t)
	opts := options()
	opts.IdleTimeout = 100 * time.Millisecond
	pool := newPool(t, opts)
	s := session(t, pool, chroot(t, shared), alice)
	require.NoError(t, s.EnsureParents(ctx, "/x", worldACL()))
	var gone, stays counter
	for _, path := range []string{"/x", "/y"} {
		_, err := s.Observe(ctx, path, gone.subscription("gone"))
		require.NoError(t, err)
	}
	_, err := s.Observe(ctx, "/x", stays.subscription("stays"))
	require.NoError(t, err)
	s.ForgetAll("gone")
	_, err = s.Create(ctx, "", "/x", nil, worldACL())
	require.NoError(t, err)
	eventually(t, "the other is told", func() bool { return stays.calls.Load() > 0 })
	require.Zero(t, gone.calls.Load())
	require.Equal(t, 1, pool.Sessions())
	s.Forget("/x", "stays")
	eventually(t, "a session that watches nothing is closed", func() bool { return pool.Sessions() == 0 })
}

func TestObserveWithData(t *testing.T) {
	ctx := deadline(t)
	s := session(t, newPool(t, options()), chroot(t, shared), alice)
	require.NoError(t, s.EnsureParents(ctx, "/leader", worldACL()))
	_, err := s.Create(ctx, "", "/leader", []byte("app-0"), worldACL())
	require.NoError(t, err)
	var without, with counter
	node, err := s.Observe(ctx, "/leader", without.subscription("without"))
	require.NoError(t, err)
	require.Nil(t, node.Data)
	sub := with.subscription("with")
	sub.WithData = true
	look := func() string {
		node, err := s.Observe(ctx, "/leader", sub)
		require.NoError(t, err)
		return string(node.Data)
	}
	require.Equal(t, "app-0", look())
	_, err = s.Set(ctx, "", "/leader", []byte("app-1"), 0)
	require.NoError(t, err)
	eventually(t, "the new leader is seen", func() bool { return look() == "app-1" })
}

// A closed pool leaves nothing behind, also when it never reached its ensemble.
func TestCloseEndsEverything(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	pool := zookeeper.New(options())
	for _, connect := range []string{chroot(t, shared), "127.0.0.1:1"} {
		parsed, err := zktypes.ParseConnectString(connect)
		require.NoError(t, err)
		s, err := pool.Session(zookeeper.Target{Connect: parsed, Credential: alice})
		require.NoError(t, err)
		_, err = s.Observe(deadline(t), "/x", zookeeper.Subscription{Key: "me"})
		require.Equal(t, connect == "127.0.0.1:1", isUnavailable(err), "%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, pool.Close(ctx))
	_, err := pool.Session(zookeeper.Target{})
	require.True(t, isUnavailable(err), "%v", err)
	goleak.VerifyNone(t, ignore)
}
