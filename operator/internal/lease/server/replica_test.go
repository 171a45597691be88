package server_test

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/internal/lease/server"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
)

// settled is a store whose cluster never changes, for tests of how replicas call each other.
type settled struct {
	store.Store
	id       store.SessionID
	cluster  *store.Cluster
	revision atomic.Int64
}

func (s *settled) Shards(context.Context, int) (int, error) { return len(s.cluster.Claims), nil }
func (s *settled) OpenSession(context.Context, time.Duration) (store.SessionID, time.Duration, error) {
	return s.id, time.Hour, nil
}
func (s *settled) KeepSession(context.Context, store.SessionID) error { return nil }
func (s *settled) EndSession(context.Context, store.SessionID) error  { return nil }
func (s *settled) Join(context.Context, store.Member, bool) (*store.Cursor, error) {
	return &store.Cursor{}, nil
}

func (s *settled) Claim(_ context.Context, _ store.SessionID, shard int) (store.Claim, bool, error) {
	return s.cluster.Claims[shard], s.cluster.Claims[shard].Session == s.id, nil
}
func (s *settled) Load(context.Context, int, store.Claim) ([]core.Record, error) { return nil, nil }
func (s *settled) Commit(context.Context, *store.Cursor, []store.BatchOp) (int64, error) {
	return s.revision.Add(1), nil
}

func (s *settled) WatchCluster(ctx context.Context, _ int, pass func(*store.Cluster)) error {
	pass(s.cluster)
	<-ctx.Done()
	return ctx.Err()
}
func (s *settled) Seen() int64 { return s.revision.Load() }

// clusterOf has a member at each address, with the sessions 1, 2 and so on; each owns every n-th of the shards.
func clusterOf(shards int, addresses ...string) *store.Cluster {
	c := &store.Cluster{Revision: 1, Leader: store.Claim{Session: 99, Revision: 1}}
	for i, address := range addresses {
		c.Members = append(c.Members, store.Member{Session: store.SessionID(i + 1), Name: address, Address: address})
	}
	for shard := range shards {
		owner := store.SessionID(shard%len(addresses) + 1)
		c.Claims = append(c.Claims, store.Claim{Session: owner, Revision: 1})
		c.Assigned = append(c.Assigned, owner)
	}
	return c
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// replica serves as one member of a cluster, until the test ends.
func replica(t *testing.T, listener net.Listener, id store.SessionID, cluster *store.Cluster, now func() core.Instant, change func(*server.Options)) {
	t.Helper()
	held := &settled{id: id, cluster: cluster}
	held.revision.Store(10)
	log := slog.New(slog.DiscardHandler)
	eng := engine.New(engine.Options{
		Store: held, Name: listener.Addr().String(), Address: listener.Addr().String(), Shards: len(cluster.Claims), SessionTTL: time.Hour,
		Clock: now, Log: log, Registry: prometheus.NewRegistry(),
	})
	opts := server.Options{
		Engine: eng, Store: held, Name: listener.Addr().String(), Patience: 10 * time.Second, Clock: now, Log: log,
		Registry: prometheus.NewRegistry(), TTLs: server.TTLs{Min: time.Second, Max: time.Hour, Default: time.Minute},
	}
	if change != nil {
		change(&opts)
	}
	srv := server.New(opts)
	var wg sync.WaitGroup
	wg.Go(func() { _ = eng.Run(t.Context()) }) // it ends with the test
	wg.Go(func() { _ = srv.Serve(listener) })  // likewise
	t.Cleanup(func() {
		srv.Stop(t.Context())
		wg.Wait()
	})
	owned := 0
	for _, claim := range cluster.Claims {
		if claim.Session == id {
			owned++
		}
	}
	require.Eventually(t, func() bool { return eng.Status().Certain && eng.Status().Shards == owned }, 30*time.Second, time.Millisecond)
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
