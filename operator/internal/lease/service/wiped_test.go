package service_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/holdfast-io/holdfast/operator/internal/lease/embedded"
	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// lines is a log that may be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), part)
}

// etcdAt starts an etcd on an address, with what a folder holds.
func etcdAt(t *testing.T, address, dir string) (*embedded.Server, func()) {
	t.Helper()
	etcd, err := embedded.Start(t.Context(), embedded.Options{Dir: dir, ListenClient: "http://" + address, TickMillis: 20, LogLevel: "fatal"})
	require.NoError(t, err)
	stop := sync.OnceFunc(etcd.Close)
	t.Cleanup(stop)
	return etcd, stop
}

// A dev etcd that loses its pod comes back empty under the same address. The replicas begin anew on it by themselves, and so do
// watches, those that are open and those that are resumed.
func TestAnEtcdThatLostItsData(t *testing.T) {
	etcd, stopEtcd := etcdAt(t, "127.0.0.1:0", t.TempDir())
	address := etcd.Endpoint()
	raw := leasetest.Client(t, address)
	for range 100 { // so that the revisions of the empty one are lower
		_, err := raw.Put(t.Context(), "filler", "")
		require.NoError(t, err)
	}
	var log lines
	opts := leasetest.Options("a")
	opts.EtcdEndpoints, opts.Log = []string{address}, &log
	replica := leasetest.Start(t, opts)
	other := leasetest.Options("b")
	other.EtcdEndpoints, other.Log = []string{address}, &log
	leasetest.Start(t, other)
	conn := leasetest.Dial(t, replica.Address)
	client := leasev1.NewLeaseServiceClient(conn)
	lost := acquire(t, client, "job", "one", time.Hour)
	target := &leasev1.WatchRequest_Name{Name: "job"}
	open, err := client.Watch(within(t, time.Minute), &leasev1.WatchRequest{Target: target})
	require.NoError(t, err)
	first, err := open.Recv()
	require.NoError(t, err)
	require.Len(t, first.GetSnapshot().GetLeases(), 1)

	stopEtcd()
	leasetest.AwaitStatus(t, replica.Address, "its session is uncertain", func(s *leasestatus.GetStatusResponse) bool { return !s.GetReady() })
	health, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: leasev1.LeaseService_ServiceDesc.ServiceName})
	require.NoError(t, err)
	assert.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, health.GetStatus())
	etcdAt(t, address, t.TempDir())
	back := time.Now()

	var got *leasev1.AcquireResponse
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, err = client.Acquire(ctx, &leasev1.AcquireRequest{Name: "job", Holder: "two"})
		return err == nil
	}, opts.SessionTTL+10*time.Second, 50*time.Millisecond)
	t.Logf("served %s after the empty etcd was there; token %d, before %d", time.Since(back), got.GetToken(), lost.GetToken())
	assert.Less(t, got.GetToken(), lost.GetToken(), "what docs/lease-service.md warns of")
	_, err = client.KeepAlive(within(t, 10*time.Second), &leasev1.KeepAliveRequest{Name: "job", Token: lost.GetToken()})
	assert.Equal(t, "LEASE_NOT_HELD", reason(err))
	leasetest.AwaitStatus(t, replica.Address, "both replicas serve", func(s *leasestatus.GetStatusResponse) bool {
		return s.GetReady() && len(s.GetReplicas()) == 2 && s.GetShards() == 8
	})
	assert.True(t, log.has(`"level":"`+slog.LevelError.String()+`","msg":"the store is not the one it was`))

	resumed, err := client.Watch(within(t, time.Minute), &leasev1.WatchRequest{Target: target, AfterRevision: first.GetRevision()})
	require.NoError(t, err)
	for _, stream := range []interface {
		Recv() (*leasev1.WatchResponse, error)
	}{open, resumed} {
		for holder := ""; holder != "two"; {
			update, err := stream.Recv()
			require.NoError(t, err)
			for _, lease := range update.GetSnapshot().GetLeases() {
				holder = lease.GetHolds()[0].GetHolder()
				assert.Equal(t, leasev1.WatchSnapshot_CAUSE_COMPACTED, update.GetSnapshot().GetCause())
			}
			for _, change := range update.GetChanges().GetEvents() {
				holder = change.GetHold().GetHolder()
			}
		}
	}
}
