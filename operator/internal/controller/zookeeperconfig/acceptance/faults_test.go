package acceptance_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/conditions"
	zktest "github.com/holdfast-io/holdfast/test/zookeeper"
)

// metric sums a metric over its labels.
func (f *fixture) metric(name string) int { return f.sum(name, nil) }

// count is the number of requests of an operation that this operator made.
func (f *fixture) count(op string) int {
	return f.sum("holdfast_zookeeper_request_duration_seconds", map[string]string{"op": op})
}

func (f *fixture) sum(name string, labels map[string]string) int {
	f.Helper()
	families, err := f.metrics.Gather()
	require.NoError(f, err)
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			matches := true
			for _, label := range metric.GetLabel() {
				want, asked := labels[label.GetName()]
				matches = matches && (!asked || want == label.GetValue())
			}
			if matches {
				sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	return int(sum)
}

func name(i int) string { return fmt.Sprintf("n%d", i) }

// many creates so many objects, and waits until they are ready.
func (f *fixture) many(count int) {
	f.Helper()
	for i := range count {
		f.create(f.object(name(i), "/many/"+name(i), "declared"))
	}
	for i := range count {
		f.ready(name(i))
	}
}

// In an outage every object is Unknown, and says so once; afterwards all go on, and nothing was deleted or written twice.
func TestOutage(t *testing.T) {
	ensemble := zktest.Start(t, 1)
	f := start(t, ensemble.ConnectString())
	const count = 20
	f.many(count)
	made := f.znode("/many/" + name(0))
	passes := f.passes()
	ensemble.Server(0).Kill()
	for i := range count {
		obj := f.not(name(i), v1alpha1.ReasonEnsembleUnavailable)
		require.Equal(t, metav1.ConditionUnknown, conditions.Get(obj, v1alpha1.ConditionReady).Status)
		require.Equal(t, metav1.ConditionUnknown, conditions.Get(obj, v1alpha1.ConditionSynced).Status)
		require.Equal(t, v1alpha1.ZnodeError, obj.Status.State)
		require.NotNil(t, obj.Status.Znode, "what it has stays on record")
	}
	f.create(f.object("new", "/new", "v"))
	f.edit(name(1), text("edited in the outage"))
	f.not("new", v1alpha1.ReasonEnsembleUnavailable)
	ensemble.Server(0).Restart(t)
	for i := range count {
		f.ready(name(i))
	}
	f.ready("new")
	f.holds("/new", "v")
	f.holds("/many/"+name(1), "edited in the outage")
	require.Equal(t, made.Mzxid, f.znode("/many/"+name(0)).Mzxid)
	require.Equal(t, 1, f.metric("holdfast_zookeeper_breaker_openings_total"))
	require.Zero(t, f.metric("holdfast_zookeeper_breaker_open"))
	require.Equal(t, 1, f.logged("circuit breaker opened"))
	require.Equal(t, 1, f.logged("circuit breaker closed"))
	require.Zero(t, f.count("delete"))
	require.LessOrEqual(t, f.events(name(0))[v1alpha1.ReasonEnsembleUnavailable], 1)
	// Each object: one pass at the opening, one at the closing, and those that its own writes wake.
	f.bounded(passes, 8*count)
}

// logged is the number of times that the operator has logged a message.
func (f *fixture) logged(message string) int {
	return strings.Count(f.logs.String(), fmt.Sprintf(`"msg":%q`, message))
}

// passes is the number of passes that the operator has made: each is logged.
func (f *fixture) passes() int { return f.logged("pass") }

// bounded asserts that a fault has caused no more than so many passes.
func (f *fixture) bounded(before, most int) {
	f.Helper()
	made := f.passes() - before
	f.Logf("%d passes", made)
	require.LessOrEqual(f, made, most, "passes from the fault to its end")
}

// A session that expires takes its watches with it: what happened meanwhile is put right, and later drift is seen.
func TestExpiry(t *testing.T) {
	proxy := zktest.NewProxy(t, shared.Server(0).Address())
	f := start(t, shared.ConnectString())
	f.stop()
	f.hand = handAt(t, f.connect, operatorCredential)
	through := targetAt(t, proxy.Address()+f.connect[len(shared.ConnectString()):], operatorCredential)
	f.run(func(o *operatorOptions) { o.Settings.Default = fixed(through) })
	const count = 10
	f.many(count)
	sessions, passes := shared.Server(0).Sessions(), f.passes()
	proxy.Cut()
	f.eventually("the session expires", func() bool { return shared.Server(0).Sessions() < sessions })
	_, err := f.hand.Set(f.ctx, "", "/many/"+name(0), []byte("in the gap"), 0)
	require.NoError(t, err)
	require.NoError(t, f.hand.Delete(f.ctx, "", "/many/"+name(1), 0))
	proxy.Restore()
	f.holds("/many/"+name(0), "declared")
	f.holds("/many/"+name(1), "declared")
	for i := range count {
		f.ready(name(i))
	}
	f.bounded(passes, 8*count)
	for i := range count {
		_, err := f.hand.Set(f.ctx, "", "/many/"+name(i), []byte("later"), -1)
		require.NoError(t, err)
		f.holds("/many/"+name(i), "declared")
	}
	require.LessOrEqual(t, f.metric("holdfast_zookeeper_breaker_openings_total"), 1)
	require.Zero(t, f.count("delete"))
}

// Three servers: the leader is killed, then the quorum is lost and regained.
func TestQuorum(t *testing.T) {
	ensemble := zktest.Start(t, 3)
	f := start(t, ensemble.ConnectString())
	const count = 10
	f.many(count)
	passes, leader := f.passes(), ensemble.Leader()
	leader.Kill()
	f.edit(name(0), text("without the old leader"))
	f.holds("/many/"+name(0), "without the old leader")
	leader.Restart(t)
	for i := range count {
		f.ready(name(i))
	}
	f.bounded(passes, 8*count)

	passes = f.passes()
	followers := ensemble.Followers()
	for _, server := range followers {
		server.Kill()
	}
	f.not(name(1), v1alpha1.ReasonEnsembleUnavailable)
	f.edit(name(1), text("without a quorum"))
	openings := f.metric("holdfast_zookeeper_breaker_openings_total")
	for _, server := range followers {
		server.Relaunch(t)
	}
	f.holds("/many/"+name(1), "without a quorum")
	for i := range count {
		f.ready(name(i))
	}
	f.bounded(passes, 8*count)
	require.Equal(t, openings, f.metric("holdfast_zookeeper_breaker_openings_total"))
	require.Zero(t, f.count("delete"))
	for i := 2; i < count; i++ {
		require.Zero(t, f.znode("/many/"+name(i)).Version, "nothing was written without need")
	}
}

// An ensemble that is away does not keep an object, or a namespace, from going: within ten seconds the znode is left
// behind, and an event says so.
func TestDeletionInAnOutage(t *testing.T) {
	ensemble := zktest.Start(t, 1)
	f := start(t, ensemble.ConnectString())
	f.secret("me", map[string]string{"username": operatorCredential.User, "password": operatorCredential.Password})
	f.create(f.object("away", "/away", "v"))
	f.create(f.object("back", "/back", "v"))
	f.ready("away")
	f.ready("back")
	ensemble.Server(0).Kill()
	begin := time.Now()
	f.remove("away")
	f.gone("away")
	took := time.Since(begin)
	require.Less(t, took, 10*time.Second)
	require.GreaterOrEqual(t, took, 5*time.Second, "it was given time to come back")
	f.eventually("the event", func() bool { return f.events("away")[v1alpha1.ReasonOrphaned] == 1 })
	f.remove("back")
	ensemble.Server(0).Restart(t)
	f.gone("back")
	f.holds("/away", "v")
}

// A server that accepts what it is sent and answers nothing keeps an object no longer, though requests may wait for longer.
func TestDeletionWithAHangingServer(t *testing.T) {
	ensemble := zktest.Start(t, 1)
	f := start(t, ensemble.ConnectString(), func(o *operatorOptions) {
		o.pool.RequestTimeout, o.pool.SessionTimeout, o.pool.BreakerFailures = 30*time.Second, 4*time.Second, 1000
	})
	f.create(f.object("x", "/x", "v"))
	f.ready("x")
	ensemble.Server(0).Pause(t)
	begin := time.Now()
	f.remove("x")
	f.gone("x")
	require.Less(t, time.Since(begin), 10*time.Second)
	ensemble.Server(0).Resume(t)
}

// The Secret of the credential may go before the object that needs it to clean up.
func TestDeletionWithoutItsSecret(t *testing.T) {
	f := start(t, shared.ConnectString())
	f.secret("me", map[string]string{"username": operatorCredential.User, "password": operatorCredential.Password})
	f.create(f.object("x", "/x", "v", func(s *spec) {
		s.Connection = &v1alpha1.ZooKeeperConnection{ConnectString: f.connect, AuthSecretRef: &v1alpha1.ObjectReference{Name: "me"}}
	}))
	f.ready("x")
	f.deleteSecret("me")
	f.not("x", v1alpha1.ReasonSourceMissing)
	require.Equal(t, "v", string(f.znode("/x").Value))
	f.remove("x")
	f.gone("x")
	f.absent("/x")
}

// Two of three servers that hang are a lost quorum, too: connections stay open, and nobody answers.
func TestHangingServers(t *testing.T) {
	ensemble := zktest.Start(t, 3)
	f := start(t, ensemble.ConnectString())
	f.many(3)
	followers := ensemble.Followers()
	for _, server := range followers {
		server.Pause(t)
	}
	f.edit(name(0), text("edited"))
	f.not(name(0), v1alpha1.ReasonEnsembleUnavailable)
	for _, server := range followers {
		server.Resume(t)
	}
	f.holds("/many/"+name(0), "edited")
	for i := range 3 {
		f.ready(name(i))
	}
	require.Zero(t, f.count("delete"))
}
