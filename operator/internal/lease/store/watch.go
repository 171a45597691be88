package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store/storepb"
)

const snapshotPage = 1000

func isDamaged(err error) bool {
	var damaged *damagedError
	return errors.As(err, &damaged)
}

// passError carries an error of the receiver out of the loops that would otherwise retry.
type passError struct{ err error }

func (e *passError) Error() string { return e.err.Error() }
func (e *passError) Unwrap() error { return e.err }

// Watch implements Store. A broken etcd watch is resumed where it was; one whose revisions were compacted
// starts over with a snapshot.
func (e *Etcd) Watch(ctx context.Context, shards int, target Target, after int64, pass func(Update) error) error {
	w := &watch{etcd: e, target: target, after: after, pass: pass}
	w.from = e.keys.leases()
	w.to = clientv3.GetPrefixRangeEnd(w.from)
	if target.Name != "" {
		w.from = e.keys.name(core.ShardOf(target.Name, shards), target.Name)
		w.to = clientv3.GetPrefixRangeEnd(w.from)
	}
	compacted := false
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		before := w.after
		err := w.once(ctx, compacted)
		compacted = errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, errReplaced)
		var passing *passError
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("watch: %w", ctx.Err())
		case errors.As(err, &passing):
			return passing.err
		case isDamaged(err):
			return err
		case compacted:
			w.after = 0
			continue
		case w.after != before:
			wait = retryFirst
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("watch: %w", ctx.Err())
		case <-time.After(wait):
		}
	}
}

type watch struct {
	etcd     *Etcd
	target   Target
	from, to string
	after    int64
	pass     func(Update) error
}

// once watches until something breaks; with errReplaced when the store is not the one it was.
func (w *watch) once(ctx context.Context, compacted bool) error {
	ctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	defer cancel(nil)
	replaced := w.etcd.identity.changed()
	go func() {
		select {
		case <-replaced:
			cancel(errReplaced)
		case <-ctx.Done():
		}
	}()
	err := w.follow(ctx, compacted)
	var passing *passError
	if cause := context.Cause(ctx); errors.Is(cause, errReplaced) && !errors.As(err, &passing) {
		return cause
	}
	return err
}

func (w *watch) follow(ctx context.Context, compacted bool) error {
	if w.after == 0 {
		if err := w.snapshot(ctx, compacted); err != nil {
			return err
		}
	} else if err := w.reached(ctx); err != nil {
		return err
	}
	for resp := range w.etcd.client.Watch(ctx, w.from, clientv3.WithRange(w.to), clientv3.WithRev(w.after+1),
		clientv3.WithPrevKV(), clientv3.WithProgressNotify()) {
		if err := resp.Err(); err != nil {
			return err
		}
		events, err := w.events(ctx, resp.Events)
		if err != nil {
			return err
		}
		revision := resp.Header.GetRevision()
		if n := len(resp.Events); n > 0 {
			revision = resp.Events[n-1].Kv.GetModRevision()
		}
		if revision <= w.after {
			continue
		}
		if len(events) > 0 || resp.IsProgressNotify() {
			if err := w.pass(Update{Revision: revision, Events: events}); err != nil {
				return &passError{err}
			}
		}
		w.after = revision
	}
	return nil
}

// reached makes sure that the store was ever at the revision to go on from. etcd would wait until it is.
func (w *watch) reached(ctx context.Context) error {
	resp, err := w.etcd.client.Get(ctx, w.etcd.keys.id())
	if err != nil {
		return fmt.Errorf("read the revision: %w", err)
	}
	if resp.Header.GetRevision() < w.after {
		return errReplaced
	}
	return nil
}

