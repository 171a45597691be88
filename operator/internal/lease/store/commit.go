package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/internal/lease/store/storepb"
)

// Cursor is a session's place in its sequence of batches, and what is in its journal. Join makes it; Commit moves it. It belongs to
// one goroutine.
type Cursor struct {
	session  SessionID
	sequence uint64 // of the last batch
	// guard is the modification revision of the commit key. A batch that settles rewrites it, and so makes all copies of
	// transactions before it fail, wherever they are held up: the journal keys that would tell that they were applied may be gone.
	guard int64
	// revision is that of the last batch: its key has it for as long as no later batch was committed. See lastBatch.
	revision int64
	// committed is when it was committed.
	committed time.Time
	journal   journal
	// pending is the batch whose outcome is not known.
	pending *pendingBatch
}

// Overdue says that the journal has grown so much that batches with no ops should be committed until it has not.
func (c *Cursor) Overdue() bool { return c.journal.over(journalOverdue) }

type pendingBatch struct {
	record     *storepb.Batch
	settlement *settlement
	bytes      int
	compares   []clientv3.Cmp
	writes     []clientv3.Op
	reads      []clientv3.Op
	// doubtful says that a copy may be on its way.
	doubtful bool
	// last is the last batch if this one is committed only where that is.
	last *lastBatch
}

// restoreTakes is less than it takes to stop etcd, restore a backup and start it. A batch that follows another one sooner is committed to the
// same etcd, unless a try fails; all others look whether it is, which is a tenth of a batch's work for etcd.
const restoreTakes = 200 * time.Millisecond

// follow has a batch committed only where the last one is.
func (b *pendingBatch) follow(last *lastBatch) {
	if last == nil || b.last != nil {
		return
	}
	b.last = last
	b.compares = append(b.compares, clientv3.Compare(clientv3.CreateRevision(last.key), "=", last.revision))
	b.reads = append(b.reads, clientv3.OpGet(last.key, clientv3.WithKeysOnly()))
}

// Commit implements Store.
func (e *Etcd) Commit(ctx context.Context, cursor *Cursor, ops []BatchOp) (int64, error) {
	e.last.Store(nil)
	revision, err := e.commit(ctx, cursor, ops)
	if cursor.pending == nil {
		e.last.Store(e.lastBatch(cursor))
	}
	return revision, err
}

func (e *Etcd) commit(ctx context.Context, cursor *Cursor, ops []BatchOp) (int64, error) {
	if cursor.pending == nil {
		pending, err := e.batch(cursor, ops)
		if err != nil {
			return 0, err
		}
		cursor.pending = pending
	}
	if cursor.pending.doubtful || time.Since(cursor.committed) > restoreTakes {
		cursor.pending.follow(e.lastBatch(cursor))
	}
	resp, err := e.try(ctx, cursor.pending)
	switch {
	case err == nil && resp.Succeeded:
		e.identity.saw(resp.Header.GetRevision())
		return cursor.advance(resp.Header.GetRevision(), ops), nil
	case err == nil:
		return e.refused(cursor, ops, resp)
	case tooLarge(err) && !cursor.pending.doubtful:
		cursor.pending = nil
		return 0, &TooLargeError{Err: err}
	case permanent(err):
		return 0, fmt.Errorf("commit: %w", err)
	}
	cursor.pending.doubtful = true
	return 0, &UnknownOutcomeError{Err: err}
}

// tooLarge says that a batch is refused because of its size: by etcd, or on the way there, by the client or by the server of gRPC. These
// two have no error of their own but one that etcd also uses when it is out of space.
func tooLarge(err error) bool {
	return errors.Is(err, rpctypes.ErrRequestTooLarge) ||
		(status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "message larger than max"))
}

// permanent says that etcd will never accept this batch, and did not this time.
func permanent(err error) bool {
	return errors.Is(err, rpctypes.ErrTooManyOps) || errors.Is(err, rpctypes.ErrDuplicateKey) ||
		errors.Is(err, rpctypes.ErrPermissionDenied) || tooLarge(err)
}

