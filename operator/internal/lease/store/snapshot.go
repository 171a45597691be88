package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
)

const (
	// snapshotPage is how many lease keys are read at a time.
	snapshotPage = 1000
	// snapshotBytes is how much one part of a snapshot holds at most, unless it is one lease. Watchers take messages of 4 MiB.
	snapshotBytes = 1 << 20
)

// snapshot passes on the whole state as it was at one revision, and sets the place to watch from.
func (w *watch) snapshot(ctx context.Context, compacted bool) error {
	changed, revision, err := w.unsettled(ctx)
	if err != nil {
		return err
	}
	r := snapshotReader{watch: w, changed: changed}
	from := w.etcd.keys.leases()
	to := clientv3.GetPrefixRangeEnd(from)
	if w.target.Name != "" {
		from = w.etcd.keys.name(core.ShardOf(w.target.Name, w.shards), w.target.Name)
		to = clientv3.GetPrefixRangeEnd(from)
	}
	for {
		resp, err := w.etcd.client.Get(ctx, from, clientv3.WithRange(to), clientv3.WithLimit(snapshotPage), clientv3.WithRev(revision))
		if err != nil {
			return fmt.Errorf("read a snapshot: %w", err)
		}
		for _, kv := range resp.Kvs {
			if err := r.read(kv); err != nil {
				return err
			}
		}
		if !resp.More {
			if err := r.rest(); err != nil {
				return err
			}
		}
		parts := partsOf(r.take())
		for i, part := range parts {
			update := Update{Snapshot: &Snapshot{Compacted: compacted, Leases: part}}
			if !resp.More && i == len(parts)-1 {
				update.Snapshot.Complete, update.Revision = true, revision
			}
			if err := w.pass(update); err != nil {
				return &passError{err}
			}
		}
		if !resp.More {
			w.after = revision
			return nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].GetKey()) + "\x00"
	}
}

// partsOf divides leases into parts of a bounded size; at least one part, which may be empty.
func partsOf(leases []core.LeaseView) [][]core.LeaseView {
	var parts [][]core.LeaseView
	begin, bytes := 0, 0
	for i := range leases {
		size := len(leases[i].Name)
		for k := range leases[i].Holds {
			size += leases[i].Holds[k].Size()
		}
		if bytes += size; bytes > snapshotBytes && i > begin {
			parts = append(parts, leases[begin:i])
			begin, bytes = i, size
		}
	}
	return append(parts, leases[begin:])
}

// unsettled returns what the journals say of the target beyond the lease keys, by name, and at which revision that was.
func (w *watch) unsettled(ctx context.Context) (map[string]overlay, int64, error) {
	all, err := w.etcd.present.read(ctx, w.etcd)
	if err != nil {
		return nil, 0, err
	}
	changed := map[string]overlay{}
	for shard, entries := range all.byShard {
		if w.target.Name != "" && shard != core.ShardOf(w.target.Name, w.shards) {
			continue
		}
		for p, c := range newOverlay(entries, all.settled[shard]) {
			if !w.target.matches(p.name) {
				continue
			}
			if changed[p.name] == nil {
				changed[p.name] = overlay{}
			}
			changed[p.name][p] = c
		}
	}
	return changed, all.revision, nil
}

// snapshotReader makes leases of lease keys, which come by name, and of what journals say.
type snapshotReader struct {
	watch   *watch
	changed map[string]overlay
	leases  []core.LeaseView
	// open is the lease whose holds may go on.
	open *core.LeaseView
}

func (r *snapshotReader) read(kv *mvccpb.KeyValue) error {
	name, slot, err := r.watch.etcd.keys.parseHold(kv.GetKey())
	if err != nil {
		return &damagedError{err}
	}
	if !r.watch.target.matches(name) {
		return nil
	}
	if r.open == nil || r.open.Name != name {
		if err := r.close(); err != nil {
			return err
		}
		r.open = &core.LeaseView{Name: name}
	}
	if _, newer := r.changed[name][place{name, slot}]; newer {
		return nil
	}
	hold, revision, err := decodeHold(kv.GetValue(), slot, kv.GetModRevision())
	if err != nil {
		return &damagedError{fmt.Errorf("read %q: %w", kv.GetKey(), err)}
	}
	r.open.Holds = append(r.open.Holds, core.HoldView{Hold: hold})
	r.open.Revision = max(r.open.Revision, revision)
	return nil
}

// close adds what journals say of the open lease to it, and lists it if it is held.
func (r *snapshotReader) close() error {
	if r.open == nil {
		return nil
	}
	for _, c := range r.changed[r.open.Name] {
		hold, held, err := c.hold()
		if err != nil {
			return &damagedError{fmt.Errorf("read the journal of %q: %w", r.open.Name, err)}
		}
		if held {
			r.open.Holds = append(r.open.Holds, core.HoldView{Hold: hold})
		}
		r.open.Revision = max(r.open.Revision, c.revision)
	}
	delete(r.changed, r.open.Name)
	if len(r.open.Holds) > 0 {
		slices.SortFunc(r.open.Holds, func(a, b core.HoldView) int { return cmp.Compare(a.Token, b.Token) })
		r.leases = append(r.leases, *r.open)
	}
	r.open = nil
	return nil
}

// rest lists the leases of which there are no keys.
func (r *snapshotReader) rest() error {
	if err := r.close(); err != nil {
		return err
	}
	for _, name := range slices.SortedFunc(maps.Keys(r.changed), strings.Compare) {
		r.open = &core.LeaseView{Name: name}
		if err := r.close(); err != nil {
			return err
		}
	}
	return nil
}

// take returns the leases that are complete.
func (r *snapshotReader) take() []core.LeaseView {
	leases := r.leases
	r.leases = nil
	return leases
}
