package service_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	v3lockpb "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// BenchmarkCycle is acquire and release by many clients, each on a name of its own, against etcd's own lock service on the
// same etcd: grant, lock, unlock, revoke. Besides the time it counts raft entries and the CPU time of the whole process,
// which is that of clients, service and etcd together.
func BenchmarkCycle(b *testing.B) {
	etcd, inner := leasetest.Etcd(b)
	client := leasetest.Client(b, etcd.Endpoint())
	opts := leasetest.Options("bench")
	opts.EtcdEndpoints, opts.Shards = []string{etcd.Endpoint()}, 64
	replica := leasetest.Start(b, opts)
	leases := leasev1.NewLeaseServiceClient(leasetest.Dial(b, replica.Address))
	locks := v3lockpb.NewLockClient(client.ActiveConnection())

	sessions := make([]*lease.Session, 16)
	for i := range sessions {
		var err error
		sessions[i], err = lease.New(leasetest.Dial(b, replica.Address)).NewSession(b.Context())
		require.NoError(b, err)
	}
	var next atomic.Int64
	for _, clients := range []int{1, 64, 512} {
		cases := map[string]func(ctx context.Context, name string) error{
			"holdfast": func(ctx context.Context, name string) error {
				got, err := leases.Acquire(ctx, &leasev1.AcquireRequest{Name: name, Holder: "bench"})
				if err != nil {
					return err
				}
				_, err = leases.Release(ctx, &leasev1.ReleaseRequest{Name: name, Token: got.GetToken()})
				return err
			},
			"session": func(ctx context.Context, name string) error {
				held, err := sessions[int(next.Load())%len(sessions)].TryAcquire(ctx, name)
				if err != nil {
					return err
				}
				return held.Release(ctx)
			},
			"v3lock": func(ctx context.Context, name string) error {
				grant, err := client.Grant(ctx, 60)
				if err != nil {
					return err
				}
				got, err := locks.Lock(ctx, &v3lockpb.LockRequest{Name: []byte(name), Lease: int64(grant.ID)})
				if err != nil {
					return err
				}
				if _, err = locks.Unlock(ctx, &v3lockpb.UnlockRequest{Key: got.GetKey()}); err != nil {
					return err
				}
				_, err = client.Revoke(ctx, grant.ID)
				return err
			},
			"put": func(ctx context.Context, name string) error {
				_, err := client.Put(ctx, "put/"+name, "some value of an ordinary length")
				return err
			},
		}
		for name, cycle := range cases {
			b.Run(fmt.Sprintf("%s/%d", name, clients), func(b *testing.B) {
				before := raftIndex(b, inner)
				start, cpu := time.Now(), cpuTime(b)
				b.SetParallelism(max(1, clients/2))
				b.RunParallel(func(pb *testing.PB) {
					own := fmt.Sprintf("bench/%s/%d", name, next.Add(1))
					for pb.Next() {
						if err := cycle(context.Background(), own); err != nil {
							b.Error(err)
							return
						}
					}
				})
				b.ReportMetric(float64(raftIndex(b, inner)-before)/float64(b.N), "entries/op")
				b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "ops/s")
				b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(b.N), "cpu-us/op")
			})
		}
	}
}

// BenchmarkHolding holds 100,000 leases of a TTL of 10 s by 1,000 sessions and reports what that costs: CPU, in percent of one
// core, and heap a lease, of clients, service and etcd together.
func BenchmarkHolding(b *testing.B) {
	const sessions, each = 1000, 100
	etcd, inner := leasetest.Etcd(b)
	opts := leasetest.Options("bench")
	opts.EtcdEndpoints, opts.Shards = []string{etcd.Endpoint()}, 64
	replica := leasetest.Start(b, opts)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var group errgroup.Group
	group.SetLimit(64)
	for i := range sessions {
		group.Go(func() error {
			client := lease.New(leasetest.Dial(b, replica.Address))
			s, err := client.NewSession(b.Context(), lease.WithTTL(10*time.Second))
			if err != nil {
				return err
			}
			for j := range each {
				if _, err := s.TryAcquire(b.Context(), fmt.Sprintf("held/%d/%d", i, j)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, group.Wait())
	size := heap() - before
	for b.Loop() {
		start, cpu, index := time.Now(), cpuTime(b), raftIndex(b, inner)
		<-time.After(10 * time.Second)
		b.ReportMetric(100*(cpuTime(b)-cpu).Seconds()/time.Since(start).Seconds(), "%core")
		b.ReportMetric(float64(raftIndex(b, inner)-index), "entries")
	}
	got, err := leasestatus.NewLeaseStatusServiceClient(leasetest.Dial(b, replica.Address)).GetStatus(b.Context(), &leasestatus.GetStatusRequest{})
	require.NoError(b, err)
	b.ReportMetric(float64(size)/(sessions*each), "heap-B/lease")
	require.Equal(b, int64(sessions*each), got.GetActiveLeases(), "none is lost")
}

func raftIndex(b *testing.B, client *clientv3.Client) uint64 {
	b.Helper()
	status, err := client.Status(context.Background(), "")
	require.NoError(b, err)
	return status.RaftIndex
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
