package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

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
	w := &watch{etcd: e, shards: shards, target: target, after: after, pass: pass}
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
	etcd   *Etcd
	shards int
	target Target
	after  int64
	pass   func(Update) error
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
	for {
		err := w.live(ctx)
		if errors.Is(err, errBehind) {
			err = w.catchUp(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// live passes on what the feed brings, which all watches of this process share. It ends with errBehind when the feed is or gets too far
// ahead.
func (w *watch) live(ctx context.Context) error {
	s := w.etcd.feed.join(w.etcd, w.target, w.after)
	if s == nil {
		return errBehind
	}
	defer w.etcd.feed.leave(s)
	for {
		select {
		case update, ok := <-s.updates:
			if !ok {
				return errBehind
			}
			if err := w.advance(update); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// advance passes on an update, unless its events were passed on before.
func (w *watch) advance(u Update) error {
	if u.Revision <= w.after {
		return nil
	}
	if err := w.pass(u); err != nil {
		return &passError{err}
	}
	w.after = u.Revision
	return nil
}

// catchUp reads the history by itself until the feed can be joined.
func (w *watch) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for resp := range w.etcd.watchJournals(ctx, w.after) {
		if err := resp.Err(); err != nil {
			return err
		}
		updates, err := updatesOf(resp)
		if err != nil {
			return err
		}
		for _, u := range updates {
			u.Events = slices.DeleteFunc(u.Events, func(event Event) bool { return !w.target.matches(event.Name) })
			if len(u.Events) == 0 && !resp.IsProgressNotify() {
				w.after = max(w.after, u.Revision)
				continue
			}
			if err := w.advance(u); err != nil {
				return err
			}
		}
		if w.etcd.feed.reached(w.after) {
			return nil
		}
	}
	return ctx.Err()
}

// watchJournals watches what is written to the journals after a revision.
func (e *Etcd) watchJournals(ctx context.Context, after int64) clientv3.WatchChan {
	return e.client.Watch(ctx, e.keys.journals(), clientv3.WithPrefix(), clientv3.WithRev(after+1), clientv3.WithFilterDelete(),
		clientv3.WithProgressNotify())
}

// updatesOf makes an update of each batch, or of a notice of progress.
func updatesOf(resp clientv3.WatchResponse) ([]Update, error) {
	if resp.IsProgressNotify() {
		return []Update{{Revision: resp.Header.GetRevision()}}, nil
	}
	updates := make([]Update, 0, len(resp.Events))
	for _, change := range resp.Events {
		batch, err := decodeBatch(change.Kv)
		if err != nil {
			return nil, err
		}
		events, err := changesOf(batch, change.Kv.GetModRevision())
		if err != nil {
			return nil, &damagedError{fmt.Errorf("read %q: %w", change.Kv.GetKey(), err)}
		}
		// Two replicas never commit at one revision, so an update is a whole revision.
		updates = append(updates, Update{Revision: change.Kv.GetModRevision(), Events: events})
	}
	return updates, nil
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
