package service_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/internal/lease/service"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// childOptions in the environment, a name and an etcd endpoint, makes the test binary a replica, so that a test can kill one.
const childOptions = "HOLDFAST_TEST_REPLICA"

func TestMain(m *testing.M) {
	name, endpoint, ok := strings.Cut(os.Getenv(childOptions), " ")
	if !ok {
		goleak.VerifyTestMain(m)
		return
	}
	opts := leasetest.Options(name)
	opts.EtcdEndpoints = []string{endpoint}
	opts.Started = func(address string) { fmt.Println(address) }
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := service.Run(ctx, opts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child is a replica in a process of its own.
type child struct {
	*exec.Cmd
	address string
}

func spawn(t *testing.T, name, endpoint string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command(os.Args[0])}
	c.Env = append(os.Environ(), childOptions+"="+name+" "+endpoint)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	c.address = strings.TrimSpace(address)
	return c
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func acquire(t *testing.T, c leasev1.LeaseServiceClient, name, holder string, ttl time.Duration) *leasev1.AcquireResponse {
	t.Helper()
	got, err := c.Acquire(within(t, 20*time.Second), &leasev1.AcquireRequest{Name: name, Holder: holder, Ttl: durationpb.New(ttl), Wait: &leasev1.Wait{}})
	require.NoError(t, err)
	return got
}

func reason(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// ownerOf returns the address of the replica that serves a name.
func ownerOf(t *testing.T, c leasev1.LeaseServiceClient, name string) string {
	t.Helper()
	// A call to a replica that is not the owner says in its header who is.
	var header metadata.MD
	_, err := c.Get(within(t, 10*time.Second), &leasev1.GetRequest{Name: name}, grpc.Header(&header))
	require.NoError(t, err)
	if owner := header.Get("holdfast-owner"); len(owner) > 0 {
		return owner[len(owner)-1]
	}
	return ""
}

func TestOneReplica(t *testing.T) {
	opts := leasetest.Options("alone")
	replica := leasetest.Start(t, opts)
	conn := leasetest.Dial(t, replica.Address)
	client := leasev1.NewLeaseServiceClient(conn)

	t.Run("a second holder is refused, and gets a larger token after the release", func(t *testing.T) {
		first := acquire(t, client, "a/b", "one", time.Minute)
		assert.Positive(t, first.GetToken())
		assert.Equal(t, time.Minute, first.GetTtl().AsDuration())

		_, err := client.Acquire(t.Context(), &leasev1.AcquireRequest{Name: "a/b", Holder: "two"})
		assert.Equal(t, codes.Aborted, status.Code(err))
		assert.Equal(t, "LEASE_HELD", reason(err))
		var contention *leasev1.Contention
		for _, d := range status.Convert(err).Details() {
			if c, ok := d.(*leasev1.Contention); ok {
				contention = c
			}
		}
		require.NotNil(t, contention)
		assert.Equal(t, "one", contention.GetHolds()[0].GetHolder())

		released, err := client.Release(t.Context(), &leasev1.ReleaseRequest{Name: "a/b", Token: first.GetToken()})
		require.NoError(t, err)
		assert.True(t, released.GetReleased())
		second := acquire(t, client, "a/b", "two", time.Minute)
		assert.Greater(t, second.GetToken(), first.GetToken())

		late, err := client.Release(t.Context(), &leasev1.ReleaseRequest{Name: "a/b", Token: first.GetToken()})
		require.NoError(t, err, "a late release is no error")
		assert.False(t, late.GetReleased())
		kept, err := client.KeepAlive(t.Context(), &leasev1.KeepAliveRequest{Name: "a/b", Token: second.GetToken()})
		require.NoError(t, err, "and touches nobody else's hold")
		assert.Positive(t, kept.GetExpiresIn().AsDuration())
		_, err = client.KeepAlive(t.Context(), &leasev1.KeepAliveRequest{Name: "a/b", Token: first.GetToken()})
		assert.Equal(t, "LEASE_NOT_HELD", reason(err))
	})
	t.Run("a hold expires without keepalives, and not before its TTL", func(t *testing.T) {
		start := time.Now()
		first := acquire(t, client, "expiring", "one", time.Second)
		second := acquire(t, client, "expiring", "two", time.Minute)
		assert.Greater(t, second.GetToken(), first.GetToken())
		assert.GreaterOrEqual(t, time.Since(start), time.Second)
		assert.Less(t, time.Since(start), 5*time.Second)
	})
	t.Run("waiters are served first come, first served", func(t *testing.T) { waitersInOrder(t, client) })
	t.Run("the same request gets the same hold", func(t *testing.T) {
		req := &leasev1.AcquireRequest{Name: "again", Holder: "one", RequestId: "r1"}
		first, err := client.Acquire(t.Context(), req)
		require.NoError(t, err)
		second, err := client.Acquire(t.Context(), req)
		require.NoError(t, err)
		assert.Equal(t, first.GetToken(), second.GetToken())
		_, err = client.Release(t.Context(), &leasev1.ReleaseRequest{Name: "again", Token: first.GetToken()})
		require.NoError(t, err)
		_, err = client.Acquire(t.Context(), req)
		assert.Equal(t, "REQUEST_ENDED", reason(err))
	})
	t.Run("a wait that times out says so", func(t *testing.T) {
		acquire(t, client, "busy", "one", time.Minute)
		_, err := client.Acquire(t.Context(), &leasev1.AcquireRequest{
			Name: "busy", Holder: "two", Wait: &leasev1.Wait{Timeout: durationpb.New(50 * time.Millisecond)},
		})
		assert.Equal(t, "WAIT_TIMEOUT", reason(err))
	})
	t.Run("bad requests name the field", func(t *testing.T) {
		_, err := client.Acquire(t.Context(), &leasev1.AcquireRequest{Name: "a/../b", Ttl: durationpb.New(time.Millisecond)})
		assert.Equal(t, codes.InvalidArgument, status.Code(err))
		assert.Contains(t, status.Convert(err).Message(), `segment ".."`)
		assert.Contains(t, status.Convert(err).Message(), "ttl is 1ms; 1s to 24h0m0s are allowed")
	})
	t.Run("list pages", func(t *testing.T) { listPages(t, client) })
	t.Run("health and status", func(t *testing.T) {
		health := healthpb.NewHealthClient(conn)
		for _, name := range []string{"", "dist.system.lease.v1.LeaseService"} {
			got, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
			require.NoError(t, err)
			assert.Equal(t, healthpb.HealthCheckResponse_SERVING, got.GetStatus())
		}
		got, err := leasestatus.NewLeaseStatusServiceClient(conn).GetStatus(t.Context(), &leasestatus.GetStatusRequest{})
		require.NoError(t, err)
		assert.True(t, got.GetIsLeader())
		assert.Equal(t, "alone", got.GetPodName())
		assert.Equal(t, "alone", got.GetLeader())
		assert.Positive(t, got.GetActiveLeases())
		assert.True(t, got.GetStore().GetEmbedded())
	})
}

func waitersInOrder(t *testing.T, client leasev1.LeaseServiceClient) {
	first := acquire(t, client, "line", "holder", time.Minute)
	var mu sync.Mutex
	var order []string
	var wg sync.WaitGroup
	for i := range 5 {
		name := fmt.Sprintf("w%d", i)
		wg.Go(func() {
			got := acquire(t, client, "line", name, time.Minute)
			mu.Lock()
			order = append(order, name)
			mu.Unlock()
			_, err := client.Release(t.Context(), &leasev1.ReleaseRequest{Name: "line", Token: got.GetToken()})
			assert.NoError(t, err)
		})
		require.Eventually(t, func() bool {
			got, err := client.Get(t.Context(), &leasev1.GetRequest{Name: "line", IncludeQueue: true})
			return err == nil && got.GetLease().GetWaiters() == int32(i+1)
		}, 5*time.Second, 5*time.Millisecond)
	}
	_, err := client.Release(t.Context(), &leasev1.ReleaseRequest{Name: "line", Token: first.GetToken()})
	require.NoError(t, err)
	wg.Wait()
	assert.Equal(t, []string{"w0", "w1", "w2", "w3", "w4"}, order)
}

func listPages(t *testing.T, client leasev1.LeaseServiceClient) {
	var want []string
	for i := range 25 {
		name := fmt.Sprintf("list/%02d", i)
		acquire(t, client, name, fmt.Sprintf("h%d", i%2), time.Minute)
		want = append(want, name)
	}
	var got []string
	pages := 0
	for token := ""; ; {
		page, err := client.List(t.Context(), &leasev1.ListRequest{Prefix: "list/", PageSize: 10, PageToken: token})
		require.NoError(t, err)
		for _, l := range page.GetLeases() {
			got = append(got, l.GetName())
			assert.Positive(t, l.GetHolds()[0].GetExpiresIn().AsDuration())
		}
		pages++
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	assert.Equal(t, want, got)
	assert.Equal(t, 3, pages)
	page, err := client.List(t.Context(), &leasev1.ListRequest{Prefix: "list/", Holder: "h1"})
	require.NoError(t, err)
	assert.Len(t, page.GetLeases(), 12)
}

func TestRestartKeepsLeases(t *testing.T) {
	opts := leasetest.Options("alone")
	opts.DataDir = t.TempDir()
	first := leasetest.Start(t, opts)
	held := acquire(t, leasev1.NewLeaseServiceClient(leasetest.Dial(t, first.Address)), "kept", "one", time.Minute)
	first.Stop(t)

	second := leasetest.Start(t, opts)
	client := leasev1.NewLeaseServiceClient(leasetest.Dial(t, second.Address))
	got, err := client.Get(t.Context(), &leasev1.GetRequest{Name: "kept"})
	require.NoError(t, err)
	require.Len(t, got.GetLease().GetHolds(), 1)
	assert.Equal(t, held.GetToken(), got.GetLease().GetHolds()[0].GetToken())
	assert.NotNil(t, got.GetLease().GetGraceUntil(), "the new owner says that it serves out full TTLs")
	_, err = client.KeepAlive(t.Context(), &leasev1.KeepAliveRequest{Name: "kept", Token: held.GetToken()})
	require.NoError(t, err)
}

func TestFailover(t *testing.T) {
	etcd, _ := leasetest.Etcd(t)
	var replicas []*child
	for i := range 3 {
		replicas = append(replicas, spawn(t, fmt.Sprintf("r%d", i), etcd.Endpoint()))
	}
	leasetest.AwaitStatus(t, replicas[0].address, "three replicas share the shards", func(s *leasestatus.GetStatusResponse) bool {
		return len(s.GetReplicas()) == 3 && !slices.ContainsFunc(s.GetReplicas(), func(r *leasestatus.ReplicaStatus) bool { return r.GetShards() < 5 })
	})
	survivor := replicas[0]
	client := leasev1.NewLeaseServiceClient(leasetest.Dial(t, survivor.address))

	// A name that another replica serves: the calls are forwarded.
	var name string
	var victim *child
	for i := 0; victim == nil; i++ {
		name = fmt.Sprintf("name-%d", i)
		owner := ownerOf(t, client, name)
		for _, r := range replicas[1:] {
			if r.address == owner {
				victim = r
			}
		}
	}
	const ttl = 6 * time.Second
	held := acquire(t, client, name, "one", ttl)
	type answer struct {
		got *leasev1.AcquireResponse
		at  time.Time
		err error
	}
	waiting := make(chan answer, 1)
	go func() {
		got, err := client.Acquire(within(t, 30*time.Second), &leasev1.AcquireRequest{Name: name, Holder: "two", Wait: &leasev1.Wait{}})
		waiting <- answer{got, time.Now(), err}
	}()
	require.Eventually(t, func() bool {
		got, err := client.Get(t.Context(), &leasev1.GetRequest{Name: name})
		return err == nil && got.GetLease().GetWaiters() == 1
	}, 5*time.Second, 10*time.Millisecond)

	killed := time.Now()
	require.NoError(t, victim.Process.Kill())
	got, err := client.Get(within(t, 15*time.Second), &leasev1.GetRequest{Name: name})
	require.NoError(t, err)
	served := time.Since(killed)
	require.Len(t, got.GetLease().GetHolds(), 1)
	assert.Equal(t, held.GetToken(), got.GetLease().GetHolds()[0].GetToken(), "held by the same token")
	assert.Greater(t, got.GetLease().GetHolds()[0].GetExpiresIn().AsDuration(), ttl-time.Second, "with its full TTL")
	t.Logf("served again %s after the kill", served)

	second := <-waiting
	require.NoError(t, second.err, "the waiter waits on at the new owner")
	assert.Greater(t, second.got.GetToken(), held.GetToken())
	assert.GreaterOrEqual(t, second.at.Sub(killed), ttl, "and is not served before the full TTL passed")
}

func TestHandoverOnSigterm(t *testing.T) {
	etcd, _ := leasetest.Etcd(t)
	a, b := spawn(t, "a", etcd.Endpoint()), spawn(t, "b", etcd.Endpoint())
	both := func(s *leasestatus.GetStatusResponse) bool { return len(s.GetReplicas()) == 2 && s.GetShards() == 8 }
	leasetest.AwaitStatus(t, a.address, "two replicas share the shards", both)
	client := leasev1.NewLeaseServiceClient(leasetest.Dial(t, b.address))
	held := map[string]int64{}
	for i := range 40 {
		name := fmt.Sprintf("name-%d", i)
		held[name] = acquire(t, client, name, "one", time.Minute).GetToken()
	}
	require.NoError(t, a.Process.Signal(syscall.SIGTERM))
	for slowest, done := time.Duration(0), false; !done; {
		for name, token := range held {
			start := time.Now()
			_, err := client.KeepAlive(within(t, 10*time.Second), &leasev1.KeepAliveRequest{Name: name, Token: token})
			require.NoError(t, err)
			slowest = max(slowest, time.Since(start))
		}
		got, err := leasestatus.NewLeaseStatusServiceClient(leasetest.Dial(t, b.address)).GetStatus(t.Context(), &leasestatus.GetStatusRequest{})
		require.NoError(t, err)
		if done = got.GetShards() == 16 && len(got.GetReplicas()) == 1; done {
			assert.Less(t, slowest, time.Second, "no call waits long for the handover")
			assert.True(t, got.GetIsLeader())
		}
	}
	require.NoError(t, a.Wait(), "exit code 0")
}

func TestWatchResumes(t *testing.T) {
	replica := leasetest.Start(t, leasetest.Options("alone"))
	client := leasev1.NewLeaseServiceClient(leasetest.Dial(t, replica.Address))
	held := acquire(t, client, "w/1", "one", time.Minute)

	ctx, cancel := context.WithCancel(within(t, 30*time.Second))
	stream, err := client.Watch(ctx, &leasev1.WatchRequest{Target: &leasev1.WatchRequest_Prefix{Prefix: "w/"}})
	require.NoError(t, err)
	first, err := stream.Recv()
	require.NoError(t, err)
	require.NotNil(t, first.GetSnapshot())
	assert.True(t, first.GetSnapshot().GetComplete())
	require.Len(t, first.GetSnapshot().GetLeases(), 1)
	cancel()

	acquire(t, client, "other", "one", time.Minute)
	_, err = client.Release(t.Context(), &leasev1.ReleaseRequest{Name: "w/1", Token: held.GetToken()})
	require.NoError(t, err)
	expiring := acquire(t, client, "w/2", "one", time.Second)

	stream, err = client.Watch(within(t, 30*time.Second), &leasev1.WatchRequest{
		Target: &leasev1.WatchRequest_Prefix{Prefix: "w/"}, AfterRevision: first.GetRevision(),
	})
	require.NoError(t, err)
	var events []*leasev1.WatchEvent
	for len(events) < 3 {
		got, err := stream.Recv()
		require.NoError(t, err)
		require.Nil(t, got.GetSnapshot())
		events = append(events, got.GetChanges().GetEvents()...)
	}
	assert.Equal(t, leasev1.WatchEvent_KIND_ENDED, events[0].GetKind())
	assert.Equal(t, leasev1.EndReason_END_REASON_RELEASED, events[0].GetEndReason())
	assert.Equal(t, held.GetToken(), events[0].GetHold().GetToken())
	assert.Equal(t, leasev1.WatchEvent_KIND_GRANTED, events[1].GetKind())
	assert.Equal(t, expiring.GetToken(), events[1].GetHold().GetToken())
	assert.Equal(t, leasev1.WatchEvent_KIND_ENDED, events[2].GetKind())
	assert.Equal(t, leasev1.EndReason_END_REASON_EXPIRED, events[2].GetEndReason())
}

func TestQuotas(t *testing.T) {
	opts := leasetest.Options("alone")
	opts.Limits = engine.Limits{Leases: 3, WaitersPerName: 1}
	replica := leasetest.Start(t, opts)
	conn := leasetest.Dial(t, replica.Address)
	client := leasev1.NewLeaseServiceClient(conn)
	for i := range 3 {
		acquire(t, client, fmt.Sprintf("n%d", i), "one", time.Minute)
	}
	_, err := client.Acquire(t.Context(), &leasev1.AcquireRequest{Name: "n3"})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Equal(t, "QUOTA_EXCEEDED", reason(err))
	var failure *errdetails.QuotaFailure
	var retry *errdetails.RetryInfo
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.QuotaFailure:
			failure = d
		case *errdetails.RetryInfo:
			retry = d
		}
	}
	assert.Equal(t, "leases", failure.GetViolations()[0].GetSubject())
	assert.Positive(t, retry.GetRetryDelay().AsDuration())
	got, err := leasestatus.NewLeaseStatusServiceClient(conn).GetStatus(t.Context(), &leasestatus.GetStatusRequest{})
	require.NoError(t, err)
	i := slices.IndexFunc(got.GetQuotas(), func(q *leasestatus.QuotaStatus) bool { return q.GetName() == "leases" })
	assert.Equal(t, int64(3), got.GetQuotas()[i].GetLimit())
	assert.Equal(t, int64(3), got.GetQuotas()[i].GetUsed())
	assert.Equal(t, int64(1), got.GetQuotas()[i].GetRefused())

	waiting := make(chan error, 1)
	go func() {
		_, err := client.Acquire(within(t, 20*time.Second), &leasev1.AcquireRequest{Name: "n0", Wait: &leasev1.Wait{Timeout: durationpb.New(2 * time.Second)}})
		waiting <- err
	}()
	require.Eventually(t, func() bool {
		got, err := client.Get(t.Context(), &leasev1.GetRequest{Name: "n0"})
		return err == nil && got.GetLease().GetWaiters() == 1
	}, 5*time.Second, time.Millisecond, "one waits")
	_, err = client.Acquire(t.Context(), &leasev1.AcquireRequest{Name: "n0", Wait: &leasev1.Wait{}})
	assert.Equal(t, "QUOTA_EXCEEDED", reason(err), "one may wait, and no more")
	assert.Equal(t, "WAIT_TIMEOUT", reason(<-waiting), "who waits adds no lease")
}
