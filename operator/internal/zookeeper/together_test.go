package zookeeper_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
	zktest "github.com/holdfast-io/holdfast/test/zookeeper"
)

// creation is a znode that a test creates, and what it expects to be answered.
type creation struct {
	path string
	data []byte
	acl  []zktypes.ACL
	want error
}

// createAll creates all at the same time, and returns the answers.
func createAll(ctx context.Context, s *zookeeper.Session, all []creation) []error {
	answers := make([]error, len(all))
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() { _, answers[i] = s.Create(ctx, "me", c.path, c.data, c.acl) })
	}
	wg.Wait()
	return answers
}

// requireCreated asserts that a znode is as it was to be created, and untouched.
func requireCreated(ctx context.Context, t *testing.T, s *zookeeper.Session, c creation) {
	t.Helper()
	got, err := s.Get(ctx, c.path)
	require.NoError(t, err, c.path)
	require.Equal(t, string(c.data), string(got.Value))
	require.Equal(t, c.acl, got.ACL)
	require.True(t, got.Untouched())
}

// Znodes that are to be created at the same time go together: the requests are few, and each znode is what it should be.
func TestManyAreCreatedTogether(t *testing.T) {
	ctx := deadline(t)
	pool, registry := counted(t, options())
	s := session(t, pool, chroot(t, shared), alice)
	acl := aclOf(alice, zktypes.PermAll)
	require.NoError(t, s.EnsureParents(ctx, "/x", acl))
	before := requests(t, registry)
	const count = 1000
	var told counter
	all := make([]creation, count)
	for i := range all {
		// Half of them are large: what goes together is bounded by size as well.
		all[i] = creation{path: fmt.Sprintf("/n%d", i), data: make([]byte, 1+i%2*4096), acl: acl}
		_, err := s.Observe(ctx, all[i].path, told.subscription("me"))
		require.NoError(t, err)
	}
	for i, err := range createAll(ctx, s, all) {
		require.NoError(t, err, i)
	}
	after := requests(t, registry)
	sent := after["multi"] - before["multi"] + after["create"] - before["create"]
	t.Logf("%d znodes by %d requests", count, sent)
	require.Less(t, sent, count/4)
	for _, c := range all {
		requireCreated(ctx, t, s, c)
	}
	require.Zero(t, told.calls.Load(), "nobody else did anything")
	// Each is watched from then on.
	theirs := session(t, newPool(t, options()), chroot(t, shared), alice)
	for i, c := range all[:50] {
		_, err := theirs.Set(ctx, "", c.path, []byte("by hand"), 0)
		require.NoError(t, err)
		eventually(t, "told of the change", func() bool { return told.calls.Load() > int64(i) })
	}
}

// Of znodes that go together each has the answer that it would have had alone: what cannot be created keeps no other from it,
// and what is there already stays as it is.
func TestWhatIsRefusedKeepsNoOtherBack(t *testing.T) {
	ctx := deadline(t)
	pool, registry := counted(t, options())
	s := session(t, pool, chroot(t, shared), alice)
	theirs := session(t, newPool(t, options()), chroot(t, shared), bob)
	open, hers, his := worldACL(), aclOf(alice, zktypes.PermAll), aclOf(bob, zktypes.PermAll)
	require.NoError(t, s.EnsureParents(ctx, "/x", open))
	for _, path := range []string{"/closed", "/exists"} {
		_, err := theirs.Create(ctx, "", path, []byte("his"), his)
		require.NoError(t, err)
	}
	foreign, err := theirs.Get(ctx, "/exists")
	require.NoError(t, err)

	var all []creation
	for i := range 200 {
		c := creation{path: fmt.Sprintf("/n%d", i), data: fmt.Append(nil, i), acl: hers}
		switch i % 10 {
		case 3:
			c.path, c.want = "/exists", zookeeper.ErrNodeExists
		case 5:
			c.path, c.want = fmt.Sprintf("/missing/n%d", i), zookeeper.ErrNoNode
		case 7:
			c.path, c.want = fmt.Sprintf("/closed/n%d", i), zookeeper.ErrNoAuth
		case 9:
			c.acl, c.want = nil, zookeeper.ErrInvalidACL
		}
		all = append(all, c)
	}
	for i, err := range createAll(ctx, s, all) {
		require.ErrorIs(t, err, all[i].want, all[i].path)
	}
	require.Positive(t, requests(t, registry)["multi"], "some went together")
	for _, c := range all {
		if c.want == nil {
			requireCreated(ctx, t, s, c)
		}
	}
	again, err := theirs.Get(ctx, "/exists")
	require.NoError(t, err)
	require.Equal(t, foreign, again, "what is somebody else's is untouched")
}

