package server

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// However many acquires wait for a name, its line is read once, and tells those whose places it changes.
func TestPlacesAreToldTogether(t *testing.T) {
	ss := &sessionStream{out: newOutbox(), pending: map[uint64]*sessionCall{}}
	queue := &leasev1.Lease{}
	for id := range uint64(100) {
		request := fmt.Sprint("request-", id)
		ss.pending[id] = &sessionCall{session: ss, id: id, name: "a", acquire: &leasev1.AcquireRequest{RequestId: request, Wait: &leasev1.Wait{}}}
		queue.Queue = append(queue.Queue, &leasev1.Waiter{RequestId: request})
	}
	ss.pending[100] = &sessionCall{session: ss, id: 100, name: "b", acquire: &leasev1.AcquireRequest{Wait: &leasev1.Wait{}}}
	ss.pending[101] = &sessionCall{session: ss, id: 101, name: "c", acquire: &leasev1.AcquireRequest{}}
	lines := ss.inLine(false)
	require.Len(t, lines, 2, "by names, and without those who do not wait")
	require.Len(t, lines["a"], 100)

	told := func() map[uint64]int32 {
		ss.tell(lines["a"], queue)
		messages, _ := ss.out.take()
		places := map[uint64]int32{}
		for _, m := range messages {
			require.NotContains(t, places, m.GetId())
			places[m.GetId()] = m.GetQueued().GetQueuePosition()
		}
		return places
	}
	places := told()
	require.Len(t, places, 100)
	for id, place := range places {
		require.Equal(t, int32(id+1), place)
	}
	assert.Empty(t, told(), "nothing has changed")
	assert.NotContains(t, ss.inLine(false), "a", "they know their places")
	assert.Contains(t, ss.inLine(true), "a")

	queue.Queue = append(queue.GetQueue()[:50:50], queue.GetQueue()[51:]...)
	delete(ss.pending, 99) // it was just answered
	places = told()
	assert.Len(t, places, 48)
	assert.Equal(t, int32(51), places[51])
}
