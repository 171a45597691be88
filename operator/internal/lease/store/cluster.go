package store

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/operator/internal/lease/store/storepb"
)

const (
	retryFirst = 20 * time.Millisecond
	retryMost  = time.Second
)

// WatchCluster implements Store.
func (e *Etcd) WatchCluster(ctx context.Context, shards int, pass func(*Cluster)) error {
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		passed := false
		err := e.watchClusterOnce(ctx, shards, func(c *Cluster) { passed = true; pass(c) })
		if ctx.Err() != nil {
			return fmt.Errorf("watch the cluster: %w", ctx.Err())
		}
		if err != nil && !retriable(err) {
			return err
		}
		if passed {
			wait = retryFirst
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("watch the cluster: %w", ctx.Err())
		case <-time.After(wait):
		}
	}
}

// retriable says whether reading again may help: not with damaged records.
func retriable(err error) bool { return !isDamaged(err) }

func (e *Etcd) watchClusterOnce(ctx context.Context, shards int, pass func(*Cluster)) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	prefix := e.keys.cluster()
	resp, err := e.client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("read the cluster: %w", err)
	}
	state := map[string]*mvccpb.KeyValue{}
	for _, kv := range resp.Kvs {
		state[string(kv.GetKey())] = kv
	}
	show := func(revision int64) error {
		cluster, err := e.cluster(shards, revision, state)
		if err == nil {
			pass(cluster)
		}
		return err
	}
	if err := show(resp.Header.GetRevision()); err != nil {
		return err
	}
	for update := range e.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(resp.Header.GetRevision()+1)) {
		if err := update.Err(); err != nil {
			return fmt.Errorf("watch the cluster: %w", err)
		}
		for _, event := range update.Events {
			if event.Type == clientv3.EventTypeDelete {
				delete(state, string(event.Kv.GetKey()))
				continue
			}
			state[string(event.Kv.GetKey())] = event.Kv
		}
		if len(update.Events) == 0 {
			continue
		}
		e.identity.saw(update.Header.GetRevision())
		if err := show(update.Header.GetRevision()); err != nil {
			return err
		}
	}
	return nil
}

type damagedError struct{ err error }

func (e *damagedError) Error() string { return e.err.Error() }
func (e *damagedError) Unwrap() error { return e.err }

func (e *Etcd) cluster(shards int, revision int64, state map[string]*mvccpb.KeyValue) (*Cluster, error) {
	c := &Cluster{Revision: revision, Claims: make([]Claim, shards), Assigned: make([]SessionID, shards)}
	for key, kv := range state {
		claim := Claim{Session: SessionID(kv.GetLease()), Revision: kv.GetCreateRevision()}
		switch {
		case key == e.keys.leader():
			c.Leader = claim
		case key == e.keys.assignment():
			var assignment storepb.Assignment
			if err := proto.Unmarshal(kv.GetValue(), &assignment); err != nil {
				return nil, &damagedError{fmt.Errorf("decode %q: %w", key, err)}
			}
			for shard, owner := range assignment.GetOwners() {
				if shard < shards {
					c.Assigned[shard] = SessionID(owner)
				}
			}
		case strings.HasPrefix(key, e.keys.claims()):
			shard, err := strconv.ParseUint(strings.TrimPrefix(key, e.keys.claims()), 16, 16)
			if err != nil || int(shard) >= shards {
				return nil, &damagedError{fmt.Errorf("claim key %q names no shard below %d", key, shards)}
			}
			c.Claims[shard] = claim
		case strings.HasPrefix(key, e.keys.members()):
			member, err := e.decodeMember(key, kv)
			if err != nil {
				return nil, &damagedError{err}
			}
			c.Members = append(c.Members, member)
		}
	}
	slices.SortFunc(c.Members, func(a, b Member) int { return int(a.Joined - b.Joined) })
	return c, nil
}

func (e *Etcd) decodeMember(key string, kv *mvccpb.KeyValue) (Member, error) {
	id, err := hex.DecodeString(strings.TrimPrefix(key, e.keys.members()))
	if err != nil || len(id) != 8 {
		return Member{}, fmt.Errorf("member key %q names no session", key)
	}
	var record storepb.Member
	if err := proto.Unmarshal(kv.GetValue(), &record); err != nil {
		return Member{}, fmt.Errorf("decode %q: %w", key, err)
	}
	return Member{
		Session: SessionID(binary.BigEndian.Uint64(id)), Name: record.GetName(), Address: record.GetAddress(),
		Draining: record.GetDraining(), Joined: kv.GetCreateRevision(),
	}, nil
}