// Two who create one znode at the same time: one does, and the other is told.
func TestOneOfTwoCreatesAZnode(t *testing.T) {
	ctx := deadline(t)
	s := session(t, newPool(t, options()), chroot(t, shared), alice)
	acl := aclOf(alice, zktypes.PermAll)
	require.NoError(t, s.EnsureParents(ctx, "/x", acl))
	var all []creation
	for i := range 300 {
		all = append(all, creation{path: fmt.Sprintf("/n%d", i/2), data: []byte("v"), acl: acl})
	}
	answers := createAll(ctx, s, all)
	for i := 0; i < len(all); i += 2 {
		first, second := answers[i], answers[i+1]
		require.NotEqual(t, first == nil, second == nil, "%v, %v", first, second)
		for _, err := range []error{first, second} {
			if err != nil {
				require.ErrorIs(t, err, zookeeper.ErrNodeExists)
			}
		}
		requireCreated(ctx, t, s, all[i])
	}
}

// What nobody waits for any more is not created later.
func TestWhatWasGivenUpIsNotCreated(t *testing.T) {
	ctx := deadline(t)
	proxy := zktest.NewProxy(t, shared.Server(0).Address())
	opts := options()
	opts.BreakerFailures = 1000
	s := session(t, newPool(t, opts), proxy.Address()+"/"+t.Name(), alice)
	acl := aclOf(alice, zktypes.PermAll)
	require.NoError(t, s.EnsureParents(ctx, "/x", acl))
	proxy.Cut()
	eventually(t, "the connection is lost", func() bool { return !s.Established() })
	var all []creation
	for i := range 300 {
		all = append(all, creation{path: fmt.Sprintf("/n%d", i), acl: acl})
	}
	brief, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	for _, err := range createAll(brief, s, all) {
		require.True(t, isUnavailable(err), "%v", err)
	}
	proxy.Restore()
	eventually(t, "the connection is back", s.Established)
	_, err := s.Create(ctx, "me", "/last", nil, acl)
	require.NoError(t, err)
	names, err := s.Children(ctx, "/")
	require.NoError(t, err)
	require.Equal(t, []string{"last"}, names)
}

// Whoever was told that his znode was created finds it after the server was killed in the middle; of the others it is not known.
func TestAKilledServerLosesNothingThatWasAnswered(t *testing.T) {
	ctx := deadline(t)
	ensemble := zktest.Start(t, 1)
	opts := options()
	opts.RequestTimeout = time.Second
	s := session(t, newPool(t, opts), ensemble.ConnectString(), alice)
	acl := aclOf(alice, zktypes.PermAll)
	all := make([]creation, 4000)
	for i := range all {
		all[i] = creation{path: fmt.Sprintf("/n%d", i), data: make([]byte, 1000), acl: acl}
	}
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		for {
			if names, err := s.Children(ctx, "/"); err != nil || len(names) > 200 {
				break
			}
		}
		ensemble.Server(0).Kill()
	}()
	answers := createAll(ctx, s, all)
	<-killed
	ensemble.Server(0).Restart(t)
	eventually(t, "it answers", func() bool {
		_, err := s.Children(ctx, "/")
		return err == nil
	})
	kept := 0
	for i, err := range answers {
		if err == nil {
			kept++
			requireCreated(ctx, t, s, all[i])
			continue
		}
		require.True(t, isUnavailable(err), "%v", err)
	}
	t.Logf("%d of %d were answered", kept, len(all))
	require.Positive(t, kept)
	require.Less(t, kept, len(all))
}
