package store

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store/storepb"
)

// Commit implements Store.
func (e *Etcd) Commit(ctx context.Context, cursor *Cursor, ops []BatchOp) (int64, error) {
	txn, err := e.batch(cursor, ops)
	if err != nil {
		return 0, err
	}
	resp, err := e.try(ctx, txn)
	switch {
	case err == nil && resp.Succeeded:
		e.identity.saw(resp.Header.GetRevision())
		return cursor.advance(resp.Header.GetRevision()), nil
	case err == nil:
		return e.refused(cursor, ops, resp)
	case permanent(err):
		return 0, fmt.Errorf("commit: %w", err)
	}
	return 0, &UnknownOutcomeError{Err: err}
}

// permanent says that etcd will never accept this batch, and did not this time.
func permanent(err error) bool {
	return errors.Is(err, rpctypes.ErrTooManyOps) || errors.Is(err, rpctypes.ErrDuplicateKey) ||
		errors.Is(err, rpctypes.ErrRequestTooLarge) || errors.Is(err, rpctypes.ErrPermissionDenied)
}

func (c *Cursor) advance(revision int64) int64 {
	c.revision = revision
	c.sequence++
	return revision
}

type batchTxn struct {
	compares []clientv3.Cmp
	writes   []clientv3.Op
	reads    []clientv3.Op
}

func (e *Etcd) try(ctx context.Context, txn *batchTxn) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, e.attempt)
	defer cancel()
	return e.client.Txn(ctx).If(txn.compares...).Then(txn.writes...).Else(txn.reads...).Commit()
}

func (e *Etcd) batch(cursor *Cursor, ops []BatchOp) (*batchTxn, error) {
	commitKey := e.keys.commit(cursor.session)
	txn := &batchTxn{
		compares: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(commitKey), "=", cursor.revision)},
		// All claims in one read: one for each shard would be as much for etcd to take in as the writes.
		reads:  []clientv3.Op{clientv3.OpGet(commitKey), clientv3.OpGet(e.keys.claims(), clientv3.WithPrefix(), clientv3.WithKeysOnly())},
		writes: make([]clientv3.Op, 1, len(ops)+1),
	}
	record := &storepb.Commit{Sequence: cursor.sequence + 1}
	seen := map[int]bool{}
	for i := range ops {
		op := &ops[i]
		if !seen[op.Shard] {
			seen[op.Shard] = true
			key := e.keys.claim(op.Shard)
			txn.compares = append(txn.compares, clientv3.Compare(clientv3.CreateRevision(key), "=", op.Claim.Revision))
		}
		for _, w := range op.Op.Writes {
			key := e.keys.hold(op.Shard, op.Op.Name, w.Slot)
			if w.Hold == nil {
				txn.writes = append(txn.writes, clientv3.OpDelete(key))
				continue
			}
			data, err := encodeHold(w.Hold)
			if err != nil {
				return nil, err
			}
			txn.writes = append(txn.writes, clientv3.OpPut(key, string(data)))
		}
		for _, end := range op.Op.Ends {
			if end.Reason != core.Released {
				record.Ends = append(record.Ends, &storepb.End{Name: op.Op.Name, Slot: end.Slot, Reason: int32(end.Reason)})
			}
		}
	}
	data, err := proto.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("encode a commit: %w", err)
	}
	txn.writes[0] = clientv3.OpPut(commitKey, string(data), clientv3.WithLease(clientv3.LeaseID(cursor.session)))
	return txn, nil
}

// refused finds out why a batch's comparison failed: because an earlier try of the same batch went
// through, because the session is over, or because claims are lost.
func (e *Etcd) refused(cursor *Cursor, ops []BatchOp, resp *clientv3.TxnResponse) (int64, error) {
	kvs := resp.Responses[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		return 0, ErrSessionLost
	}
	if kvs[0].GetModRevision() != cursor.revision {
		var record storepb.Commit
		if err := proto.Unmarshal(kvs[0].GetValue(), &record); err != nil {
			return 0, fmt.Errorf("decode %q: %w", kvs[0].GetKey(), err)
		}
		if record.GetSequence() != cursor.sequence+1 {
			return 0, fmt.Errorf("the commit key is at batch %d, after %d was expected: %w",
				record.GetSequence(), cursor.sequence, ErrSessionLost)
		}
		return cursor.advance(kvs[0].GetModRevision()), nil
	}
	held := map[string]int64{}
	for _, kv := range resp.Responses[1].GetResponseRange().GetKvs() {
		held[string(kv.GetKey())] = kv.GetCreateRevision()
	}
	lost := map[int]bool{}
	err := &ClaimsLostError{}
	for i := range ops {
		shard := ops[i].Shard
		if held[e.keys.claim(shard)] != ops[i].Claim.Revision && !lost[shard] {
			lost[shard] = true
			err.Shards = append(err.Shards, shard)
		}
	}
	return 0, err
}
