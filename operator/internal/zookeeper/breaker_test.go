package zookeeper

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// standIn is a session of an ensemble whose connection the test makes up.
func standIn(t *testing.T, ens *ensemble, opts Options) *session {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s := &session{
		ens: ens, opts: opts, log: opts.Log, ctx: ctx, link: &link{}, ready: make(chan struct{}), watches: newWatches(),
	}
	ens.join(s)
	return s
}

func (s *session) stand(established bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.established = established
}

// A session that cannot be had, be it for its certificate or for a server that admits no more of them, is its own trouble
// while another one stands; when that falls too, the ensemble is away.
func TestOneSessionThatFailsOpensNothingWhileAnotherStands(t *testing.T) {
	opts := Options{}.withDefaults()
	ens := newEnsemble(t.Context(), "zk:2181", opts)
	good, bad := standIn(t, ens, opts), standIn(t, ens, opts)
	good.stand(true)
	refused := errors.New("connection refused")
	for range 100 {
		bad.failed(bad.link, refused)
		require.True(t, ens.breaker.closed())
	}
	_, err := bad.await(t.Context())
	require.ErrorIs(t, err, errFailing, "its requests do not wait for it")

	good.stand(false)
	for range opts.BreakerFailures {
		require.True(t, ens.breaker.closed())
		good.failed(good.link, refused)
	}
	require.False(t, ens.breaker.closed())
}

// Who cannot speak TLS with the servers, or does with the wrong certificate, has a breaker of his own.
func TestBreakersAreByServersAndTLS(t *testing.T) {
	at := func(connect string, tls *TLS) string {
		parsed, err := zktypes.ParseConnectString(connect)
		require.NoError(t, err)
		return Target{Connect: parsed, TLS: tls}.ensembleKey()
	}
	keys := map[string]bool{}
	for _, tls := range []*TLS{nil, {}, {CA: []byte("a")}, {CA: []byte("b")}, {ServerName: "a"}, {Cert: []byte("a")}, {Key: []byte("a")}} {
		keys[at("zk:2181", tls)] = true
		require.Equal(t, at("zk:2181", tls), at("zk/chroot", tls), "a chroot is no other ensemble")
		keys[at("other:2181", tls)] = true
	}
	require.Len(t, keys, 14)
}

// watching subscribes a party of its own to a znode, and returns how often it was told.
func (s *session) watching(path string) *atomic.Int64 {
	told := &atomic.Int64{}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &entry{path: path}
	e.subscribe(Subscription{Key: path, Notify: func() { told.Add(1) }})
	s.watches.entries[path] = e
	return told
}

// A breaker that opens again before its closing was told: what comes late tells of the state there is, and nobody is left out.
func TestAnnouncementsThatComeLate(t *testing.T) {
	opts := Options{BreakerFailures: 1}.withDefaults()
	ens := newEnsemble(t.Context(), "zk:2181", opts)
	told := standIn(t, ens, opts).watching("/x")
	late := 0
	ens.breaker.changed = func() { late++ }

	ens.breaker.record(false)
	ens.turned()
	require.EqualValues(t, 1, told.Load())
	opened := ens.openedChan()

	ens.breaker.probed(true)
	ens.breaker.record(false)
	require.Equal(t, 3, late)
	ens.turned()
	ens.turned()
	require.EqualValues(t, 2, told.Load(), "once for both: the second comes too late to say anything")
	require.Equal(t, opened, ens.openedChan())
	<-opened

	ens.breaker.probed(true)
	ens.turned()
	require.EqualValues(t, 3, told.Load())
	select {
	case <-ens.openedChan():
		t.Fatal("requests are still refused")
	default:
	}
}

// While the breaker is open only a probe closes it, and while it is closed there is none.
func TestStragglersAreNoProbes(t *testing.T) {
	b := newBreaker("zk:2181", 1, nil)
	b.probed(false)
	require.True(t, b.closed())
	b.record(false)
	b.record(true)
	require.False(t, b.closed())
	b.probed(true)
	require.True(t, b.closed())
}
