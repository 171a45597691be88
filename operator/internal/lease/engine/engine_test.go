package engine_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/lease/clock"
	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
)

// late passes the state of the cluster on when it is told to.
type late struct {
	store.Store
	told chan struct{}
}

func (l late) WatchCluster(ctx context.Context, shards int, pass func(*store.Cluster)) error {
	<-l.told
	return l.Store.WatchCluster(ctx, shards, pass)
}

// A replica that does not know of the cluster since it joined must not call itself ready, although its session lives.
func TestNotReadyWithAViewOlderThanTheSession(t *testing.T) {
	_, client := leasetest.Etcd(t)
	etcd, err := store.NewEtcd(client, "/test/")
	require.NoError(t, err)
	held := late{etcd, make(chan struct{})}
	e := engine.New(engine.Options{
		Store: held, Name: "a", Address: "a:1", Shards: 4, SessionTTL: 5 * time.Second,
		Clock: clock.Now, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	require.Eventually(t, func() bool { return e.Status().CertainFor > 0 }, 10*time.Second, 5*time.Millisecond)
	require.False(t, e.Status().Certain)
	close(held.told)
	require.Eventually(t, func() bool { return e.Status().Certain }, 10*time.Second, 5*time.Millisecond)
	stop()
	require.NoError(t, <-done)
}
