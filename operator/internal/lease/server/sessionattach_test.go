package server

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// After a reconnect the holds that somebody serves are there at once, however many nobody serves; those come as soon as somebody does, unless
// they were given up.
func TestHoldsThatNobodyServesKeepNoOthersFromBeingAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwners()
		ss := elsewhereSession(t, o, time.Minute)
		ss.attaching = map[holdKey]uint64{{"gone", 1}: 0}
		key := func(what string, i int) holdKey { return holdKey{fmt.Sprint(what, i), int64(i + 1)} }
		const silent, served = 2 * sessionCalls, 20
		for i := range silent {
			ss.attaching[key("silent", i)] = 0
			o.silent[key("silent", i)] = true
		}
		for i := range served {
			ss.attaching[key("served", i)] = 0
			o.kept[key("served", i)] = time.Minute
		}
		attached := func() (there, lost int) {
			for _, m := range ss.answers() {
				if m.GetAttached() != nil {
					there++
				}
				if m.GetLost() != nil {
					lost++
				}
			}
			return there, lost
		}
		done := false
		go func() { ss.attachAll(ss.allAttaching()); done = true }()
		synctest.Wait()
		there, lost := attached()
		require.Equal(t, served, there)
		require.Equal(t, 1, lost)
		pass(10 * time.Second)
		require.False(t, done)

		ss.forget(key("silent", 0))
		o.mu.Lock()
		for i := range silent {
			o.kept[key("silent", i)] = time.Minute
		}
		clear(o.silent)
		o.mu.Unlock()
		pass(2 * time.Second)
		there, _ = attached()
		assert.Equal(t, silent-1, there, "all but the one that was given up")
		assert.NotContains(t, ss.holds, key("silent", 0))
		assert.True(t, done)
	})
}

// A hold that is given up while an owner is being asked for it is not taken in.
func TestAHoldThatIsGivenUpWhileItIsAttached(t *testing.T) {
	o := newOwners()
	ss := elsewhereSession(t, o, time.Minute)
	key := holdKey{"n", 1}
	o.kept[key] = time.Minute
	ss.attaching = map[holdKey]uint64{key: 0}
	all := ss.allAttaching()
	ss.forget(key)
	ss.attachOnce(ss.ctx, all)
	require.Empty(t, ss.holds)
	require.Empty(t, ss.answers())
}

// attachTogether lets a session handle requests to attach holds that came in one message.
func (ss *sessionStream) attachTogether(from uint64, keys ...holdKey) {
	for i, key := range keys {
		ss.handle(&leasev1.SessionRequest{Id: from + uint64(i), Message: &leasev1.SessionRequest_Attach{
			Attach: &leasev1.SessionAttach{Name: key.name, Token: key.token},
		}})
	}
	ss.attachGathered()
}

// byID returns what the session answered to each request.
func (ss *sessionStream) byID(t *testing.T) map[uint64]*leasev1.SessionResponse {
	t.Helper()
	got := map[uint64]*leasev1.SessionResponse{}
	for _, m := range ss.answers() {
		require.NotContains(t, got, m.GetId(), "answered once")
		got[m.GetId()] = m
	}
	return got
}

// Requests to attach holds that came in one message take one slot, and are answered one by one: at once but for those that nobody serves, which are
// refused when it was waited long enough for an owner.
func TestHoldsAreAttachedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwners()
		ss := elsewhereSession(t, o, time.Minute)
		ss.attaches, ss.server.opts.Patience = newSlots(1), 15*time.Second
		const served = 20 * sessionAttaches
		keys := []holdKey{{"silent", 1}, {"late", 1}, {"gone", 1}, {"given-up", 1}}
		for _, key := range []holdKey{keys[0], keys[1], keys[3]} {
			o.silent[key] = true
		}
		for i := range served {
			keys = append(keys, holdKey{"served", int64(i + 1)})
			o.kept[keys[len(keys)-1]] = time.Minute
		}
		ss.attachTogether(1, keys...)
		synctest.Wait()
		got := ss.byID(t)
		require.Len(t, got, served+1)
		require.Equal(t, int32(codes.NotFound), got[3].GetRefused().GetCode())
		require.Equal(t, int64(1), got[5].GetAttached().GetToken())
		require.Len(t, ss.holds, served)

		ss.attachTogether(10_000, keys[0])
		require.Equal(t, int32(codes.InvalidArgument), ss.byID(t)[10_000].GetRefused().GetCode(), "it is being attached")
		ss.attachTogether(10_001, holdKey{"other", 1})
		require.Equal(t, int32(codes.Unavailable), ss.byID(t)[10_001].GetRefused().GetCode(), "there is no slot")
		require.NotContains(t, ss.attaching, holdKey{"other", 1})
		ss.forget(keys[3])
		require.Equal(t, int32(codes.Canceled), ss.byID(t)[4].GetRefused().GetCode())

		o.mu.Lock()
		delete(o.silent, keys[1])
		o.kept[keys[1]] = time.Minute
		o.mu.Unlock()
		pass(2 * time.Second)
		require.Equal(t, "late", ss.byID(t)[2].GetAttached().GetName())
		pass(15 * time.Second)
		require.Equal(t, int32(codes.Unavailable), ss.byID(t)[1].GetRefused().GetCode())
		require.Empty(t, ss.attaching)
		require.Empty(t, ss.attaches.taken)
		require.Len(t, ss.holds, served+1)
	})
}

// Calls that do not end hold up what comes after them for a moment, and not for as long as they last.
func TestCallsThatDoNotEndDoNotStopTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ss := elsewhereSession(t, newOwners(), time.Minute)
		s := newSlots(2)
		began := time.Now()
		enter := func() bool { return ss.enter(s, 7) }
		require.True(t, enter())
		require.True(t, enter())
		require.Zero(t, time.Since(began))
		require.False(t, enter())
		require.Equal(t, slotPatience, time.Since(began))
		require.False(t, enter())
		require.Equal(t, slotPatience, time.Since(began), "none has ended since")
		refused := ss.answers()
		require.Len(t, refused, 2)
		require.Equal(t, uint64(7), refused[0].GetId())
		require.Equal(t, int32(14), refused[0].GetRefused().GetCode(), "UNAVAILABLE")

		s.leave()
		require.True(t, enter())
		time.AfterFunc(slotPatience/2, s.leave)
		require.True(t, enter(), "it waits while calls end")
		require.Equal(t, 3*slotPatience/2, time.Since(began))
		require.Empty(t, ss.answers())

		ss.closing = true
		time.AfterFunc(10*slotPatience, s.leave)
		require.True(t, enter(), "there is nothing else to read")
	})
}
