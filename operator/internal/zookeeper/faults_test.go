package zookeeper_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
	zktest "github.com/holdfast-io/holdfast/test/zookeeper"
)

// metered makes options whose metrics can be read.
func metered(t *testing.T) (zookeeper.Options, *prometheus.Registry) {
	registry := prometheus.NewRegistry()
	metrics, err := zookeeper.NewMetrics(registry)
	require.NoError(t, err)
	opts := options()
	opts.Metrics = metrics
	return opts, registry
}

func value(t *testing.T, registry *prometheus.Registry, name string) int {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	sum := 0.0
	for _, family := range families {
		if family.GetName() == name {
			for _, metric := range family.GetMetric() {
				sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			}
		}
	}
	return int(sum)
}

func isUnavailable(err error) bool {
	var unavailable *zookeeper.UnavailableError
	return errors.As(err, &unavailable)
}

// A session that expires takes its watches with it. What changed in the gap is found, and what changes later is told.
func TestExpiry(t *testing.T) {
	ctx := deadline(t)
	proxy := zktest.NewProxy(t, shared.Server(0).Address())
	opts, registry := metered(t)
	mine := session(t, newPool(t, opts), proxy.Address()+"/"+t.Name(), alice)
	theirs := session(t, newPool(t, options()), chroot(t, shared), alice)
	require.NoError(t, theirs.EnsureParents(ctx, "/x", worldACL()))
	const count = 20
	var told [count]counter
	path := func(i int) string { return fmt.Sprintf("/n%d", i) }
	for i := range count {
		_, err := theirs.Create(ctx, "", path(i), []byte("before"), aclOf(alice, zktypes.PermAll))
		require.NoError(t, err)
		_, err = mine.Observe(ctx, path(i), told[i].subscription(path(i)))
		require.NoError(t, err)
	}
	proxy.Cut()
	eventually(t, "the connection is lost", func() bool { return !mine.Established() })
	_, err := theirs.Set(ctx, "", path(0), []byte("in the gap"), 0)
	require.NoError(t, err)
	require.NoError(t, theirs.Delete(ctx, "", path(1), 0))
	eventually(t, "the server lets the session expire", func() bool { return shared.Server(0).Sessions() == 1 })
	proxy.Restore()
	eventually(t, "a new session", mine.Established)

	see := func(i int) zktypes.Node {
		node, err := mine.Observe(ctx, path(i), told[i].subscription(path(i)))
		if err != nil {
			return zktypes.Node{}
		}
		return node
	}
	eventually(t, "the change in the gap is seen", func() bool { return see(0).Sum == zktypes.SumOf([]byte("in the gap")) })
	eventually(t, "the deletion in the gap is seen", func() bool { return !see(1).Exists })
	eventually(t, "both are told", func() bool { return told[0].calls.Load() > 0 && told[1].calls.Load() > 0 })
	for i := 2; i < count; i++ {
		before := told[i].calls.Load()
		_, err := theirs.Set(ctx, "", path(i), []byte("after"), 0)
		require.NoError(t, err)
		eventually(t, "a change after the new session is told", func() bool { return told[i].calls.Load() > before })
		require.Equal(t, zktypes.SumOf([]byte("after")), see(i).Sum)
	}
	_, err = mine.Get(ctx, path(2))
	require.NoError(t, err, "the credential was submitted to the new session")
	require.LessOrEqual(t, value(t, registry, "holdfast_zookeeper_breaker_openings_total"), 1)
}