// snapshot passes on the whole state as it was at one revision, and sets the place to watch from.
func (w *watch) snapshot(ctx context.Context, compacted bool) error {
	var revision int64
	var open *core.LeaseView // its holds may go on in the next page
	for from := w.from; ; {
		resp, err := w.etcd.client.Get(ctx, from, clientv3.WithRange(w.to), clientv3.WithLimit(snapshotPage), clientv3.WithRev(revision))
		if err != nil {
			return fmt.Errorf("read a snapshot: %w", err)
		}
		if revision == 0 {
			revision = resp.Header.GetRevision()
		}
		var leases []core.LeaseView
		for _, kv := range resp.Kvs {
			name, hold, err := w.decode(kv)
			if err != nil {
				return err
			}
			if !strings.HasPrefix(name, w.target.Prefix) {
				continue
			}
			if open == nil || open.Name != name {
				if open != nil {
					leases = append(leases, *open)
				}
				open = &core.LeaseView{Name: name}
			}
			open.Holds = append(open.Holds, core.HoldView{Hold: hold})
			open.Revision = max(open.Revision, kv.GetModRevision())
		}
		update := Update{Snapshot: &Snapshot{Compacted: compacted, Leases: leases, Complete: !resp.More}}
		if !resp.More {
			if open != nil {
				update.Snapshot.Leases = append(leases, *open)
			}
			update.Revision = revision
		}
		if err := w.pass(update); err != nil {
			return &passError{err}
		}
		if !resp.More {
			w.after = revision
			return nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].GetKey()) + "\x00"
	}
}

func (w *watch) decode(kv *mvccpb.KeyValue) (string, core.Hold, error) {
	name, slot, err := w.etcd.keys.parseHold(kv.GetKey())
	if err != nil {
		return "", core.Hold{}, &damagedError{err}
	}
	hold, err := decodeHold(kv.GetValue(), slot, kv.GetModRevision())
	if err != nil {
		return "", core.Hold{}, &damagedError{fmt.Errorf("read %q: %w", kv.GetKey(), err)}
	}
	return name, hold, nil
}

func (w *watch) events(ctx context.Context, changes []*clientv3.Event) ([]Event, error) {
	var events []Event
	var ends endings
	for _, change := range changes {
		name, slot, err := w.etcd.keys.parseHold(change.Kv.GetKey())
		if err != nil {
			return nil, &damagedError{err}
		}
		if !strings.HasPrefix(name, w.target.Prefix) {
			continue
		}
		revision := change.Kv.GetModRevision()
		var now, before core.Hold
		if change.Type == clientv3.EventTypePut {
			if _, now, err = w.decode(change.Kv); err != nil {
				return nil, err
			}
		}
		if change.PrevKv != nil {
			if _, before, err = w.decode(change.PrevKv); err != nil {
				return nil, err
			}
		}
		if change.Type == clientv3.EventTypeDelete || (before.Token != 0 && before.Token != now.Token) {
			if err := ends.read(ctx, w.etcd, revision); err != nil {
				return nil, err
			}
			events = append(events, Event{Name: name, Hold: before, Over: true, Ended: ends.reason(name, slot), Revision: revision})
		}
		if change.Type == clientv3.EventTypePut {
			events = append(events, Event{Name: name, Hold: now, Granted: now.Token == revision, Revision: revision})
		}
	}
	return events, nil
}

// endings are the ends that the batch of one revision recorded.
type endings struct {
	revision int64
	known    bool
	reasons  map[string]core.EndReason
}

func endingKey(name string, slot int32) string {
	return fmt.Sprintf("%s%s%d", name, slotSeparator, slot)
}

func (r *endings) reason(name string, slot int32) core.EndReason {
	if reason, ok := r.reasons[endingKey(name, slot)]; ok {
		return reason
	}
	if !r.known {
		return 0
	}
	return core.Released
}

// read looks up the commit key that was written at a revision. The history may have been compacted since;
// then the reasons stay unknown.
func (r *endings) read(ctx context.Context, e *Etcd, revision int64) error {
	if r.revision == revision {
		return nil
	}
	*r = endings{revision: revision, reasons: map[string]core.EndReason{}}
	resp, err := e.client.Get(ctx, e.keys.prefix+"commits/", clientv3.WithPrefix(), clientv3.WithRev(revision),
		clientv3.WithMinModRev(revision))
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the reasons at revision %d: %w", revision, err)
	}
	for _, kv := range resp.Kvs {
		var record storepb.Commit
		if err := proto.Unmarshal(kv.GetValue(), &record); err != nil {
			return &damagedError{fmt.Errorf("decode %q: %w", kv.GetKey(), err)}
		}
		r.known = true
		for _, end := range record.GetEnds() {
			r.reasons[endingKey(end.GetName(), end.GetSlot())] = core.EndReason(end.GetReason())
		}
	}
	return nil
}
