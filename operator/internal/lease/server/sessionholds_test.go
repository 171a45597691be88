package server

import (
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/clock"
	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// A client takes the answer to a heartbeat for a renewal of all holds that it has not been told to be lost. So nobody may find
// the session without a hold, and answer a heartbeat, before that is told.
func TestALossIsToldBeforeAHeartbeatLeavesItOut(t *testing.T) {
	key := holdKey{"n", 1}
	server := &Server{elsewhere: &elsewhereHolds{}}
	ss := &sessionStream{server: server, out: newOutbox(), holds: map[holdKey]*sessionHold{key: {}}}
	ss.out.mu.Lock() // nothing can be told
	var wg sync.WaitGroup
	wg.Go(func() { ss.ended(key, core.Expired, nil) })
	require.Never(t, func() bool {
		if !ss.mu.TryLock() {
			return false // it waits until it can tell
		}
		defer ss.mu.Unlock()
		return len(ss.holds) == 0
	}, 100*time.Millisecond, time.Millisecond, "the hold is gone, and nobody was told")
	ss.out.mu.Unlock()
	wg.Wait()
	messages, _ := ss.out.take()
	require.Len(t, messages, 1)
	require.NotNil(t, messages[0].GetLost())
	require.Empty(t, ss.holds)
}

// A follower may hear its last before its hold is in the session. What it heard is acted on nevertheless, and only for the hold that
// it was installed for.
func TestAFollowerThatIsOverWhenItIsInstalled(t *testing.T) {
	const patience = 20 * time.Second
	kept, lost := holdKey{"n", 1}, holdKey{"n", 2}
	server := &Server{engine: engine.New(engine.Options{Clock: clock.Now, Registry: prometheus.NewRegistry()})}
	server.elsewhere = &elsewhereHolds{server: server, holds: map[holdKey]map[*sessionStream]struct{}{}}
	ss := &sessionStream{server: server, out: newOutbox(), holds: map[holdKey]*sessionHold{}}
	install := func(key holdKey, n engine.Notice) *follower {
		f := &follower{of: &engine.Follower{}}
		f.last.Store(&n)
		ss.heard(key, f, &n) // too early
		ss.mu.Lock()
		defer ss.mu.Unlock()
		ss.holds[key] = &sessionHold{}
		ss.install(key, ss.holds[key], f)
		return f
	}
	over := install(kept, engine.Notice{Moved: true})
	require.Eventually(t, func() bool {
		ss.mu.Lock()
		defer ss.mu.Unlock()
		return ss.holds[kept].follower == nil
	}, patience, time.Millisecond, "it hears of the hold from elsewhere")
	require.Contains(t, server.elsewhere.holds, kept)

	next := &follower{}
	ss.mu.Lock()
	ss.install(kept, ss.holds[kept], next)
	ss.mu.Unlock()
	ss.moved(kept, over)
	require.Same(t, next, ss.holds[kept].follower, "what the one before heard late is not about this one")

	install(lost, engine.Notice{Notice: core.Notice{Ended: core.Expired}})
	require.Eventually(t, func() bool {
		ss.mu.Lock()
		defer ss.mu.Unlock()
		return ss.holds[lost] == nil
	}, patience, time.Millisecond)
	messages, _ := ss.out.take()
	require.Len(t, messages, 1)
	require.Equal(t, lost.token, messages[0].GetLost().GetToken())
}

// A revocation is told once, and again when more is asked than before.
func TestARevocationThatChangesIsToldAgain(t *testing.T) {
	var now core.Instant
	key := holdKey{"n", 1}
	server := &Server{opts: Options{Clock: func() core.Instant { return now }}}
	ss := &sessionStream{server: server, out: newOutbox(), holds: map[holdKey]*sessionHold{key: {}}}
	told := func(exact bool, r *core.Revocation, left time.Duration) int {
		asked := asked(r)
		asked.DeadlineIn = durationpb.New(left)
		ss.askBack(key, asked, exact)
		messages, _ := ss.out.take()
		return len(messages)
	}
	polite := &core.Revocation{Reason: "maintenance", RequestedBy: "ops", Period: time.Minute}
	require.Equal(t, 1, told(true, polite, time.Minute))
	require.Zero(t, told(true, polite, time.Minute), "heard twice")
	now = now.Add(20 * time.Second)
	require.Zero(t, told(true, polite, 40*time.Second), "with a heartbeat")
	require.Zero(t, told(false, polite, time.Minute), "with another change, seen in the store")
	now = now.Add(50 * time.Second)
	require.Zero(t, told(true, polite, -10*time.Second), "after its time")

	polite.Force = true
	require.Equal(t, 1, told(false, polite, time.Minute), "it is forced now")
	require.Equal(t, 1, told(true, polite, 10*time.Second), "sooner")
	require.Equal(t, 1, told(false, polite, 5*time.Second), "still sooner, as the store shows")
	require.Equal(t, 1, told(true, polite, time.Minute), "later")
}

// What a hold had come to before it was followed is told, and before what was heard since.
func TestAHoldIsToldAsItWasWhenItWasFollowed(t *testing.T) {
	const patience = 20 * time.Second
	lost, wanted := holdKey{"n", 1}, holdKey{"n", 2}
	server := &Server{
		engine: engine.New(engine.Options{Clock: clock.Now, Registry: prometheus.NewRegistry()}),
		opts:   Options{Clock: func() core.Instant { return 0 }},
	}
	ss := &sessionStream{server: server, out: newOutbox(), holds: map[holdKey]*sessionHold{lost: {}, wanted: {}}}
	of := &engine.Follower{}
	var told []*leasev1.SessionResponse
	install := func(key holdKey, f *follower, count int) {
		ss.mu.Lock()
		ss.install(key, ss.holds[key], f)
		ss.mu.Unlock()
		told = nil
		require.Eventually(t, func() bool {
			messages, _ := ss.out.take()
			told = append(told, messages...)
			return len(told) == count
		}, patience, time.Millisecond)
	}
	install(lost, &follower{of: of, over: true}, 1)
	require.Equal(t, lost.token, told[0].GetLost().GetToken())
	require.NotContains(t, ss.holds, lost)

	f := &follower{of: of, asked: &leasev1.Revocation{Reason: "please"}}
	f.last.Store(&engine.Notice{Notice: core.Notice{Revocation: &core.Revocation{Reason: "please", Force: true, Period: time.Minute}}})
	install(wanted, f, 2)
	require.False(t, told[0].GetRevokeRequested().GetRevocation().GetForce())
	require.True(t, told[1].GetRevokeRequested().GetRevocation().GetForce())
	require.Contains(t, ss.holds, wanted)
}
