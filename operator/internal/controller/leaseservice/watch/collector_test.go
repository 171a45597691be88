package watch_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/holdfast-io/holdfast/operator/internal/controller/leaseservice/watch"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline bounds every wait of these tests. It is generous: it only ends a test that has failed already.
const deadline = 20 * time.Second

// replica is a lease service pod's status server, and says what the test makes it say.
type replica struct {
	leasestatus.UnimplementedLeaseStatusServiceServer
	t       *testing.T
	address string
	server  *grpc.Server
	served  chan struct{}

	mu       sync.Mutex
	status   *leasestatus.GetStatusResponse
	changed  chan struct{}
	watchers int
	refuse   error
}

func startReplica(t *testing.T, address string, said *leasestatus.GetStatusResponse) *replica {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	var listener net.Listener
	require.Eventually(t, func() (ok bool) { // a port that was just in use may be busy for a moment
		var err error
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		return err == nil
	}, deadline, 10*time.Millisecond)
	r := &replica{
		t: t, address: listener.Addr().String(), server: grpc.NewServer(), served: make(chan struct{}),
		status: said, changed: make(chan struct{}),
	}
	leasestatus.RegisterLeaseStatusServiceServer(r.server, r)
	go func() {
		defer close(r.served)
		if err := r.server.Serve(listener); err != nil {
			t.Errorf("serving the status: %v", err)
		}
	}()
	t.Cleanup(r.stop)
	return r
}

func (r *replica) stop() {
	r.server.Stop()
	<-r.served
}

func (r *replica) say(said *leasestatus.GetStatusResponse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = said
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *replica) watching() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watchers
}

func (r *replica) WatchStatus(_ *leasestatus.WatchStatusRequest, stream grpc.ServerStreamingServer[leasestatus.WatchStatusResponse]) error {
	r.mu.Lock()
	refuse := r.refuse
	r.watchers++
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.watchers--
		r.mu.Unlock()
	}()
	if refuse != nil {
		return refuse
	}
	for {
		r.mu.Lock()
		said, changed := r.status, r.changed
		r.mu.Unlock()
		if said != nil {
			if err := stream.Send(&leasestatus.WatchStatusResponse{Status: said}); err != nil {
				return err
			}
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

func says(leader bool, leases int64) *leasestatus.GetStatusResponse {
	return &leasestatus.GetStatusResponse{IsLeader: leader, ActiveLeases: leases, Ready: true, Version: "v1"}
}

// bench is a collector, the queue that it wakes, and the object that the test asks about.
type bench struct {
	t         *testing.T
	collector *watch.Collector
	queue     workqueue.TypedRateLimitingInterface[ctrl.Request]
	key       types.NamespacedName
	uid       types.UID
	targets   []watch.Target
}

func newBench(t *testing.T, options watch.Options, replicas ...*replica) *bench {
	t.Helper()
	if options.Grace == 0 {
		options.Grace = 300 * time.Millisecond
	}
	b := &bench{
		t:         t,
		collector: watch.New(options),
		queue:     workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]()),
		key:       types.NamespacedName{Namespace: "team-a", Name: "locks"},
		uid:       "object",
	}
	require.NoError(t, b.collector.Source().Start(t.Context(), b.queue))
	names := []string{"locks-0", "locks-1", "locks-2"}
	for i, r := range replicas {
		b.targets = append(b.targets, watch.Target{Pod: names[i], UID: types.UID(names[i] + "-uid"), Address: r.address})
	}
	t.Cleanup(func() {
		b.queue.ShutDown()
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		require.NoError(t, b.collector.Close(ctx))
	})
	return b
}

func (b *bench) observe() map[string]watch.Report {
	return b.collector.Observe(b.key, b.uid, b.targets)
}

// until observes whenever the collector wakes the controller, as the controller does, until the reports are as the
// test wants them. It returns how long that took.
func (b *bench) until(what string, ok func(map[string]watch.Report) bool) time.Duration {
	b.t.Helper()
	start := time.Now()
	stop := time.AfterFunc(deadline, b.queue.ShutDown)
	defer stop.Stop()
	for reports := b.observe(); !ok(reports); reports = b.observe() {
		key, shutdown := b.queue.Get()
		require.False(b.t, shutdown, "waiting for %s, last seen: %+v", what, reports)
		require.Equal(b.t, b.key, key.NamespacedName)
		b.queue.Done(key)
	}
	return time.Since(start)
}

