package zookeeper

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
	zktest "github.com/holdfast-io/holdfast/test/zookeeper"
)

// disconnected is a session that has seen the znode /x, has lost its connection since, and does not know that the znode was
// replaced by an equal one.
type disconnected struct {
	mine, theirs *Session
	proxy        *zktest.Proxy
	first        zktypes.Node
}

func newDisconnected(ctx context.Context, t *testing.T) disconnected {
	t.Helper()
	ensemble := zktest.Start(t, 1)
	proxy := zktest.NewProxy(t, ensemble.Server(0).Address())
	pool := New(Options{RequestTimeout: 20 * time.Second, BreakerFailures: 1000, AuditInterval: -1})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = pool.Close(ctx) // the connection may be cut
	})
	open := func(address string) *Session {
		connect, err := zktypes.ParseConnectString(address)
		require.NoError(t, err)
		s, err := pool.Session(Target{Connect: connect})
		require.NoError(t, err)
		return s
	}
	d := disconnected{mine: open(proxy.Address()), theirs: open(ensemble.ConnectString()), proxy: proxy}
	d.create(ctx, t)
	var err error
	d.first, err = d.mine.Observe(ctx, "/x", Subscription{Key: "me"})
	require.NoError(t, err)
	proxy.Cut()
	require.Eventually(t, func() bool { return !d.mine.Established() }, 30*time.Second, time.Millisecond)
	require.NoError(t, d.theirs.Delete(ctx, "", "/x", 0))
	d.create(ctx, t)
	return d
}

func (d disconnected) create(ctx context.Context, t *testing.T) {
	t.Helper()
	world := []zktypes.ACL{{Scheme: zktypes.SchemeWorld, ID: zktypes.AnyoneID, Perms: zktypes.PermAll}}
	_, err := d.theirs.Create(ctx, "", "/x", []byte("v"), world)
	require.NoError(t, err)
}

// waiting returns what a request answers that was made while there is no connection, once there is one again.
func (d disconnected) waiting(t *testing.T, request func() error) error {
	t.Helper()
	answer := make(chan error, 1)
	go func() { answer <- request() }()
	require.Eventually(t, func() bool { return len(d.mine.on.slots) > 0 }, 30*time.Second, time.Millisecond, "it waits")
	d.proxy.Restore()
	select {
	case err := <-answer:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("no answer")
		return nil
	}
}

// What was seen before a connection was lost is not answered from memory, neither while there is none nor before it was compared.
func TestMemoryIsComparedAfterADisconnect(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d := newDisconnected(ctx, t)
	brief, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	_, err := d.mine.Observe(brief, "/x", Subscription{Key: "me"})
	var away *UnavailableError
	require.ErrorAs(t, err, &away)
	var seen zktypes.Node
	require.NoError(t, d.waiting(t, func() (err error) {
		seen, err = d.mine.Observe(ctx, "/x", Subscription{Key: "me"})
		return err
	}))
	require.NotEqual(t, d.first.Czxid, seen.Czxid)
}

// A write that was decided on what was seen before is not made after, though the version is the same.
func TestNoWriteOutlivesADisconnect(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, write := range map[string]func(d disconnected) error{
		"set": func(d disconnected) error {
			_, err := d.mine.Set(ctx, "me", "/x", []byte("mine"), d.first.Version)
			return err
		},
		"setACL": func(d disconnected) error {
			_, err := d.mine.SetACL(ctx, "me", "/x", d.first.ACL, d.first.Aversion)
			return err
		},
		"delete": func(d disconnected) error {
			return d.mine.DeleteCreated(ctx, "me", "/x", d.first.Czxid, d.first.Version)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisconnected(ctx, t)
			require.ErrorIs(t, d.waiting(t, func() error { return write(d) }), ErrBadVersion)
			got, err := d.theirs.Get(ctx, "/x")
			require.NoError(t, err)
			require.True(t, got.Untouched())
			require.Equal(t, "v", string(got.Value))
			seen, err := d.mine.Observe(ctx, "/x", Subscription{Key: "me"})
			require.NoError(t, err)
			require.Equal(t, got.Czxid, seen.Czxid)
			require.NoError(t, d.mine.DeleteCreated(ctx, "me", "/x", seen.Czxid, seen.Version))
		})
	}
}
