//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/operator/lease"
)

const (
	loadSessions = 8
	loadHeld     = 10 // leases that each session keeps all the time
	loadTTL      = 10 * time.Second
	// sessionTTL is how long a replica's session with etcd outlives it, as the operator runs them.
	sessionTTL = 5 * time.Second
	// slack is what a busy machine may add to what is promised for an idle one.
	slack = 15 * time.Second
)

// TestE2ELeaseLoad updates and kills replicas of a lease service that sessions work with all the while.
func TestE2ELeaseLoad(t *testing.T) {
	env := loadEnvironment(t)
	j := &mainJob{test: t, env: env, held: map[string]int64{}, cluster: startCluster(t, env, "leaseload")}
	j.stack = newStack(t, env, j.cluster.Kubeconfig())
	bringUpReplicas(t, j, 3)
	load := startLoad(t, j)
	for _, step := range []struct {
		name string
		run  func(t *testing.T, j *mainJob, load *leaseLoad)
	}{
		{"a rolling update loses no lease", rollUnderLoad},
		{"a replica dies and its names are served again", killUnderLoad},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, j, load) }) {
			j.describe(t)
			t.FailNow()
		}
	}
	load.stop(t)
}

// bringUpReplicas runs pulumi up for one tenant with so many replicas.
func bringUpReplicas(t *testing.T, j *mainJob, replicas int) {
	tenants, ok := j.stack.config["holdfast:tenants"].([]any)
	require.True(t, ok, "Pulumi.dev.yaml has no holdfast:tenants")
	first, ok := tenants[0].(map[string]any)
	require.True(t, ok)
	j.stack.setTenants(t, tenant(first).with(tenant{"replicas": replicas}))
	j.stack.up().must(t)
	outputs, ok := j.stack.outputs(t)["tenants"].(map[string]any)[fmt.Sprint(first["name"])].(map[string]any)
	require.True(t, ok, "the stack has no output for the tenant")
	j.key = types.NamespacedName{Namespace: fmt.Sprint(outputs["namespace"]), Name: fmt.Sprint(outputs["name"])}
	require.Empty(t, notReady(j.leaseService(t)))
}

// rollUnderLoad changes the image of the running service.
func rollUnderLoad(t *testing.T, j *mainJob, load *leaseLoad) {
	image := nextLeaseImage(t, j.env, j.cluster)
	load.begin(t)
	service := j.leaseService(t)
	before := service.DeepCopy()
	service.Spec.Image = image
	require.NoError(t, j.cluster.client.Patch(t.Context(), service, client.MergeFrom(before)))
	began := time.Now()
	eventually(t, 5*time.Minute, "all replicas run the new image", func(context.Context) string {
		if why := notReady(j.leaseService(t)); why != "" {
			return why
		}
		for _, pod := range j.pods(t) {
			if pod.Spec.Containers[0].Image != image {
				return pod.Name + " has the old image"
			}
		}
		return ""
	})
	waits := load.end(t)
	t.Logf("three replicas were replaced in %s under %d acquires; waits: %s", time.Since(began).Round(100*time.Millisecond), len(waits), describeWaits(waits))
	require.Less(t, waits[len(waits)-1], time.Second+slack, "an acquire waited")
}

// killUnderLoad kills the process of a replica, and measures until each name of a good sample is granted again.
func killUnderLoad(t *testing.T, j *mainJob, load *leaseLoad) {
	load.begin(t)
	victim := j.pods(t)[1]
	pid := leaseProcess(t, victim)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	killed := time.Now()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var slowest time.Duration
	for i := range 128 { // twice as many as there are shards
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), sessionTTL+time.Second+2*slack)
			defer cancel()
			held, err := load.sessions[i%loadSessions].Acquire(ctx, fmt.Sprintf("after-the-kill/%d", i), lease.WithTTL(loadTTL))
			if !assert.NoError(t, err) {
				return
			}
			mu.Lock()
			slowest = max(slowest, time.Since(killed))
			mu.Unlock()
			assert.NoError(t, held.Release(ctx))
		})
	}
	wg.Wait()
	waits := load.end(t)
	t.Logf("%s was killed; every name was served again after %s (the session's TTL is %s); waits of %d acquires: %s",
		victim.Name, slowest.Round(time.Millisecond), sessionTTL, len(waits), describeWaits(waits))
	require.Less(t, slowest, sessionTTL+time.Second+slack)
	eventually(t, 2*time.Minute, "the killed replica is back", func(context.Context) string { return notReady(j.leaseService(t)) })
}

