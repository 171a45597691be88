package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store/storepb"
)

// entry is a change in a journal.
type entry struct {
	*storepb.Change

	revision int64
}

// journals are all journals as they were at a revision, kept for as long as somebody loads shards: who takes many of them over
// reads the journals few times.
type journals struct {
	mu       sync.Mutex
	users    int
	revision int64
	byShard  map[int][]entry // in the order of the revisions
}

// load returns what the journals say of a shard, as of a revision or later, in order. done is called when it is not needed any more.
func (j *journals) load(ctx context.Context, e *Etcd, shard int, revision int64) (entries []entry, done func(), err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.revision < revision {
		byShard, at, err := e.readJournals(ctx, 0)
		if err != nil {
			return nil, nil, err
		}
		j.byShard, j.revision = byShard, at
	}
	j.users++
	return j.byShard[shard], func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.users--; j.users == 0 {
			j.byShard, j.revision = nil, 0
		}
	}, nil
}

// readJournals reads all journals at a revision, or as they are now if that is 0.
func (e *Etcd) readJournals(ctx context.Context, revision int64) (map[int][]entry, int64, error) {
	resp, err := e.client.Get(ctx, e.keys.journals(), clientv3.WithPrefix(), clientv3.WithRev(revision))
	if err != nil {
		return nil, 0, fmt.Errorf("read the journals: %w", err)
	}
	byShard := map[int][]entry{}
	slices.SortFunc(resp.Kvs, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.GetModRevision(), b.GetModRevision()) })
	for _, kv := range resp.Kvs {
		batch, err := decodeBatch(kv)
		if err != nil {
			return nil, 0, err
		}
		for _, c := range batch.GetChanges() {
			byShard[int(c.GetShard())] = append(byShard[int(c.GetShard())], entry{c, kv.GetModRevision()})
		}
	}
	return byShard, cmp.Or(revision, resp.Header.GetRevision()), nil
}

func decodeBatch(kv *mvccpb.KeyValue) (*storepb.Batch, error) {
	var batch storepb.Batch
	if err := proto.Unmarshal(kv.GetValue(), &batch); err != nil {
		return nil, &damagedError{fmt.Errorf("decode %q: %w", kv.GetKey(), err)}
	}
	return &batch, nil
}

// overlay is what the journals say beyond the lease keys: the last change of each place.
type overlay map[place]entry

func newOverlay(entries []entry, settled int64) overlay {
	o := overlay{}
	for _, c := range entries {
		if c.revision > settled {
			o[place{c.GetName(), c.GetSlot()}] = c
		}
	}
	return o
}

// hold returns the hold of a change; false: it leaves none.
func (c entry) hold() (core.Hold, bool, error) {
	if c.GetHold() == nil {
		return core.Hold{}, false, nil
	}
	h, err := coreHold(c.GetHold(), c.GetSlot(), c.revision)
	return h, true, err
}

// Load implements Store. What journals say of the shard, those of dead sessions above all, goes to lease keys at the same time: this
// session's own journal begins anew, and the others are done with.
func (e *Etcd) Load(ctx context.Context, shard int, claim Claim) ([]core.Record, error) {
	entries, done, err := e.journals.load(ctx, e, shard, claim.Revision)
	if err != nil {
		return nil, err
	}
	defer done()
	state, _, err := e.readState(ctx, shard)
	if err != nil {
		return nil, err
	}
	changed := newOverlay(entries, state.record.GetSettled())
	records, stored, err := e.readLeases(ctx, shard, changed)
	if err != nil {
		return nil, err
	}
	if len(changed) == 0 {
		return records, nil
	}
	var writes []leaseWrite
	for p, c := range changed {
		h, held, err := c.hold()
		if err != nil {
			return nil, fmt.Errorf("load shard %d: %w", shard, err)
		}
		w := leaseWrite{shard: shard, place: p}
		if held {
			records = append(records, core.Record{Name: p.name, Hold: h, Revision: c.revision})
			w.hold = holdRecord(&h)
			w.hold.Revision = c.revision
		}
		if held || stored[p] {
			writes = append(writes, w)
		}
	}
	slices.SortFunc(records, func(a, b core.Record) int { return cmp.Compare(a.Name, b.Name) })
	return records, e.settle(ctx, shard, claim, state, writes, claim.Revision)
}

