package server

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// After a reconnect the holds that somebody serves are there at once, however many nobody serves; those come as soon as somebody does, unless
// they were given up.
func TestHoldsThatNobodyServesKeepNoOthersFromBeingAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwners()
		ss := elsewhereSession(t, o, time.Minute)
		ss.attaching = map[holdKey]struct{}{{"gone", 1}: {}}
		key := func(what string, i int) holdKey { return holdKey{fmt.Sprint(what, i), int64(i + 1)} }
		const silent, served = 2 * sessionCalls, 20
		for i := range silent {
			ss.attaching[key("silent", i)] = struct{}{}
			o.silent[key("silent", i)] = true
		}
		for i := range served {
			ss.attaching[key("served", i)] = struct{}{}
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
		go func() { ss.attachAll(); done = true }()
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
	ss.attaching = map[holdKey]struct{}{key: {}}
	rest := ss.unattached()
	ss.forget(key)
	ss.attachOnce(rest)
	require.Empty(t, ss.holds)
	require.Empty(t, ss.answers())
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
