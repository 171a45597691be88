package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ReplacedError says that the store is another one than it was, or an older state of it: what it had acknowledged may be lost,
// and its revisions, which tokens are, may begin anew.
type ReplacedError struct{ Why string }

func (e *ReplacedError) Error() string { return "the store was replaced: " + e.Why }

var errReplaced = errors.New("the store was replaced")

// identity is which etcd this is. A member that lost its data comes back with the id of its cluster, which is a hash of how it was
// configured; so a random id is kept in the store, which an empty one lacks, and the revision, which never falls, tells of one
// that was set back.
type identity struct {
	mu      sync.Mutex
	id      string
	cluster uint64
	// revision is the largest that was seen.
	revision int64
	// replaced is made by changed, and closed when the store turns out to be another.
	replaced chan struct{}
}

// saw takes note of a revision.
func (i *identity) saw(revision int64) int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.revision = max(i.revision, revision)
	return i.revision
}

// Seen implements Store.
func (e *Etcd) Seen() int64 { return e.identity.saw(0) }

// changed returns a channel that is closed when the store turns out to be another one than at this moment.
func (i *identity) changed() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.replaced == nil {
		i.replaced = make(chan struct{})
	}
	return i.replaced
}

// check compares the answer to a linearizable read with what is known, and the revision with one that was seen before the read was
// sent. It fails with *ReplacedError, once: from then on the store of this answer is the one known.
func (i *identity) check(id string, floor int64, header *etcdserverpb.ResponseHeader) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	why := ""
	switch revision := header.GetRevision(); {
	case i.id == "":
	case id == "":
		why = fmt.Sprintf("its id, which was %s, is gone; was its data lost?", i.id)
	case id != i.id:
		why = fmt.Sprintf("its id is %s and was %s; was its data lost?", id, i.id)
	case header.GetClusterId() != i.cluster:
		why = fmt.Sprintf("etcd's cluster id is %x and was %x; was a backup restored?", header.GetClusterId(), i.cluster)
	case revision < floor:
		why = fmt.Sprintf("etcd is at revision %d and was at %d; was a backup restored?", revision, floor)
	default:
		i.revision = max(i.revision, revision)
		return nil
	}
	i.id, i.cluster, i.revision = id, header.GetClusterId(), header.GetRevision()
	if why == "" {
		return nil
	}
	if i.replaced != nil {
		close(i.replaced)
		i.replaced = nil
	}
	return &ReplacedError{Why: why}
}

// identify makes sure that the store has an id, and that it is the known one.
func (e *Etcd) identify(ctx context.Context) error {
	key, floor := e.keys.id(), e.identity.saw(0)
	resp, err := e.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, rand.Text()), clientv3.OpGet(key)).
		Else(clientv3.OpGet(key), clientv3.OpGet(key)).Commit()
	if err != nil {
		return fmt.Errorf("read the store's id: %w", err)
	}
	return e.identity.check(string(resp.Responses[1].GetResponseRange().GetKvs()[0].GetValue()), floor, resp.Header)
}

// recognize checks that the store is the known one.
func (e *Etcd) recognize(ctx context.Context) error {
	floor := e.identity.saw(0)
	resp, err := e.client.Get(ctx, e.keys.id())
	if err != nil {
		return fmt.Errorf("read the store's id: %w", err)
	}
	id := ""
	if len(resp.Kvs) > 0 {
		id = string(resp.Kvs[0].GetValue())
	}
	return e.identity.check(id, floor, resp.Header)
}