// readLeases reads the lease keys of a shard, but for those that have changed since; of these it tells whether they are there.
func (e *Etcd) readLeases(ctx context.Context, shard int, changed overlay) ([]core.Record, map[place]bool, error) {
	var records []core.Record
	stored := map[place]bool{}
	prefix := e.keys.shard(shard)
	for from, end := prefix, clientv3.GetPrefixRangeEnd(prefix); ; {
		resp, err := e.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(loadPage))
		if err != nil {
			return nil, nil, fmt.Errorf("load shard %d: %w", shard, err)
		}
		for _, kv := range resp.Kvs {
			name, slot, err := e.keys.parseHold(kv.GetKey())
			if err != nil {
				return nil, nil, fmt.Errorf("load shard %d: %w", shard, err)
			}
			if _, newer := changed[place{name, slot}]; newer {
				stored[place{name, slot}] = true
				continue
			}
			hold, revision, err := decodeHold(kv.GetValue(), slot, kv.GetModRevision())
			if err != nil {
				return nil, nil, fmt.Errorf("load %q: %w", kv.GetKey(), err)
			}
			records = append(records, core.Record{Name: name, Hold: hold, Revision: revision})
		}
		if !resp.More {
			return records, stored, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].GetKey()) + "\x00"
	}
}

// Collect implements Store.
func (e *Etcd) Collect(ctx context.Context) (collected, left int, err error) {
	resp, err := e.client.Txn(ctx).Then(
		clientv3.OpGet(e.keys.journals(), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		clientv3.OpGet(e.keys.commits(), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
	).Commit()
	if err != nil {
		return 0, 0, fmt.Errorf("look for journals of dead sessions: %w", err)
	}
	alive := map[string]bool{}
	for _, kv := range resp.Responses[1].GetResponseRange().GetKvs() {
		alive[string(kv.GetKey())] = true
	}
	dead := map[SessionID]bool{}
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		id, err := e.keys.parseJournal(kv.GetKey())
		if err != nil {
			return 0, 0, err
		}
		if !alive[e.keys.commit(id)] {
			dead[id] = true
		}
	}
	for id := range dead {
		ok, err := e.collect(ctx, id)
		if err != nil {
			return collected, len(dead) - collected, err
		}
		if ok {
			collected++
		}
	}
	return collected, len(dead) - collected, nil
}

// collect removes the journal of a dead session, unless it says something that is not in lease keys yet.
func (e *Etcd) collect(ctx context.Context, id SessionID) (bool, error) {
	resp, err := e.client.Txn(ctx).Then(
		clientv3.OpGet(e.keys.journal(id), clientv3.WithPrefix()), clientv3.OpGet(e.keys.shards(), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return false, fmt.Errorf("read the journal of a dead session: %w", err)
	}
	settled := map[string]int64{}
	for _, kv := range resp.Responses[1].GetResponseRange().GetKvs() {
		var state storepb.Shard
		if err := proto.Unmarshal(kv.GetValue(), &state); err != nil {
			return false, fmt.Errorf("decode %q: %w", kv.GetKey(), err)
		}
		settled[string(kv.GetKey())] = state.GetSettled()
	}
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		batch, err := decodeBatch(kv)
		if err != nil {
			return false, err
		}
		for _, c := range batch.GetChanges() {
			if settled[e.keys.state(int(c.GetShard()))] < kv.GetModRevision() {
				return false, nil
			}
		}
	}
	removed, err := e.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(e.keys.commit(id)), "=", 0)).
		Then(clientv3.OpDelete(e.keys.journal(id), clientv3.WithPrefix())).Commit()
	if err != nil {
		return false, fmt.Errorf("remove the journal of a dead session: %w", err)
	}
	return removed.Succeeded, nil
}
