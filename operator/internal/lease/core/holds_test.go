package core_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
)

// sizeOf is how much an op brings into the store.
func sizeOf(op *core.Op) int {
	size := 0
	for _, w := range op.Writes {
		if w.Hold != nil {
			size += w.Hold.Size()
		}
	}
	for i := range op.Ends {
		size += op.Ends[i].Hold.Size()
	}
	return size
}

// However large the values of a name's holds are, and however many end or change together, its ops stay small enough for a store that
// takes 1.5 MiB, and all of it is committed in the end.
func TestOpsAreBoundedByBytes(t *testing.T) {
	const holds = 200
	value := make([]byte, 64<<10)
	var records []core.Record
	for i := range holds {
		records = append(records, core.Record{Name: "n", Hold: core.Hold{
			Slot: int32(i), Token: int64(i + 1), Mode: core.Shared, TTL: time.Second, RequestID: fmt.Sprint(i), Value: value,
		}})
	}
	s := core.NewShard(0, time.Unix(0, 0), records)
	var out core.Output
	changed, ended := 0, 0
	commit := func(now core.Instant, revision int64) {
		for len(out.Ops) > 0 {
			op := out.Ops[0]
			require.LessOrEqual(t, sizeOf(&op), 512<<10)
			ended += len(op.Ends)
			changed += len(op.Writes) - len(op.Ends)
			out.Reset()
			revision++
			s.Committed(now, op.Name, revision, &out)
		}
	}
	for i := range holds {
		s.Change(0, "n", int64(i+1), append([]byte("v"), value[1:]...), core.Ticket(i+1), &out)
	}
	commit(0, 1000)
	require.Equal(t, holds, changed)
	s.Acquire(0, core.AcquireRequest{Name: "n", RequestID: "last", Mode: core.Exclusive, TTL: time.Second, Value: value, Wait: true}, 5000, &out)
	s.Tick(core.Instant(time.Minute), &out)
	commit(core.Instant(time.Minute), 2000)
	require.Equal(t, holds, ended)
	require.Equal(t, 1, s.Holds(), "and who waited for all of them is granted")
}

// What the store refuses is answered with its error; the name goes on as it was, and with other requests.
func TestARefusedOpIsUndone(t *testing.T) {
	s := core.NewShard(0, time.Unix(0, 0), []core.Record{{Name: "n", Hold: core.Hold{Token: 1, Mode: core.Shared, TTL: time.Second, RequestID: "old"}}})
	refused := errors.New("too large")
	var out core.Output
	answer := func(ticket core.Ticket) core.Reply {
		t.Helper()
		for _, r := range out.Replies {
			if r.Ticket == ticket {
				return r
			}
		}
		require.Fail(t, "no answer", "to %d", ticket)
		return core.Reply{}
	}
	acquire := func(id string, ticket core.Ticket) {
		s.Acquire(0, core.AcquireRequest{Name: "n", RequestID: id, Mode: core.Shared, TTL: time.Second}, ticket, &out)
	}
	acquire("large", 1)
	acquire("small", 2)
	s.Get(0, "n", false, 3, &out)
	s.Refused(0, "n", refused, &out)
	require.ErrorIs(t, answer(1).Err, refused)
	require.Len(t, answer(3).Result.(core.LeaseView).Holds, 1)
	out.Reset()
	s.Committed(0, "n", 2, &out)
	require.NoError(t, answer(2).Err)
	require.Equal(t, 2, s.Holds())

	out.Reset()
	s.Change(0, "n", 1, []byte("large"), 4, &out)
	s.Refused(0, "n", refused, &out)
	require.ErrorIs(t, answer(4).Err, refused)
	view, _ := s.View(0, "n")
	require.Empty(t, view.Holds[0].Value)

	out.Reset()
	s.Release(0, "n", 1, 5, &out)
	s.Refused(0, "n", refused, &out)
	require.ErrorIs(t, answer(5).Err, refused)
	_, err := s.KeepAlive(0, "n", 1)
	require.NoError(t, err, "it is still held")
	out.Reset()
	s.Tick(core.Instant(3*time.Second), &out)
	require.Len(t, out.Ops, 1, "its time ends it all the same")
	require.Equal(t, core.Expired, out.Ops[0].Ends[0].Reason)
}

