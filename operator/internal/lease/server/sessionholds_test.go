package server

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
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