// leaseProcess finds the process of a pod's lease service: the cluster's containers are processes of this machine, and the
// names of their cgroups have the pods' UIDs. Other clusters have pods of the same name.
func leaseProcess(t *testing.T, pod corev1.Pod) int {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cgroup")
	require.NoError(t, err)
	for _, file := range found {
		cgroup, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(cgroup), string(pod.UID)) {
			continue // it may have ended
		}
		folder := filepath.Dir(file)
		if name, err := os.ReadFile(filepath.Join(folder, "comm")); err != nil || strings.TrimSpace(string(name)) != "lease-service" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(folder))
		require.NoError(t, err)
		return pid
	}
	require.FailNow(t, "no process of the pod was found", pod.Name)
	return 0
}

// leaseLoad is clients of a lease service: sessions that keep leases, and workers that acquire and release all the time.
type leaseLoad struct {
	client   *lease.Client
	sessions []*lease.Session
	kept     []*lease.Lease
	quit     context.CancelFunc
	wg       sync.WaitGroup

	mu    sync.Mutex
	waits []time.Duration
	errs  []error
}

func startLoad(t *testing.T, j *mainJob) *leaseLoad {
	t.Helper()
	dialed, err := lease.Dial(j.leaseService(t).Status.Endpoint, grpc.WithTransportCredentials(clientTLS(t, j.cluster, j.key)),
		grpc.WithContextDialer(j.cluster.DialTarget), grpc.WithResolvers(clusterNames{resolver.Get("passthrough")}))
	require.NoError(t, err)
	ctx, quit := context.WithCancel(context.Background())
	load := &leaseLoad{client: dialed, quit: quit}
	t.Cleanup(func() {
		quit()
		load.wg.Wait()
		_ = dialed.Close()
	})
	opening, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range loadSessions {
		session, err := dialed.NewSession(opening, lease.WithTTL(loadTTL), lease.WithHolder(fmt.Sprint("session-", i)))
		require.NoError(t, err)
		load.sessions = append(load.sessions, session)
		for n := range loadHeld {
			held, err := session.Acquire(opening, fmt.Sprintf("kept/%d/%d", i, n))
			require.NoError(t, err)
			load.kept = append(load.kept, held)
		}
		load.wg.Go(func() { load.work(ctx, session, i) })
	}
	return load
}

// clusterNames leaves names to the dialer, which asks the cluster's DNS: the client learns the replicas' names from the service.
type clusterNames struct{ resolver.Builder }

// Scheme implements resolver.Builder.
func (clusterNames) Scheme() string { return "dns" }

// work acquires and releases one name after another, some of which others want too.
func (l *leaseLoad) work(ctx context.Context, session *lease.Session, worker int) {
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("cycle/%d/%d", worker, n%100)
		began := time.Now()
		held, err := session.Acquire(ctx, name)
		waited := time.Since(began)
		if err == nil {
			err = held.Release(ctx)
		}
		l.mu.Lock()
		if err != nil && ctx.Err() == nil {
			l.errs = append(l.errs, fmt.Errorf("%s: %w", name, err))
		}
		l.waits = append(l.waits, waited)
		l.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond): // a steady load, not all that the machine can do
		}
	}
}

// begin starts a measurement: nothing has gone wrong so far.
func (l *leaseLoad) begin(t *testing.T) {
	t.Helper()
	l.take(t)
}

// end returns how long the acquires since begin took, sorted, and sees that nothing was lost.
func (l *leaseLoad) end(t *testing.T) []time.Duration {
	t.Helper()
	waits := l.take(t)
	require.NotEmpty(t, waits)
	slices.Sort(waits)
	return waits
}

func (l *leaseLoad) take(t *testing.T) []time.Duration {
	t.Helper()
	l.mu.Lock()
	waits, errs := l.waits, l.errs
	l.waits, l.errs = nil, nil
	l.mu.Unlock()
	require.NoError(t, errors.Join(errs...))
	for _, held := range l.kept {
		require.NoError(t, held.Err(), "%s was lost", held.Name())
	}
	return waits
}

// stop releases everything, and sees that all that was kept was still there to release.
func (l *leaseLoad) stop(t *testing.T) {
	t.Helper()
	l.quit()
	l.wg.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, held := range l.kept {
		require.NoError(t, held.Release(ctx), held.Name())
	}
	for _, session := range l.sessions {
		require.NoError(t, session.Close(ctx))
	}
}

func describeWaits(waits []time.Duration) string {
	at := func(q float64) time.Duration {
		return waits[int(q*float64(len(waits)-1))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("p50 %s, p99 %s, longest %s", at(0.5), at(0.99), at(1))
}