// Whatever is known of a name with many holds is what looking through them would find: the slots that are free, how much is taken, who has
// which request and token.
func TestManyHoldsAreKnown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const total = 60
		s := core.NewShard(0, time.Unix(0, 0), nil)
		var out core.Output
		type held struct {
			token   int64
			id      string
			permits int32
		}
		slots := map[int32]held{}
		var revision int64
		var ticket core.Ticket
		asked := map[core.Ticket]held{}
		commit := func() {
			for len(out.Ops) > 0 {
				op := out.Ops[0]
				out.Ops = out.Ops[1:]
				revision++
				for _, end := range op.Ends {
					require.Equal(t, end.Hold.Token, slots[end.Slot].token)
					delete(slots, end.Slot)
				}
				for _, w := range op.Writes {
					if w.Hold == nil || w.Hold.Token != 0 {
						continue
					}
					require.NotContains(t, slots, w.Slot, "one slot for two holds")
					for slot := range w.Slot {
						require.Contains(t, slots, slot, "the smallest free slot is taken")
					}
					slots[w.Slot] = held{revision, w.Hold.RequestID, w.Hold.PermitsHeld}
				}
				s.Committed(0, op.Name, revision, &out)
			}
			var taken int32
			for _, h := range slots {
				taken += h.permits
			}
			require.LessOrEqual(t, taken, int32(total))
			require.Equal(t, len(slots), s.Holds())
			for _, r := range out.Replies {
				if want, ok := asked[r.Ticket]; ok {
					var over *core.HeldError
					if errors.As(r.Err, &over) {
						require.Greater(t, taken+want.permits, int32(total))
					} else {
						require.NoError(t, r.Err)
					}
				}
			}
			out.Reset()
		}
		acquire := func(id string, permits int32) {
			ticket++
			asked[ticket] = held{id: id, permits: permits}
			s.Acquire(0, core.AcquireRequest{
				Name: "n", RequestID: id, Mode: core.Permits, PermitsTotal: total, Permits: permits, TTL: time.Hour,
			}, ticket, &out)
		}
		for i := range rapid.IntRange(1, 150).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "what") > 0 || len(slots) == 0 {
				acquire(fmt.Sprint(i), rapid.Int32Range(1, 3).Draw(t, "permits"))
				commit()
				continue
			}
			for _, slot := range rapid.SliceOfNDistinct(rapid.Int32Range(0, total), 1, 30, rapid.ID).Draw(t, "released") {
				if h, ok := slots[slot]; ok {
					require.True(t, s.Line("n", h.id).Known)
					ticket++
					s.Release(0, "n", h.token, ticket, &out)
				}
			}
			commit()
		}
		for _, h := range slots {
			acquire(h.id, h.permits) // again
			require.Equal(t, h.token, out.Replies[0].Result.(core.Grant).Hold.Token)
			commit()
		}
	})
}

// A grant in a name with many holds takes about as long as in one with few.
func BenchmarkGrantsOfOneName(b *testing.B) {
	for _, holds := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(holds), func(b *testing.B) {
			s := core.NewShard(0, time.Unix(0, 0), nil)
			var out core.Output
			var revision int64
			var tokens []int64
			grant := func() {
				revision++
				s.Acquire(0, core.AcquireRequest{Name: "n", RequestID: fmt.Sprint(revision), Mode: core.Shared, TTL: time.Hour}, 1, &out)
				s.Committed(0, "n", revision, &out)
				out.Reset()
				tokens = append(tokens, revision)
			}
			for range holds {
				grant()
			}
			b.ReportAllocs()
			for b.Loop() {
				grant()
				s.Release(0, "n", tokens[0], 2, &out)
				tokens = tokens[1:]
				revision++
				s.Committed(0, "n", revision, &out)
				out.Reset()
			}
		})
	}
}