// While the ensemble is away requests are refused at once, everybody who watches is told once, and once more when it
// is back. Nothing is hammered meanwhile.
func TestOutage(t *testing.T) {
	ctx := deadline(t)
	ensemble := zktest.Start(t, 1)
	opts, registry := metered(t)
	s := session(t, newPool(t, opts), ensemble.ConnectString(), alice)
	_, err := s.Create(ctx, "", "/x", []byte("kept"), worldACL())
	require.NoError(t, err)
	var told, never counter
	node, err := s.Observe(ctx, "/x", told.subscription("told"))
	require.NoError(t, err)

	ensemble.Server(0).Kill()
	eventually(t, "told of the outage", func() bool { return told.calls.Load() == 1 })
	start := time.Now()
	for range 1000 {
		_, err := s.Observe(ctx, "/x", told.subscription("told"))
		require.True(t, isUnavailable(err), "%v", err)
		_, err = s.Observe(ctx, "/new", never.subscription("never"))
		require.True(t, isUnavailable(err), "%v", err)
		_, err = s.Set(ctx, "", "/x", nil, -1)
		require.True(t, isUnavailable(err), "%v", err)
	}
	require.Less(t, time.Since(start), 2*time.Second, "3000 requests are refused without being tried")

	ensemble.Server(0).Restart(t)
	eventually(t, "told that it is back", func() bool { return told.calls.Load() == 2 && never.calls.Load() >= 1 })
	again, err := s.Observe(ctx, "/x", told.subscription("told"))
	require.NoError(t, err)
	require.True(t, node.Same(again))
	require.Equal(t, 1, value(t, registry, "holdfast_zookeeper_breaker_openings_total"))
	require.Zero(t, value(t, registry, "holdfast_zookeeper_breaker_open"))
	eventually(t, "one session at the end", func() bool { return value(t, registry, "holdfast_zookeeper_session_info") == 1 })
	eventually(t, "no request is left", func() bool { return value(t, registry, "holdfast_zookeeper_requests_in_flight") == 0 })
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// A server that accepts connections and says nothing does not keep anybody waiting for longer than a deadline.
func TestHangingServer(t *testing.T) {
	ctx := deadline(t)
	ensemble := zktest.Start(t, 1)
	s := session(t, newPool(t, options()), ensemble.ConnectString(), alice)
	_, err := s.Create(ctx, "", "/x", []byte("kept"), worldACL())
	require.NoError(t, err)
	ensemble.Server(0).Pause(t)
	// A process takes its time to stop; until it has, it answers.
	eventually(t, "nobody answers", func() bool {
		start := time.Now()
		_, err = s.Get(ctx, "/x")
		require.Less(t, time.Since(start), 2*options().RequestTimeout)
		return isUnavailable(err)
	})
	ensemble.Server(0).Resume(t)
	eventually(t, "it goes on", func() bool {
		got, err := s.Get(ctx, "/x")
		return err == nil && string(got.Value) == "kept"
	})
}

// An ensemble that lost its data refuses clients that have seen newer transactions, by closing the connection.
func TestWipedEnsemble(t *testing.T) {
	ctx := deadline(t)
	ensemble := zktest.Start(t, 1)
	s := session(t, newPool(t, options()), ensemble.ConnectString(), alice)
	for i := range 20 {
		_, err := s.Create(ctx, "", fmt.Sprintf("/n%d", i), nil, worldACL())
		require.NoError(t, err)
	}
	var told counter
	node, err := s.Observe(ctx, "/n1", told.subscription("me"))
	require.NoError(t, err)
	require.True(t, node.Exists)
	ensemble.Server(0).Kill()
	ensemble.Server(0).Wipe(t)
	ensemble.Server(0).Restart(t)
	eventually(t, "a new session with the new ensemble", func() bool {
		node, err := s.Observe(ctx, "/n1", told.subscription("me"))
		return err == nil && !node.Exists
	})
}

// Three servers: losing the leader is a matter of a moment, losing two of three is an outage, and what was committed
// is there afterwards.
func TestQuorum(t *testing.T) {
	ctx := deadline(t)
	ensemble := zktest.Start(t, 3)
	opts, registry := metered(t)
	s := session(t, newPool(t, opts), ensemble.ConnectString(), alice)
	_, err := s.Create(ctx, "", "/x", []byte("v0"), worldACL())
	require.NoError(t, err)
	var told counter
	node, err := s.Observe(ctx, "/x", told.subscription("me"))
	require.NoError(t, err)
	require.True(t, node.Exists)

	leader := ensemble.Leader()
	leader.Kill()
	eventually(t, "a write succeeds under the next leader", func() bool {
		node, err := s.Observe(ctx, "/x", told.subscription("me"))
		if err != nil {
			return false
		}
		_, err = s.Set(ctx, "me", "/x", []byte("v1"), node.Version)
		return err == nil
	})
	leader.Restart(t)

	followers := ensemble.Followers()
	for _, server := range followers {
		server.Kill()
	}
	eventually(t, "requests are refused without a quorum", func() bool {
		_, err := s.Observe(ctx, "/x", told.subscription("me"))
		return isUnavailable(err)
	})
	openings := value(t, registry, "holdfast_zookeeper_breaker_openings_total")
	for _, server := range followers {
		server.Relaunch(t)
	}
	eventually(t, "the quorum is back", func() bool {
		got, err := s.Get(ctx, "/x")
		return err == nil && string(got.Value) == "v1"
	})
	require.Equal(t, openings, value(t, registry, "holdfast_zookeeper_breaker_openings_total"), "it opened once in the outage")
	require.LessOrEqual(t, openings, 2)
}