func leads(pod string) func(map[string]watch.Report) bool {
	return func(reports map[string]watch.Report) bool { return watch.Leader(reports) == pod }
}

func states(want ...watch.State) func(map[string]watch.Report) bool {
	return func(reports map[string]watch.Report) bool {
		for i, pod := range []string{"locks-0", "locks-1", "locks-2"}[:len(want)] {
			if reports[pod].State != want[i] {
				return false
			}
		}
		return len(reports) == len(want)
	}
}

func TestHearsEveryPodAndTheChangeOfLeader(t *testing.T) {
	a, b, c := startReplica(t, "", says(true, 3)), startReplica(t, "", says(false, 4)), startReplica(t, "", says(false, 5))
	bench := newBench(t, watch.Options{}, a, b, c)
	require.True(t, states(watch.Pending, watch.Pending, watch.Pending)(bench.observe()), "asking does not wait")
	bench.until("all three", states(watch.Live, watch.Live, watch.Live))
	reports := bench.observe()
	require.Equal(t, "locks-0", watch.Leader(reports))
	require.EqualValues(t, 12, reports["locks-0"].ActiveLeases+reports["locks-1"].ActiveLeases+reports["locks-2"].ActiveLeases)
	require.Equal(t, "v1", reports["locks-2"].Version)

	for range 5 {
		// The new leader is elected before the old one has noticed anything.
		b.say(says(true, 4))
		took := bench.until("the new leader", leads("locks-1"))
		require.Less(t, took, time.Second)
		t.Logf("the change of leader was seen after %v", took)
		a.say(says(false, 3))
		c.say(says(false, 5))
		bench.until("the old one to notice", func(r map[string]watch.Report) bool { return !r["locks-0"].Leader })
		a, b = b, a
		bench.targets[0].Address, bench.targets[1].Address = a.address, b.address
		bench.targets[0].UID, bench.targets[1].UID = bench.targets[1].UID, bench.targets[0].UID
		bench.until("the exchanged pods", func(r map[string]watch.Report) bool {
			return states(watch.Live, watch.Live, watch.Live)(r) && leads("locks-0")(r)
		})
	}
}

func TestNumbersWaitForTheInterval(t *testing.T) {
	a := startReplica(t, "", says(true, 1))
	interval := 500 * time.Millisecond
	bench := newBench(t, watch.Options{CountInterval: interval}, a)
	bench.until("the first report", states(watch.Live))
	published := time.Now()
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { // a busy service
		defer close(done)
		for leases := int64(2); ; leases++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				a.say(says(true, leases))
			}
		}
	}()
	seen := bench.observe()["locks-0"].ActiveLeases
	for range 3 {
		bench.until("another number", func(r map[string]watch.Report) bool { return r["locks-0"].ActiveLeases != seen })
		require.GreaterOrEqual(t, time.Since(published), interval-50*time.Millisecond, "the number was published early")
		published, seen = time.Now(), bench.observe()["locks-0"].ActiveLeases
	}
	close(stop)
	<-done
	a.say(says(true, -1))
	bench.until("the last number, which is never negative", func(r map[string]watch.Report) bool { return r["locks-0"].ActiveLeases == 0 })
}

func TestPodThatFallsSilentIsLostAndComesBack(t *testing.T) {
	a, b := startReplica(t, "", says(true, 3)), startReplica(t, "", says(false, 0))
	bench := newBench(t, watch.Options{}, a, b)
	bench.until("both", states(watch.Live, watch.Live))
	a.stop()
	bench.until("the end of the stream", states(watch.Broken, watch.Live))
	require.Equal(t, "locks-0", watch.Leader(bench.observe()), "its last word is fresh")
	bench.until("the end of the grace", states(watch.Lost, watch.Live))
	require.Empty(t, watch.Leader(bench.observe()))
	require.Equal(t, "it does not answer the operator on port "+port(t, a.address), bench.observe()["locks-0"].Problem)

	startReplica(t, a.address, says(true, 3))
	took := bench.until("its return", leads("locks-0"))
	require.Less(t, took, 2*time.Second)
	t.Logf("the restarted pod was heard after %v", took)
}

