package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
)

// mirror does what a journal and its settlements say to a map of lease keys and a list of batches, as etcd would.
type mirror struct {
	journal journal
	leases  map[place]int64 // tokens
	batches []mirrored
	now     map[place]int64 // the truth
	claim   int64
	last    int64 // revision
}

type mirrored struct {
	sequence uint64
	changes  map[place]int64 // 0: free
}

func (m *mirror) write(writes []leaseWrite) {
	for _, w := range writes {
		if w.hold == nil {
			delete(m.leases, w.place)
			continue
		}
		m.leases[w.place] = w.hold.GetToken()
	}
}

func (m *mirror) commit(t *rapid.T, ops []BatchOp, changes map[place]int64) {
	settle := m.journal.next()
	batch := record(ops)
	m.last++
	if settle != nil {
		require.LessOrEqual(t, len(settle.writes), settleWrites)
		m.write(settle.writes)
		for len(m.batches) > 0 && m.batches[0].sequence <= settle.through {
			m.batches = m.batches[1:]
		}
		m.journal.forget(settle)
	}
	m.journal.add(uint64(m.last), m.last, ops, batch, proto.Size(batch))
	m.batches = append(m.batches, mirrored{uint64(m.last), changes})
	for p, token := range changes {
		if m.now[p] = token; token == 0 {
			delete(m.now, p)
		}
	}
}

// read is what a load would find.
func (m *mirror) read() map[place]int64 {
	got := map[place]int64{}
	for p, token := range m.leases {
		got[p] = token
	}
	for _, b := range m.batches {
		for p, token := range b.changes {
			if got[p] = token; token == 0 {
				delete(got, p)
			}
		}
	}
	return got
}

// Whatever is granted, changed and ended, and whenever a shard is handed over, lease keys and what is left of the journal are the
// present state, and when the journal was settled the lease keys alone are.
func TestTheJournalAndTheLeaseKeysAreTheState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &mirror{journal: journal{most: rapid.SampledFrom([]int{1, 10, 1000}).Draw(t, "most")}, leases: map[place]int64{}, now: map[place]int64{}, claim: 1}
		large := make([]byte, 32<<10) // so that few batches make a journal too large
		for range rapid.IntRange(1, 300).Draw(t, "batches") {
			if rapid.IntRange(0, 40).Draw(t, "hand over") == 0 {
				m.write(m.journal.of(1))
				m.journal.drop(1)
				require.Equal(t, m.now, m.leases)
				m.batches = nil // a load ignores what was settled
				m.claim = m.last + 1
			}
			var ops []BatchOp
			changes := map[place]int64{}
			for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 9), 0, 4, rapid.ID).Draw(t, "names") {
				p := place{name: fmt.Sprint("n", i)}
				op := core.Op{Name: p.name}
				token := m.now[p]
				hold := core.Hold{Mode: core.Exclusive, TTL: time.Second, Value: large}
				if token != 0 && rapid.Bool().Draw(t, "end") {
					ended := hold
					ended.Token = token
					op.Ends, token = []core.End{{Reason: core.Released, Hold: ended}}, 0
				}
				if hold.Token = token; token != 0 || len(op.Ends) == 0 || rapid.Bool().Draw(t, "grant") {
					op.Writes = []core.Write{{Hold: &hold}}
					if changes[p] = token; token == 0 {
						changes[p] = m.last + 1
					}
				} else {
					op.Writes, changes[p] = []core.Write{{}}, 0
				}
				ops = append(ops, BatchOp{Shard: 1, Claim: Claim{Revision: m.claim}, Op: op})
			}
			m.commit(t, ops, changes)
			require.Equal(t, m.now, m.read())
		}
	})
}

// What came and went within the journal's bounds is never written to lease keys.
func TestShortHoldsAreNotSettled(t *testing.T) {
	j := journal{most: MaxJournal}
	writes := 0
	for i := range uint64(3 * MaxJournal / 2) {
		name := fmt.Sprint("n", i)
		hold := core.Hold{Mode: core.Exclusive, TTL: time.Second}
		grant := []BatchOp{{Op: core.Op{Name: name, Writes: []core.Write{{Hold: &hold}}}}}
		end := []BatchOp{{Op: core.Op{Name: name, Writes: []core.Write{{}}, Ends: []core.End{{Reason: core.Released, Hold: hold}}}}}
		for k, ops := range [][]BatchOp{grant, end} {
			if s := j.next(); s != nil {
				writes += len(s.writes)
				j.forget(s)
			}
			batch := record(ops)
			j.add(2*i+uint64(k)+1, int64(i), ops, batch, proto.Size(batch))
		}
	}
	require.Zero(t, writes)
	require.LessOrEqual(t, j.changes, MaxJournal+1)
}
