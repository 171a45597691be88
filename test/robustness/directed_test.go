package robustness_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
	"github.com/holdfast-io/holdfast/test/robustness/history"
	"github.com/holdfast-io/holdfast/test/robustness/lab"
	"github.com/holdfast-io/holdfast/test/robustness/load"
)

// TestDirected runs, on one cluster, what a random schedule is unlikely to hit.
func TestDirected(t *testing.T) {
	besideOthers(t)
	c := startCluster(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *lab.Cluster)
	}{
		{"requests that arrive two TTLs late are refused by their token", lateRequests},
		{"a paused holder's write is refused", pausedHolder},
		{"a call under way to an owner that is paused is answered by the next", pausedOwner},
		{"names lead nowhere else", escapes},
		{"a watch that was away for a compaction begins anew", compactedWatch},
		{"many clients die at once", massDeath},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
		if t.Failed() { // the others would say no more about the service if it is the cluster that is broken
			require.NoError(t, c.Repair(t.Context()))
		}
		require.NoError(t, c.Err())
	}
}

func service(t *testing.T, c *lab.Cluster, address string) leasev1.LeaseServiceClient {
	t.Helper()
	conn, err := lab.Dial(address, c.TLS())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return leasev1.NewLeaseServiceClient(conn)
}

// acquire waits for a lease.
func acquire(t *testing.T, s leasev1.LeaseServiceClient, name string) *leasev1.AcquireResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got, err := s.Acquire(ctx, &leasev1.AcquireRequest{
		Name: name, RequestId: lease.NewRequestID(), Ttl: durationpb.New(load.TTL), Wait: &leasev1.Wait{},
	})
	require.NoError(t, err)
	return got
}

// What the first holder sends is held up on its way until somebody else has the lease: it must neither renew nor end that.
func lateRequests(t *testing.T, c *lab.Cluster) {
	slow, fast := c.Replicas[0], c.Replicas[1]
	const name = "late/requests"
	late, prompt := service(t, c, slow.Clients.Address()), service(t, c, fast.Clients.Address())
	first := acquire(t, late, name)
	require.NoError(t, slow.Clients.Delay(lab.Upstream, 2*load.TTL.Milliseconds(), 0))
	defer func() { require.NoError(t, slow.Clients.Heal()) }()
	var wg sync.WaitGroup
	var keepErr, releaseErr error
	var released *leasev1.ReleaseResponse
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	sent := time.Now()
	wg.Go(func() {
		_, keepErr = late.KeepAlive(ctx, &leasev1.KeepAliveRequest{Name: name, Token: first.GetToken()})
	})
	wg.Go(func() {
		released, releaseErr = late.Release(ctx, &leasev1.ReleaseRequest{Name: name, Token: first.GetToken()})
	})
	second := acquire(t, prompt, name)
	require.Greater(t, second.GetToken(), first.GetToken())
	require.Less(t, time.Since(sent), 2*load.TTL, "the second holder has it before the late requests arrive")
	stop := keep(t, prompt, name, second.GetToken())
	wg.Wait()
	assert.Equal(t, codes.NotFound, status.Code(keepErr), "the late keepalive got %v", keepErr)
	require.NoError(t, releaseErr)
	assert.False(t, released.GetReleased(), "the late release ends nothing")
	stop()
	checked, err := prompt.CheckToken(ctx, &leasev1.CheckTokenRequest{Name: name, Token: second.GetToken()})
	require.NoError(t, err)
	assert.Equal(t, leasev1.CheckTokenResponse_VERDICT_CURRENT, checked.GetVerdict())
	checked, err = prompt.CheckToken(ctx, &leasev1.CheckTokenRequest{Name: name, Token: first.GetToken()})
	require.NoError(t, err)
	assert.Equal(t, leasev1.CheckTokenResponse_VERDICT_STALE, checked.GetVerdict())
}