func TestPodThatWasNeverHeardIsLost(t *testing.T) {
	mute := startReplica(t, "", nil) // takes the stream and says nothing
	old := startReplica(t, "", nil)
	old.refuse = status.Error(codes.Unimplemented, "unknown method WatchStatus")
	strict := startReplica(t, "", nil)
	strict.refuse = status.Error(codes.PermissionDenied, "no")
	bench := newBench(t, watch.Options{Answer: 100 * time.Millisecond}, mute, old, strict)
	bench.until("the end of the grace", func(r map[string]watch.Report) bool {
		return states(watch.Lost, watch.Lost, watch.Lost)(r) && r["locks-0"].Problem == "it does not answer the operator on port "+port(t, mute.address)
	})
	reports := bench.observe()
	require.Equal(t, "its image has no status stream (dist.system.lease.LeaseStatusService/WatchStatus)", reports["locks-1"].Problem)
	require.Equal(t, "it refuses to tell the operator its status", reports["locks-2"].Problem)
	mute.say(says(true, 0))
	bench.until("its first word", leads("locks-0"))
}

func TestConnectionsEndWithTheirPods(t *testing.T) {
	a, b := startReplica(t, "", says(true, 1)), startReplica(t, "", says(false, 1))
	bench := newBench(t, watch.Options{}, a, b)
	bench.until("both", states(watch.Live, watch.Live))
	require.Equal(t, 1, a.watching(), "one stream a pod, however often it is asked about")

	bench.targets = bench.targets[1:]
	require.NotContains(t, bench.observe(), "locks-0", "a pod that is gone is forgotten at once")
	require.Eventually(t, func() bool { return a.watching() == 0 }, deadline, 5*time.Millisecond)

	bench.collector.Forget(bench.key, "another object")
	require.Equal(t, watch.Live, bench.observe()["locks-1"].State, "an object of the same name that was deleted before")
	bench.collector.Forget(bench.key, bench.uid)
	require.Eventually(t, func() bool { return b.watching() == 0 }, deadline, 5*time.Millisecond)
}

// A pod, or an object, that was made anew under the same name inherits nothing.
func TestNewUIDStartsAnew(t *testing.T) {
	a := startReplica(t, "", says(true, 1))
	bench := newBench(t, watch.Options{}, a)
	bench.until("the pod", leads("locks-0"))
	a.say(nil)
	bench.targets[0].UID = "another pod"
	require.Equal(t, watch.Report{State: watch.Pending}, bench.observe()["locks-0"])
	a.say(says(true, 1))
	bench.until("the new pod", leads("locks-0"))
	a.say(nil)
	bench.uid = "another object"
	require.Equal(t, watch.Report{State: watch.Pending}, bench.observe()["locks-0"])
}

func TestClosedCollectorListensToNobody(t *testing.T) {
	a := startReplica(t, "", says(true, 1))
	bench := newBench(t, watch.Options{}, a)
	bench.until("the pod", states(watch.Live))
	require.NoError(t, bench.collector.Close(t.Context()))
	require.Eventually(t, func() bool { return a.watching() == 0 }, deadline, 5*time.Millisecond)
	require.Empty(t, bench.observe())
	require.NoError(t, bench.collector.Close(t.Context()), "closing again does no harm")
}

// A pod on a node that fell off the network answers nothing, not even with a reset: only the keepalive notices.
func TestSilentNetworkIsNoticed(t *testing.T) {
	t.Parallel() // it takes 13 s, the least that gRPC's keepalive allows
	a := startReplica(t, "", says(true, 1))
	cut := make(chan struct{})
	bench := newBench(t, watch.Options{
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			select {
			case <-cut:
				<-ctx.Done()
				return nil, ctx.Err()
			default:
			}
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			return &cuttable{Conn: conn, cut: cut}, err
		},
	}, a)
	bench.until("the pod", leads("locks-0"))
	close(cut)
	took := bench.until("the keepalive", states(watch.Lost))
	require.Less(t, took, 15*time.Second)
	t.Logf("the cut was noticed after %v", took)
}

// cuttable is a connection that stays open and carries nothing once cut is closed.
type cuttable struct {
	net.Conn
	cut chan struct{}
}

func (c *cuttable) Write(p []byte) (int, error) {
	select {
	case <-c.cut:
		return len(p), nil
	default:
		return c.Conn.Write(p)
	}
}

func port(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	return port
}
