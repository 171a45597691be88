package reconcile

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// catchUp is how long a cache may lag behind a write of ours before it is believed all the same: the object may have
// been changed or deleted so soon after the write that the cache never shows what we wait for.
const catchUp = 5 * time.Second

// objectKey names one object of one type.
type objectKey struct {
	kind schema.GroupKind
	name types.NamespacedName
}

// ledger remembers our last write to each object until the cache shows it.
//
// It saves writes and is no protection: correctness rests on preconditions alone. A create is refused when
// the object exists, an apply and a status patch when it is not at the resource version that was decided on, and a
// delete when it is another object; so a pass on an outdated cache, after a restart with an empty ledger or with two
// operators at once, ends in a conflict and not in a wrong write. The ledger only keeps such passes from asking.
//
// Entries go when the cache caught up, after catchUp, or with the owner, so the ledger holds what is in flight.
//
// It also remembers applies that changed nothing, because something at the API server (a mutating webhook) rewrites what we
// want. One is enough: the same intent for the same state is not sent again.
type ledger struct {
	mu     sync.Mutex
	writes map[types.NamespacedName]map[objectKey]written // by owner
	vain   map[types.NamespacedName]map[objectKey]string  // by owner; the state and the intent
	status map[types.NamespacedName]time.Time             // of the last status of an owner that makes progress, or of its first pass
}

type written struct {
	at              time.Time
	resourceVersion string    // of the object after our write
	deleted         types.UID // the object that we deleted, instead
	final           bool      // it is gone, and not only going
}

func newLedger() *ledger {
	return &ledger{
		writes: map[types.NamespacedName]map[objectKey]written{}, vain: map[types.NamespacedName]map[objectKey]string{},
		status: map[types.NamespacedName]time.Time{},
	}
}

// wrote records that an object is at a resource version since our write.
func (l *ledger) wrote(owner types.NamespacedName, key objectKey, resourceVersion string, now time.Time) {
	l.record(owner, key, written{at: now, resourceVersion: resourceVersion})
}

// deleted records that we deleted an object.
func (l *ledger) deleted(owner types.NamespacedName, key objectKey, uid types.UID, now time.Time) {
	l.record(owner, key, written{at: now, deleted: uid})
}

// released records that we let an object go that was only kept by us.
func (l *ledger) released(owner types.NamespacedName, key objectKey, uid types.UID, now time.Time) {
	l.record(owner, key, written{at: now, deleted: uid, final: true})
}

func (l *ledger) record(owner types.NamespacedName, key objectKey, w written) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writes[owner] == nil {
		l.writes[owner] = map[objectKey]written{}
	}
	l.writes[owner][key] = w
}

// pending returns the objects of an owner whose last write the cache may not show yet.
func (l *ledger) pending(owner types.NamespacedName) []objectKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := make([]objectKey, 0, len(l.writes[owner]))
	for key := range l.writes[owner] {
		keys = append(keys, key)
	}
	return keys
}

// behind tells whether cached (nil: not in the cache) is older than our last write to it.
func (l *ledger) behind(owner types.NamespacedName, key objectKey, cached client.Object, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, there := l.writes[owner][key]
	if !there {
		return false
	}
	if now.Sub(w.at) < catchUp && !w.shownBy(cached) {
		return true
	}
	delete(l.writes[owner], key)
	if len(l.writes[owner]) == 0 {
		delete(l.writes, owner)
	}
	return false
}

func (w written) shownBy(cached client.Object) bool {
	if w.deleted != "" {
		return cached == nil || cached.GetUID() != w.deleted || (!w.final && cached.GetDeletionTimestamp() != nil)
	}
	if cached == nil {
		return false
	}
	// A resource version that cannot be compared proves nothing; believe the cache rather than wait.
	order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), w.resourceVersion)
	return err != nil || order >= 0
}

// forget drops everything about an owner that is gone.
func (l *ledger) forget(owner types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.writes, owner)
	delete(l.vain, owner)
	delete(l.status, owner)
}

// pace is the least time between two statuses that say only how far something has got.
const pace = 3 * time.Second

// paced is the time that such a status still has to wait. The first one of all waits from when it was to be written first. When
// the process that wrote the last one is gone: none.
func (l *ledger) paced(owner types.NamespacedName, first bool, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.status[owner]; first && !known {
		l.status[owner] = now
	}
	return max(0, l.status[owner].Add(pace).Sub(now))
}

// stated records that the status of an owner was written, and whether it goes on to make progress.
func (l *ledger) stated(owner types.NamespacedName, moving bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if moving {
		l.status[owner] = now
	} else {
		delete(l.status, owner)
	}
}

// inVain records that a change had no effect.
func (l *ledger) inVain(owner types.NamespacedName, c change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.vain[owner] == nil {
		l.vain[owner] = map[objectKey]string{}
	}
	l.vain[owner][c.key] = c.mark()
}

// isVain tells whether a change was made before, on the same state, and had no effect.
func (l *ledger) isVain(owner types.NamespacedName, c change) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	mark, there := l.vain[owner][c.key]
	return there && c.verb == verbUpdate && mark == c.mark()
}