// keep renews a hold until it is told to stop.
func keep(t *testing.T, s leasev1.LeaseServiceClient, name string, token int64) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for lab.Sleep(ctx, load.TTL/5) {
			_, err := s.KeepAlive(context.WithoutCancel(ctx), &leasev1.KeepAliveRequest{Name: name, Token: token})
			assert.NoError(t, err)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// A process that holds leases is stopped for longer than their TTL, in the middle of whatever it does. Others get the leases meanwhile. When
// it goes on, the register refuses it.
func pausedHolder(t *testing.T, c *lab.Cluster) {
	w := &world{Cluster: c, load: newLoad(c, 1<<32)}
	w.load.Think = 400 * time.Millisecond // most holders are between reading and writing when they are stopped
	require.NoError(t, w.startClients(t.Context(), true))
	fenced := 0
	for range 3 {
		lab.Sleep(t.Context(), 300*time.Millisecond)
		require.NoError(t, w.child.Signal(syscall.SIGSTOP))
		lab.Sleep(t.Context(), 2*load.TTL)
		require.NoError(t, w.child.Signal(syscall.SIGCONT))
	}
	lab.Sleep(t.Context(), 300*time.Millisecond)
	require.NoError(t, w.stopClients())
	h := w.load.Recorder.History()
	for i := range h.Ops {
		if h.Ops[i].Kind == history.Fenced && h.Ops[i].Client >= childClients {
			fenced++
		}
	}
	t.Logf("%d operations, the register refused the paused process %d times", len(h.Ops), fenced)
	assert.Positive(t, fenced, "the paused process was never fenced: the test shows nothing")
	require.NoError(t, history.Check(h))
}

// A call is passed on to an owner that is stopped before it can answer. Its session ends, and the call must be made again at whoever serves
// the name by then; the client sees nothing but a longer time.
func pausedOwner(t *testing.T, c *lab.Cluster) {
	owner, other := c.Replicas[1], c.Replicas[0]
	s := service(t, c, other.Clients.Address())
	name := ""
	for i := 0; name == ""; i++ {
		require.Less(t, i, 1000, "the replica owns no name")
		candidate := fmt.Sprintf("paused/%d", i)
		var header metadata.MD
		_, err := s.Get(t.Context(), &leasev1.GetRequest{Name: candidate}, grpc.Header(&header))
		require.NoError(t, err)
		if hint := header.Get("holdfast-owner"); len(hint) > 0 && hint[0] == owner.Peers.Address() {
			name = candidate
		}
	}
	owner.Signal(syscall.SIGSTOP)
	granted := acquire(t, s, name)
	_, err := s.KeepAlive(t.Context(), &leasev1.KeepAliveRequest{Name: name, Token: granted.GetToken()})
	require.NoError(t, err)
	owner.Signal(syscall.SIGCONT)
	require.NoError(t, c.AwaitServing(t.Context()))
}

// Names are data: none of them leads out of the place where the service keeps its leases, or to more than one of them.
func escapes(t *testing.T, c *lab.Cluster) {
	s := service(t, c, c.Replicas[0].Clients.Address())
	for _, name := range []string{
		"", "..", "../meta", "a/../b", "/", "//", "/a", "a/", "a//b", ".", "a/./b", "a#0", "#", "\x00", "a\x00", "a b", "é", string(make([]byte, 513)),
	} {
		_, err := s.Acquire(t.Context(), &leasev1.AcquireRequest{Name: name})
		assert.Equal(t, codes.InvalidArgument, status.Code(err), "acquire %q: %v", name, err)
		_, err = s.KeepAlive(t.Context(), &leasev1.KeepAliveRequest{Name: name, Token: 1})
		assert.Equal(t, codes.InvalidArgument, status.Code(err), "keep %q alive: %v", name, err)
		_, err = s.Release(t.Context(), &leasev1.ReleaseRequest{Name: name, Token: 1})
		assert.Equal(t, codes.InvalidArgument, status.Code(err), "release %q: %v", name, err)
		_, err = s.Get(t.Context(), &leasev1.GetRequest{Name: name})
		assert.Equal(t, codes.InvalidArgument, status.Code(err), "get %q: %v", name, err)
	}
	// A token of another lease is that of no hold here.
	held := acquire(t, s, "escape/mine")
	_, err := s.KeepAlive(t.Context(), &leasev1.KeepAliveRequest{Name: "escape/other", Token: held.GetToken()})
	assert.Equal(t, codes.NotFound, status.Code(err))
	released, err := s.Release(t.Context(), &leasev1.ReleaseRequest{Name: "escape/other", Token: held.GetToken()})
	require.NoError(t, err)
	assert.False(t, released.GetReleased())
}

// A watcher is away while clients work and everything that they did is compacted. It gets a snapshot that says so, and then follows as before.
func compactedWatch(t *testing.T, c *lab.Cluster) {
	w := &world{Cluster: c, load: newLoad(c, 3<<32)}
	watcher := w.load.NewWatcher()
	for away := range 3 {
		watching, leave := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() {
			defer close(left)
			watcher.Run(watching)
		}()
		w.load.First = 1000 * away
		before := watcher.Revision()
		require.NoError(t, w.startClients(t.Context(), false))
		require.Eventually(t, func() bool { return watcher.Revision() > before }, 10*time.Second, 10*time.Millisecond, "it follows")
		lab.Sleep(t.Context(), 500*time.Millisecond)
		if away < 2 {
			leave()
			<-left
			lab.Sleep(t.Context(), 500*time.Millisecond)
		}
		require.NoError(t, w.stopClients())
		require.NoError(t, w.load.Probe(t.Context()))
		require.NoError(t, c.Compact(t.Context()))
		if away == 2 {
			require.NoError(t, watcher.Await(t.Context(), w.load.Recorder.History()))
		}
		leave()
		<-left
	}
	assert.Equal(t, 2, watcher.Relists())
	require.NoError(t, history.Check(w.load.Recorder.History()))
}

// massDeath kills a process that holds many leases by sessions, and looks at how others fare, and how soon the leases are free.
func massDeath(t *testing.T, c *lab.Cluster) {
	holds, ttl := 1000, 3*time.Second
	if *long {
		holds, ttl = 10_000, 10*time.Second
	}
	w := &world{Cluster: c, load: newLoad(c, 2<<32)}
	w.load.Raw, w.load.Leases, w.load.Sessions = 4, 0, 0
	w.load.Candidates = 0
	var direct []string // past the links, which have no part in this
	for _, r := range c.Replicas {
		direct = append(direct, r.Direct)
	}
	crowd, err := load.StartCrowd(direct, c.TLS(), "crowd/", holds, ttl)
	require.NoError(t, err)
	ctx, cancel := c.While(t.Context())
	defer cancel()
	require.NoError(t, crowd.AwaitReady(ctx))
	require.NoError(t, w.startClients(t.Context(), false))
	lab.Sleep(t.Context(), 3*time.Second)
	died := history.Now()
	require.NoError(t, crowd.Kill())
	s := service(t, c, c.Replicas[0].Clients.Address())
	require.Eventually(t, func() bool {
		got, err := s.List(t.Context(), &leasev1.ListRequest{Prefix: "crowd/", PageSize: 1})
		return err == nil && len(got.GetLeases()) == 0
	}, ttl+10*time.Second, 50*time.Millisecond, "all leases of the dead are free")
	free := time.Duration(history.Now() - died)
	lab.Sleep(t.Context(), 500*time.Millisecond)
	require.NoError(t, w.stopClients())
	h := w.load.Recorder.History()
	require.NoError(t, history.Check(h))
	before := p99(h, 0, died)
	after := p99(h, died, died+int64(free))
	t.Logf("%d holds were free %s after their TTL; the others' p99 was %s before and %s while that lasted", holds, free-ttl, before, after)
	assert.Less(t, free, ttl+5*time.Second)
	assert.Less(t, after, max(3*before, 200*time.Millisecond))
}

// p99 is that of the grants and keepalives in a span of time.
func p99(h *history.History, from, to int64) time.Duration {
	var took []time.Duration
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Call >= from && o.Call < to && (o.Kind == history.Kept || o.Kind == history.Released) {
			took = append(took, time.Duration(o.Return-o.Call))
		}
	}
	if len(took) == 0 {
		panic(fmt.Sprintf("no calls between %d and %d", from, to))
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}