// advance takes note that the pending batch was committed at a revision.
func (c *Cursor) advance(revision int64, ops []BatchOp) int64 {
	c.sequence, c.revision, c.committed = c.sequence+1, revision, time.Now()
	if c.pending.settlement != nil {
		c.guard = revision
		c.journal.forget(c.pending.settlement)
	}
	c.journal.add(c.sequence, revision, ops, c.pending.record, c.pending.bytes)
	c.pending = nil
	return revision
}

func (e *Etcd) try(ctx context.Context, txn *pendingBatch) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, e.attempt)
	defer cancel()
	return e.client.Txn(ctx).If(txn.compares...).Then(txn.writes...).Else(txn.reads...).Commit()
}

// batch makes the transaction of a batch: one more key in the session's journal, and what is due of the journal to lease keys.
func (e *Etcd) batch(cursor *Cursor, ops []BatchOp) (*pendingBatch, error) {
	commitKey, key := e.keys.commit(cursor.session), e.keys.batch(cursor.session, cursor.sequence+1)
	b := &pendingBatch{
		compares: []clientv3.Cmp{
			// The session lives, and no claim of it has passed to another one; and no copy of this batch has been applied.
			clientv3.Compare(clientv3.ModRevision(commitKey), "=", cursor.guard),
			clientv3.Compare(clientv3.CreateRevision(key), "=", 0),
		},
		reads:  []clientv3.Op{clientv3.OpGet(commitKey, clientv3.WithKeysOnly()), clientv3.OpGet(key, clientv3.WithKeysOnly())},
		record: record(ops),
	}
	data, err := b.record.MarshalVT()
	if err != nil {
		return nil, fmt.Errorf("encode a batch: %w", err)
	}
	b.bytes = len(data)
	b.writes = []clientv3.Op{clientv3.OpPut(key, string(data))}
	if b.settlement = cursor.journal.next(); b.settlement == nil {
		return b, nil
	}
	writes, err := e.leaseOps(b.settlement.writes)
	if err != nil {
		return nil, err
	}
	b.writes = append(b.writes, writes...)
	b.writes = append(b.writes, clientv3.OpPut(commitKey, "", clientv3.WithLease(clientv3.LeaseID(cursor.session))))
	if b.settlement.through > 0 {
		b.writes = append(b.writes, clientv3.OpDelete(e.keys.journal(cursor.session),
			clientv3.WithRange(e.keys.batch(cursor.session, b.settlement.through+1))))
	}
	return b, nil
}

// leaseOps are writes as etcd has them.
func (e *Etcd) leaseOps(writes []leaseWrite) ([]clientv3.Op, error) {
	ops := make([]clientv3.Op, len(writes))
	for i, w := range writes {
		key := e.keys.hold(w.shard, w.place.name, w.place.slot)
		if w.hold == nil {
			ops[i] = clientv3.OpDelete(key)
			continue
		}
		data, err := w.hold.MarshalVT()
		if err != nil {
			return nil, fmt.Errorf("encode a hold: %w", err)
		}
		ops[i] = clientv3.OpPut(key, string(data))
	}
	return ops, nil
}

// refused finds out why a batch's comparison failed: because an earlier copy of it went through, or because the session may not
// write any more.
func (e *Etcd) refused(cursor *Cursor, ops []BatchOp, resp *clientv3.TxnResponse) (int64, error) {
	if kvs := resp.Responses[1].GetResponseRange().GetKvs(); len(kvs) > 0 {
		return cursor.advance(kvs[0].GetModRevision(), ops), nil
	}
	last := cursor.pending.last
	cursor.pending = nil // it never will be applied
	kvs := resp.Responses[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		return 0, ErrSessionLost
	}
	if last != nil && kvs[0].GetModRevision() == cursor.guard && !last.isIn(resp.Responses[2]) {
		return 0, errors.Join(ErrSessionLost, e.identity.lacks(last))
	}
	return 0, fmt.Errorf("the commit key is at revision %d, and %d was expected: %w", kvs[0].GetModRevision(), cursor.guard, ErrSessionLost)
}
