package store

import (
	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store/storepb"
)

const (
	// MaxJournal is how many changes a replica's journal may have by default. One that has grown beyond that, or beyond journalBytes, is
	// settled, from its oldest batch on, until it is a sixteenth below.
	MaxJournal   = 16 << 10
	journalBytes = 2 << 20
	// journalOverdue is how many times as large it may become before everything else has to wait for that.
	journalOverdue = 2
	// settleWrites and settleBytes bound what one transaction settles: etcd takes 128 operations, and 1.5 MiB.
	settleWrites = 100
	settleBytes  = 256 << 10
)

// place is where a hold is kept: a slot of a name.
type place struct {
	name string
	slot int32
}

// journal is what a session has written to its journal and not to lease keys yet. A hold that ends before its turn comes is never
// written there at all, which is what makes short holds cheap.
type journal struct {
	most    int            // changes
	batches []journalBatch // oldest first
	// latest has the last change of each place that a batch changed.
	latest  map[int]map[place]*latest // by shard
	changes int
	bytes   int
}

type journalBatch struct {
	sequence uint64
	bytes    int
	places   []journalPlace
}

type journalPlace struct {
	shard int
	place place
}

// latest is how a place is now.
type latest struct {
	sequence uint64 // of the batch that made it so
	claim    int64  // under which claim
	revision int64
	hold     *storepb.Hold // nil: free
	// stored says that there may be a lease key.
	stored bool
}

// leaseWrite is a change of a lease key.
type leaseWrite struct {
	shard int
	place place
	hold  *storepb.Hold // nil: deleted
}

// settlement is a part of the journal that is to go to lease keys.
type settlement struct {
	writes []leaseWrite
	// done are what the journal knows of the places that are settled then.
	done map[journalPlace]*latest
	// through is the sequence of the last batch that is not needed any more; 0: none.
	through uint64
}

// over says whether the journal has outgrown a number of times its bounds.
func (j *journal) over(times int) bool {
	return j.changes > times*j.most || j.bytes > times*journalBytes
}

// next returns what of the journal shall be settled now; nil: nothing.
func (j *journal) next() *settlement {
	if !j.over(1) {
		return nil
	}
	s := &settlement{done: map[journalPlace]*latest{}}
	changes, bytes, written := j.changes, j.bytes, 0
	for i := range j.batches {
		b := &j.batches[i]
		if changes <= j.most*15/16 && bytes <= journalBytes*15/16 {
			break
		}
		for _, p := range b.places {
			l := j.latest[p.shard][p.place]
			if l == nil || l.sequence != b.sequence {
				continue // a later batch says more
			}
			if l.hold != nil || l.stored {
				if len(s.writes) == settleWrites || written > settleBytes {
					return s
				}
				w := leaseWrite{shard: p.shard, place: p.place, hold: l.settled()}
				s.writes = append(s.writes, w)
				written += w.size()
			}
			s.done[p] = l
		}
		s.through = b.sequence
		changes -= len(b.places)
		bytes -= b.bytes
	}
	return s
}

// settled is a hold as its lease key has it: with the revisions that the journal's key said.
func (l *latest) settled() *storepb.Hold {
	if l.hold == nil {
		return nil
	}
	if l.hold.GetToken() == 0 {
		l.hold.Token = l.revision
	}
	l.hold.Revision = l.revision
	return l.hold
}

func (w *leaseWrite) size() int { return 2*len(w.place.name) + w.hold.SizeVT() }

// forget drops what was settled.
func (j *journal) forget(s *settlement) {
	for p, l := range s.done {
		if j.latest[p.shard][p.place] == l {
			delete(j.latest[p.shard], p.place)
		}
	}
	n := 0
	for n < len(j.batches) && j.batches[n].sequence <= s.through {
		j.changes -= len(j.batches[n].places)
		j.bytes -= j.batches[n].bytes
		n++
	}
	j.batches = append(j.batches[:0], j.batches[n:]...)
}

// add takes note of a batch that was committed.
func (j *journal) add(sequence uint64, revision int64, ops []BatchOp, record *storepb.Batch, bytes int) {
	b := journalBatch{sequence: sequence, bytes: bytes, places: make([]journalPlace, 0, len(record.GetChanges()))}
	if j.latest == nil {
		j.latest = map[int]map[place]*latest{}
	}
	next := 0 // the changes are in the order of the ops
	for i := range ops {
		op := &ops[i]
		shard := j.latest[op.Shard]
		if shard == nil {
			shard = map[place]*latest{}
			j.latest[op.Shard] = shard
		}
		for range op.Op.Writes {
			c := record.Changes[next]
			next++
			p := place{op.Op.Name, c.GetSlot()}
			l := &latest{sequence: sequence, claim: op.Claim.Revision, revision: revision, hold: c.GetHold()}
			// A grant at a free place is the one change that finds no lease key there.
			l.stored = c.GetHold() == nil || c.GetEnded() != nil || c.GetHold().GetToken() != 0
			if before := shard[p]; before != nil {
				l.stored = before.stored || before.claim != l.claim
			}
			shard[p] = l
			b.places = append(b.places, journalPlace{op.Shard, p})
		}
	}
	j.batches = append(j.batches, b)
	j.changes += len(b.places)
	j.bytes += bytes
}

// of returns what has to be written to the lease keys of a shard to settle it.
func (j *journal) of(shard int) []leaseWrite {
	var writes []leaseWrite
	for p, l := range j.latest[shard] {
		if l.hold != nil || l.stored {
			writes = append(writes, leaseWrite{shard: shard, place: p, hold: l.settled()})
		}
	}
	return writes
}

// drop forgets a shard, because it is settled.
func (j *journal) drop(shard int) { delete(j.latest, shard) }

// record makes the journal's record of a batch: for each op its writes, in an order in which ends come before grants.
func record(ops []BatchOp) *storepb.Batch {
	n := 0
	for i := range ops {
		n += len(ops[i].Op.Writes)
	}
	changes := make([]storepb.Change, n)
	b := &storepb.Batch{Changes: make([]*storepb.Change, 0, n)}
	for i := range ops {
		shard, op := int32(ops[i].Shard), &ops[i].Op
		for _, holds := range []bool{false, true} {
			for _, w := range op.Writes {
				if (w.Hold != nil) != holds {
					continue
				}
				c := &changes[len(b.Changes)]
				b.Changes = append(b.Changes, c)
				c.Shard, c.Name, c.Slot = shard, op.Name, w.Slot
				if w.Hold != nil {
					c.Hold = holdRecord(w.Hold)
				}
				for _, end := range op.Ends {
					if end.Slot == w.Slot {
						c.Ended, c.Reason = holdRecord(&end.Hold), int32(end.Reason)
					}
				}
			}
		}
	}
	return b
}

// changesOf lists the events of a batch of the journal that was committed at a revision.
func changesOf(b *storepb.Batch, revision int64) ([]Event, error) {
	events := make([]Event, 0, len(b.GetChanges()))
	for _, c := range b.GetChanges() {
		if c.GetEnded() != nil {
			ended, err := coreHold(c.GetEnded(), c.GetSlot(), revision)
			if err != nil {
				return nil, err
			}
			events = append(events, Event{Name: c.GetName(), Hold: ended, Over: true, Ended: core.EndReason(c.GetReason()), Revision: revision})
		}
		if c.GetHold() != nil {
			now, err := coreHold(c.GetHold(), c.GetSlot(), revision)
			if err != nil {
				return nil, err
			}
			events = append(events, Event{Name: c.GetName(), Hold: now, Granted: c.GetHold().GetToken() == 0, Revision: revision})
		}
	}
	return events, nil
}
