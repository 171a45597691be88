package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
)

// Who waits at a replica that has been uncertain of its session for as long as others need to take over is told so, and who would have been
// granted something there leaves nothing behind when the replica comes back.
func TestWhoWaitsAtACutOffReplicaIsToldSo(t *testing.T) {
	b := newBench(t, Limits{})
	holder, err := b.acquire(t, "held", "holder", core.Exclusive, false)
	require.NoError(t, err)
	b.commit()
	granted, _ := outcome(t, []replies{holder})
	waiter, err := b.acquire(t, "held", "waiter", core.Exclusive, true)
	require.NoError(t, err)
	inFlight, err := b.acquire(t, "free", "in flight", core.Exclusive, false)
	require.NoError(t, err)

	why := "the network is away"
	b.waiting.Store(&why)
	cut := b.CutOff()
	at := func(d time.Duration) {
		b.now = core.Instant(d)
		b.lookCut(b.now)
	}
	at(b.session.ttl*19/10 - 1)
	require.NoError(t, b.CutOffError())
	assert.Empty(t, waiter)
	at(b.session.ttl * 19 / 10)
	<-cut
	<-b.CutOff()
	for what, to := range map[string]replies{"waits": waiter, "is being committed": inFlight} {
		r := <-to
		_, err := (&Call{engine: b.Engine, session: b.session}).Checked(r)
		require.ErrorIs(t, err, ErrUncertain, "what %s", what)
		assert.ErrorContains(t, err, why)
	}
	_, err = b.acquire(t, "new", "r", core.Exclusive, false)
	require.ErrorContains(t, err, why)

	b.session.renewed(b.now)
	at(time.Duration(b.now) + 1)
	require.NoError(t, b.CutOffError())
	select {
	case <-b.CutOff():
		require.Fail(t, "it is not cut off any more")
	default:
	}
	_, err = b.StartRelease(b.now, "held", granted[0].Hold.Token, make(replies, 1))
	require.NoError(t, err)
	b.commit()
	assert.Zero(t, b.holds.Load(), "nobody got what nobody waits for")
	assert.Zero(t, b.waiters.Load())
}

// A replica that only begins has nothing that others would do better, and one whose session was lost is cut off for as long as it gets no other.
func TestOnlyWhoWasCertainIsCutOff(t *testing.T) {
	b := newBench(t, Limits{})
	s := b.session
	b.Engine.session.Store(nil)
	b.lookCut(core.Instant(time.Hour))
	require.NoError(t, b.CutOffError())
	b.Engine.session.Store(s)
	b.lookCut(0)
	b.Engine.session.Store(nil)
	b.lookCut(core.Instant(2 * s.ttl))
	var cut *CutOffError
	require.ErrorAs(t, b.CutOffError(), &cut)
	assert.Equal(t, s.ttl, cut.For)
}
