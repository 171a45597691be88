package store

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/operator/internal/lease/store/storepb"
)

// shardState is the record of a shard, and the revision that guards it: 0 if there is no record yet.
type shardState struct {
	record storepb.Shard
	guard  int64
}

func decodeState(key string, kvs []*mvccpb.KeyValue) (*shardState, error) {
	s := &shardState{}
	for _, kv := range kvs {
		if err := proto.Unmarshal(kv.GetValue(), &s.record); err != nil {
			return nil, fmt.Errorf("decode %q: %w", key, err)
		}
		s.guard = kv.GetModRevision()
	}
	return s, nil
}

func (e *Etcd) readState(ctx context.Context, shard int) (*shardState, int64, error) {
	resp, err := e.client.Get(ctx, e.keys.state(shard))
	if err != nil {
		return nil, 0, fmt.Errorf("read the state of shard %d: %w", shard, err)
	}
	state, err := decodeState(e.keys.state(shard), resp.Kvs)
	return state, resp.Header.GetRevision(), err
}

func (e *Etcd) putState(shard int, owner SessionID, settled int64) (clientv3.Op, error) {
	data, err := proto.Marshal(&storepb.Shard{Owner: int64(owner), Settled: settled})
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("encode the state of shard %d: %w", shard, err)
	}
	return clientv3.OpPut(e.keys.state(shard), string(data)), nil
}

// Claim implements Store. A session that has the shard by its record and not by a claim can only be over, or its claim was taken away by a
// hand in the store; either way it may write no more, which the removal of its commit key makes sure of.
func (e *Etcd) Claim(ctx context.Context, id SessionID, shard int) (Claim, bool, error) {
	key := e.keys.claim(shard)
	found, err := e.client.Txn(ctx).Then(clientv3.OpGet(key), clientv3.OpGet(e.keys.state(shard))).Commit()
	if err != nil {
		return Claim{}, false, fmt.Errorf("claim %s: %w", key, err)
	}
	if claim, ok := claimOf(found.Responses[0].GetResponseRange().GetKvs()); ok {
		return claim, claim.Session == id, nil // ours from an earlier attempt whose answer was lost, or another's
	}
	state, err := decodeState(e.keys.state(shard), found.Responses[1].GetResponseRange().GetKvs())
	if err != nil {
		return Claim{}, false, err
	}
	put, err := e.putState(shard, id, state.record.GetSettled())
	if err != nil {
		return Claim{}, false, err
	}
	writes := []clientv3.Op{clientv3.OpPut(key, "", clientv3.WithLease(clientv3.LeaseID(id))), put}
	if former := SessionID(state.record.GetOwner()); former != 0 && former != id {
		writes = append(writes, clientv3.OpDelete(e.keys.commit(former)))
	}
	resp, err := e.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0),
			clientv3.Compare(clientv3.ModRevision(e.keys.state(shard)), "=", state.guard)).
		Then(writes...).
		Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return Claim{}, false, sessionError("claim "+key, err)
	}
	if resp.Succeeded {
		return Claim{Session: id, Revision: resp.Header.GetRevision()}, true, nil
	}
	claim, _ := claimOf(resp.Responses[0].GetResponseRange().GetKvs())
	return claim, claim.Session == id, nil
}

func claimOf(kvs []*mvccpb.KeyValue) (Claim, bool) {
	for _, kv := range kvs {
		return Claim{Session: SessionID(kv.GetLease()), Revision: kv.GetCreateRevision()}, true
	}
	return Claim{}, false
}

// Unclaim implements Store.
func (e *Etcd) Unclaim(ctx context.Context, shard int, claim Claim) error {
	state, _, err := e.readState(ctx, shard)
	if err != nil {
		return err
	}
	put, err := e.putState(shard, 0, state.record.GetSettled())
	if err != nil {
		return err
	}
	key := e.keys.claim(shard)
	resp, err := e.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", claim.Revision),
			clientv3.Compare(clientv3.ModRevision(e.keys.state(shard)), "=", state.guard)).
		Then(clientv3.OpDelete(key), put).
		Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return fmt.Errorf("give up %s: %w", key, err)
	}
	if found, _ := claimOf(resp.Responses[0].GetResponseRange().GetKvs()); !resp.Succeeded && found == claim {
		return fmt.Errorf("give up %s: the state of the shard changed meanwhile", key)
	}
	return nil
}

// Settle implements Store. The caller has made sure that nothing of the shard is in flight, and that nothing will be.
func (e *Etcd) Settle(ctx context.Context, cursor *Cursor, shard int, claim Claim) error {
	if cursor.pending != nil {
		return errors.New("settle: a batch is not finished")
	}
	// What this read returns is newer than all that the journal has of the shard.
	state, revision, err := e.readState(ctx, shard)
	if err != nil {
		return err
	}
	if err := e.settle(ctx, shard, claim, state, cursor.journal.of(shard), revision); err != nil {
		return err
	}
	cursor.journal.drop(shard)
	return nil
}

// settle writes lease keys of an owned shard, and then says that they have all that the journal said up to a revision. Each step
// guards the state of the shard and changes it, so that no copy that is held up can be applied after a later step.
func (e *Etcd) settle(ctx context.Context, shard int, claim Claim, state *shardState, writes []leaseWrite, through int64) error {
	for done := false; !done; {
		n, size := 0, 0
		for n < len(writes) && n < settleWrites && size <= settleBytes {
			size += writes[n].size()
			n++
		}
		ops, err := e.leaseOps(writes[:n])
		if err != nil {
			return err
		}
		writes = writes[n:]
		settled := state.record.GetSettled()
		if done = len(writes) == 0; done {
			settled = through
		}
		put, err := e.putState(shard, claim.Session, settled)
		if err != nil {
			return err
		}
		resp, err := e.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(e.keys.claim(shard)), "=", claim.Revision),
				clientv3.Compare(clientv3.ModRevision(e.keys.state(shard)), "=", state.guard)).
			Then(append(ops, put)...).
			Else(clientv3.OpGet(e.keys.claim(shard))).Commit()
		if err != nil {
			return fmt.Errorf("settle shard %d: %w", shard, err)
		}
		if !resp.Succeeded {
			if found, _ := claimOf(resp.Responses[0].GetResponseRange().GetKvs()); found != claim {
				return fmt.Errorf("settle shard %d: its claim is gone: %w", shard, ErrSessionLost)
			}
			return fmt.Errorf("settle shard %d: an earlier attempt was not over", shard)
		}
		state.guard = resp.Header.GetRevision()
	}
	return nil
}
