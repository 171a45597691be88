//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// statusLag is how long after an election the LeaseService's status may still name the old leader.
const statusLag = time.Second

func (j *mainJob) killLeader(t *testing.T) {
	j.hold(t, "held-over-failover")
	old := j.leaseService(t).Status.Leader
	require.NotEmpty(t, old)

	survivors := map[string]*grpc.ClientConn{}
	var leader corev1.Pod
	for _, pod := range j.pods(t) {
		if pod.Name == old {
			leader = pod
			continue
		}
		address := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(v1alpha1.LeaseServicePort))
		survivors[pod.Name] = dialLeases(t, j.cluster, address, clientTLS(t, j.cluster, j.key)).connection
	}
	require.Len(t, survivors, 2, "status.leader %q is none of the pods", old)

	seen := j.watchLeader(t)
	require.NoError(t, j.cluster.client.Delete(t.Context(), &leader, client.GracePeriodSeconds(0)))
	elected, at := newLeader(t, survivors, old)
	reported := seen(t, elected)
	t.Logf("%s was elected; the status named it %s after a client could see that", elected, reported.Sub(at).Round(time.Millisecond))
	require.LessOrEqual(t, reported.Sub(at), statusLag)

	j.stillHeld(t, "held-over-failover")
	eventually(t, time.Minute, "the killed pod is replaced", func(context.Context) string { return notReady(j.leaseService(t)) })
}

// newLeader asks the surviving pods until one of them leads, and returns its name and when that was seen.
func newLeader(t *testing.T, survivors map[string]*grpc.ClientConn, old string) (string, time.Time) {
	t.Helper()
	var elected string
	var at time.Time
	eventually(t, 30*time.Second, "another pod is elected", func(ctx context.Context) string {
		for name, connection := range survivors {
			leader, err := leaderOf(ctx, connection)
			if err == nil && leader != "" && leader != old {
				elected, at = leader, time.Now()
				return ""
			}
			if err != nil {
				return fmt.Sprintf("%s: %v", name, err)
			}
		}
		return "all still name " + old
	})
	return elected, at
}

// watchLeader watches the LeaseService's status from now on. The function it returns waits until the status names
// a leader, and returns when that was.
func (j *mainJob) watchLeader(t *testing.T) func(t *testing.T, leader string) time.Time {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	watcher, err := j.cluster.client.Watch(ctx, &v1alpha1.LeaseServiceList{}, client.InNamespace(j.key.Namespace))
	require.NoError(t, err)
	t.Cleanup(watcher.Stop)
	type change struct {
		leader string
		at     time.Time
	}
	changes := make(chan change, 1000)
	go func() {
		defer close(changes)
		for event := range watcher.ResultChan() {
			if service, ok := event.Object.(*v1alpha1.LeaseService); ok && service.Name == j.key.Name {
				changes <- change{service.Status.Leader, time.Now()}
			}
		}
	}()
	return func(t *testing.T, leader string) time.Time {
		t.Helper()
		deadline := time.After(30 * time.Second)
		for {
			select {
			case c, ok := <-changes:
				require.True(t, ok, "the watch ended before the status named %s", leader)
				if c.leader == leader {
					return c.at
				}
			case <-deadline:
				require.FailNow(t, "the status never named the new leader", leader)
			}
		}
	}
}
