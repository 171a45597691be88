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
// that was set back. A backup that was restored with a higher revision than there ever was shows by none of these: see lastBatch.
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
	return i.replace(why)
}

// replace tells that the store is another one. The lock is held.
func (i *identity) replace(why string) error {
	if i.replaced != nil {
		close(i.replaced)
		i.replaced = nil
	}
	return &ReplacedError{Why: why}
}

// lacks tells that a store is another one because it has not a session's last batch.
func (i *identity) lacks(last *lastBatch) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.replace(fmt.Sprintf("etcd has no longer what was committed at revision %d; was a backup restored?", last.revision))
}

// lastBatch is the key of the last batch that a session committed, and its revision. It is the session's to delete, which only a later batch
// does. So a store that has it has all that the session knows; and one that does not, though the session is there, is an older state.
type lastBatch struct {
	session  SessionID
	key      string
	revision int64
}

// lastBatch is nil if there is none.
func (e *Etcd) lastBatch(cursor *Cursor) *lastBatch {
	if cursor.sequence == 0 {
		return nil
	}
	return &lastBatch{session: cursor.session, key: e.keys.batch(cursor.session, cursor.sequence), revision: cursor.revision}
}

func (l *lastBatch) isIn(answer *etcdserverpb.ResponseOp) bool {
	kvs := answer.GetResponseRange().GetKvs()
	return len(kvs) > 0 && kvs[0].GetCreateRevision() == l.revision
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

// recognize checks that the store is the known one, and has all that a session committed.
func (e *Etcd) recognize(ctx context.Context, id SessionID) error {
	floor, last := e.identity.saw(0), e.last.Load()
	if last != nil && last.session != id {
		last = nil
	}
	reads := []clientv3.Op{clientv3.OpGet(e.keys.id())}
	if last != nil {
		reads = append(reads, clientv3.OpGet(last.key, clientv3.WithKeysOnly()))
	}
	resp, err := e.client.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return fmt.Errorf("read the store's id: %w", err)
	}
	storeID := ""
	if kvs := resp.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
		storeID = string(kvs[0].GetValue())
	}
	if err := e.identity.check(storeID, floor, resp.Header); err != nil {
		return err
	}
	if last != nil && !last.isIn(resp.Responses[1]) && e.last.Load() == last { // no batch that could have deleted it was sent meanwhile
		return e.identity.lacks(last)
	}
	return nil
}
