package server

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// After a reconnect the holds that somebody serves are there at once, however many nobody serves; those come as soon as somebody does, unless
// they were given up.
func TestHoldsThatNobodyServesKeepNoOthersFromBeingAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwners()
		ss := elsewhereSession(t, o, time.Minute)
		open := []*leasev1.SessionAttach{{Name: "gone", Token: 1}, {Name: "gone", Token: 1}}
		key := func(what string, i int) holdKey { return holdKey{fmt.Sprint(what, i), int64(i + 1)} }
		const silent, served = 2 * sessionCalls, 20
		for i := range silent {
			open = append(open, attachOf(key("silent", i)))
			o.silent[key("silent", i)] = true
		}
		for i := range served {
			open = append(open, attachOf(key("served", i)))
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
		ss.attachOpened(open)
		synctest.Wait()
		there, lost := attached()
		require.Equal(t, served, there)
		require.Equal(t, 1, lost)
		pass(10 * time.Second)
		require.Len(t, ss.attachedLater(), silent)

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
		assert.Empty(t, ss.attachedLater())
		ss.wait.Wait()
	})
}

// A hold that is given up while an owner is being asked for it is not taken in.
func TestAHoldThatIsGivenUpWhileItIsAttached(t *testing.T) {
	o := newOwners()
	ss := elsewhereSession(t, o, time.Minute)
	key := holdKey{"n", 1}
	o.kept[key] = time.Minute
	ss.attaching = map[holdKey]uint64{key: 0}
	all := ss.unattached([]attachment{{key: key}})
	require.Len(t, all, 1)
	ss.forget(key)
	ss.attachOnce(all)
	require.Empty(t, ss.holds)
	require.Empty(t, ss.answers())
}

func attachOf(key holdKey) *leasev1.SessionAttach {
	return &leasev1.SessionAttach{Name: key.name, Token: key.token}
}

// attachTogether lets a session handle requests to attach holds that came in one message.
func (ss *sessionStream) attachTogether(from uint64, keys ...holdKey) {
	for i, key := range keys {
		ss.handle(&leasev1.SessionRequest{Id: from + uint64(i), Message: &leasev1.SessionRequest_Attach{Attach: attachOf(key)}})
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
		ss.wait.Wait()
	})
}

// attachedLater returns what the session attaches aside.
func (ss *sessionStream) attachedLater() []attachment {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return slices.Clone(ss.later)
}

// Holds that nobody serves keep a slot only until their owners were asked once: those of later messages are attached meanwhile, and each is refused
// when it was waited long enough for its own owner.
func TestHoldsThatNobodyServesLeaveTheirSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwners()
		ss := elsewhereSession(t, o, time.Minute)
		ss.attaches, ss.server.opts.Patience = newSlots(1), 15*time.Second
		silent := func(i int) holdKey { return holdKey{"silent", int64(i + 1)} }
		served := func(i int) holdKey { return holdKey{"served", int64(i + 1)} }
		const messages = 5
		for i := range messages {
			o.silent[silent(i)], o.kept[served(i)] = true, time.Minute
		}
		for i := range messages {
			ss.attachTogether(uint64(10*i+1), silent(i), served(i))
			pass(3 * time.Second)
			got := ss.byID(t)
			require.Len(t, got, 1)
			require.Equal(t, served(i).token, got[uint64(10*i+2)].GetAttached().GetToken())
			require.Empty(t, ss.attaches.taken)
			require.Len(t, ss.attachedLater(), i+1, "one goroutine has them all")
		}
		for i := range messages {
			pass(ss.attachedLater()[0].until.Sub(bubbleClock()) + attachRound + 2*sessionTick)
			got := ss.byID(t)
			require.Len(t, got, 1)
			require.Equal(t, int32(codes.Unavailable), got[uint64(10*i+1)].GetRefused().GetCode())
		}
		require.Empty(t, ss.attaching)
		ss.wait.Wait()
	})
}

// An owner that fails is asked again, as one that does not answer is: only what stays the same ends an attach.
func TestAHoldWhoseOwnerFailsIsAttachedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwners()
		ss := elsewhereSession(t, o, time.Minute)
		ss.attaches, ss.server.opts.Patience = newSlots(1), 15*time.Second
		opened, asked, refused := holdKey{"opened", 1}, holdKey{"asked", 1}, holdKey{"refused", 1}
		for _, key := range []holdKey{opened, asked} {
			o.fails[key] = status.Error(codes.ResourceExhausted, "the message is too long")
		}
		o.fails[refused] = status.Error(codes.PermissionDenied, "it is another's")
		ss.attachOpened([]*leasev1.SessionAttach{attachOf(opened)})
		ss.attachTogether(1, asked, refused)
		synctest.Wait()
		got := ss.byID(t)
		require.Len(t, got, 1)
		require.Equal(t, int32(codes.PermissionDenied), got[2].GetRefused().GetCode())
		o.mu.Lock()
		o.kept[opened], o.kept[asked] = time.Minute, time.Minute
		clear(o.fails)
		o.mu.Unlock()
		pass(time.Second)
		got = ss.byID(t)
		require.Equal(t, "opened", got[0].GetAttached().GetName())
		require.Equal(t, "asked", got[1].GetAttached().GetName())
		ss.wait.Wait()
	})
}

// However many messages ask for it, a session has a bounded number of holds that are to be attached.
func TestHoldsThatAreBeingAttachedAreBounded(t *testing.T) {
	ss := elsewhereSession(t, newOwners(), time.Minute)
	for i := range attachMost - 1 {
		ss.attaching[holdKey{"n", int64(i + 1)}] = 1
	}
	ss.gatherAttach(2, &leasev1.SessionAttach{Name: "last", Token: 1})
	ss.gatherAttach(3, &leasev1.SessionAttach{Name: "more", Token: 1})
	require.Len(t, ss.gathered, 1)
	require.Equal(t, int32(codes.Unavailable), ss.byID(t)[3].GetRefused().GetCode())
	require.Len(t, ss.attaching, attachMost)
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
