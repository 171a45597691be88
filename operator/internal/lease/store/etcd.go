package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/operator/internal/lease/store/storepb"
)

// loadPage is how many records one read returns at most.
const loadPage = 5000

// Etcd is the Store in etcd. It is safe for concurrent use.
type Etcd struct {
	// JournalChanges is how many changes the journal of a session may have before it is settled. It is set before anything else is done.
	JournalChanges int

	client *clientv3.Client
	keys   keys
	// attempt bounds one try of a commit. A proposal on its way to a leader of etcd that dies is lost, and nobody says so: what
	// ends the wait then is trying again, which is safe, since at most one try applies.
	attempt  time.Duration
	identity identity
	// last is the session's last batch; nil: there is none, or one is being committed.
	last     atomic.Pointer[lastBatch]
	journals journals
	present  present
	feed     feed
}

var _ Store = (*Etcd)(nil)

// NewEtcd returns a store that keeps everything under a prefix, which must end in '/', so that it is no
// prefix of another tenant's.
func NewEtcd(client *clientv3.Client, prefix string) (*Etcd, error) {
	if !strings.HasSuffix(prefix, "/") {
		return nil, fmt.Errorf("etcd prefix %q does not end in '/'", prefix)
	}
	return &Etcd{client: client, keys: keys{prefix: prefix}, attempt: 2 * time.Second, JournalChanges: MaxJournal}, nil
}

// Shards implements Store.
func (e *Etcd) Shards(ctx context.Context, want int) (int, error) {
	if want < 1 || want > MaxShards {
		return 0, fmt.Errorf("number of shards is %d; 1 to %d are allowed", want, MaxShards)
	}
	data, err := proto.Marshal(&storepb.Meta{Shards: int32(want)})
	if err != nil {
		return 0, fmt.Errorf("encode meta: %w", err)
	}
	key := e.keys.meta()
	resp, err := e.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, string(data))).
		Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return 0, fmt.Errorf("read the number of shards: %w", err)
	}
	if resp.Succeeded {
		return want, nil
	}
	var meta storepb.Meta
	kvs := resp.Responses[0].GetResponseRange().GetKvs()
	if err := proto.Unmarshal(kvs[0].GetValue(), &meta); err != nil {
		return 0, fmt.Errorf("decode %q: %w", key, err)
	}
	if meta.GetShards() < 1 || meta.GetShards() > MaxShards {
		return 0, fmt.Errorf("%q says %d shards; 1 to %d are allowed", key, meta.GetShards(), MaxShards)
	}
	return int(meta.GetShards()), nil
}

// OpenSession implements Store.
func (e *Etcd) OpenSession(ctx context.Context, ttl time.Duration) (SessionID, time.Duration, error) {
	if err := e.identify(ctx); err != nil {
		return 0, 0, err
	}
	resp, err := e.client.Grant(ctx, int64(math.Ceil(ttl.Seconds())))
	if err != nil {
		return 0, 0, fmt.Errorf("open a session: %w", err)
	}
	e.last.Store(nil)
	return SessionID(resp.ID), time.Duration(resp.TTL) * time.Second, nil
}

// KeepSession implements Store.
func (e *Etcd) KeepSession(ctx context.Context, id SessionID) error {
	// A session may be in a backup too, and so its being there proves nothing.
	if err := e.recognize(ctx, id); err != nil {
		return err
	}
	_, err := e.client.KeepAliveOnce(ctx, clientv3.LeaseID(id))
	return sessionError("keep the session", err)
}

// EndSession implements Store.
func (e *Etcd) EndSession(ctx context.Context, id SessionID) error {
	_, err := e.client.Revoke(ctx, clientv3.LeaseID(id))
	if err := sessionError("end the session", err); err != nil && !errors.Is(err, ErrSessionLost) {
		return err
	}
	return nil
}

func sessionError(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return ErrSessionLost
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Join implements Store.
func (e *Etcd) Join(ctx context.Context, m Member, first bool) (*Cursor, error) {
	data, err := proto.Marshal(&storepb.Member{Name: m.Name, Address: m.Address, Draining: m.Draining})
	if err != nil {
		return nil, fmt.Errorf("encode a member: %w", err)
	}
	lease := clientv3.WithLease(clientv3.LeaseID(m.Session))
	ops := []clientv3.Op{clientv3.OpPut(e.keys.member(m.Session), string(data), lease)}
	if first {
		ops = append(ops, clientv3.OpPut(e.keys.commit(m.Session), "", lease))
	}
	resp, err := e.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, sessionError("join", err)
	}
	if !first {
		return nil, nil
	}
	return &Cursor{session: m.Session, guard: resp.Header.GetRevision(), journal: journal{most: e.JournalChanges}}, nil
}

// claim creates a key that is bound to a session, unless it is there.
func (e *Etcd) claim(ctx context.Context, id SessionID, key string) (Claim, bool, error) {
	resp, err := e.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, "", clientv3.WithLease(clientv3.LeaseID(id)))).
		Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return Claim{}, false, sessionError("claim "+key, err)
	}
	if resp.Succeeded {
		return Claim{Session: id, Revision: resp.Header.GetRevision()}, true, nil
	}
	// The key may be ours from an earlier attempt whose answer was lost.
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		claim := Claim{Session: SessionID(kv.GetLease()), Revision: kv.GetCreateRevision()}
		return claim, claim.Session == id, nil
	}
	return Claim{}, false, nil
}

func (e *Etcd) unclaim(ctx context.Context, key string, claim Claim) error {
	_, err := e.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", claim.Revision)).
		Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return fmt.Errorf("give up %s: %w", key, err)
	}
	return nil
}

// Lead implements Store.
func (e *Etcd) Lead(ctx context.Context, id SessionID) (Claim, bool, error) {
	return e.claim(ctx, id, e.keys.leader())
}

// Resign implements Store.
func (e *Etcd) Resign(ctx context.Context, leader Claim) error {
	return e.unclaim(ctx, e.keys.leader(), leader)
}

// Assign implements Store.
func (e *Etcd) Assign(ctx context.Context, leader Claim, owners []SessionID) (bool, error) {
	assignment := &storepb.Assignment{Owners: make([]int64, len(owners))}
	for i, owner := range owners {
		assignment.Owners[i] = int64(owner)
	}
	data, err := proto.Marshal(assignment)
	if err != nil {
		return false, fmt.Errorf("encode the assignment: %w", err)
	}
	resp, err := e.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(e.keys.leader()), "=", leader.Revision)).
		Then(clientv3.OpPut(e.keys.assignment(), string(data))).Commit()
	if err != nil {
		return false, fmt.Errorf("assign shards: %w", err)
	}
	return resp.Succeeded, nil
}
