package zookeeperconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/plan/znode"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// retryDelete is how long an obstacle to a deletion stands before it is tried again.
const retryDelete = 500 * time.Millisecond

// unwanted looks at the znodes that the object has and no longer wants.
func (g *gatherer) unwanted() error {
	deleted, current := g.obj.DeletionTimestamp, g.obj.Status.Znode
	for _, superseded := range g.obj.Status.Superseded {
		if deleted == nil && g.stays(&superseded.Znode) {
			g.out.kept = append(g.out.kept, superseded)
			continue
		}
		since, deadline := superseded.Since.Time, g.controller.settings.MoveDeadline
		if deleted != nil {
			since, deadline = deleted.Time, g.controller.settings.DeletionDeadline
		}
		if err := g.leave(superseded.Znode, since, deadline); err != nil {
			return err
		}
	}
	switch {
	case deleted == nil && g.stuck():
		return nil
	case deleted == nil && (current == nil || g.out.current):
		return g.strayed()
	case deleted == nil:
		err := g.leave(*current, g.Clock.Now(), g.controller.settings.MoveDeadline)
		if err == nil {
			g.out.leaving[len(g.out.leaving)-1].last = true
			err = g.strayed()
		}
		return err
	case current != nil:
		if err := g.leave(*current, deleted.Time, g.controller.settings.DeletionDeadline); err != nil {
			return err
		}
	}
	return g.leaveClaimed(deleted.Time)
}

// stuck tells that the znode that the spec describes cannot be had: the one on record then stays as well.
func (g *gatherer) stuck() bool { return g.out.problem != nil }

// leaveClaimed adds the znode that was about to be created or taken over when the object was deleted, and that no status
// tells of. What another object has meanwhile is that one's, whoever made it.
func (g *gatherer) leaveClaimed(since time.Time) error {
	claim, ok := claimOf(g.obj)
	if !ok {
		return nil
	}
	if taken, err := g.taken(claim); taken || err != nil {
		return err
	}
	if claim.Spent(g.recordForClaim()) {
		return nil
	}
	if err := g.leave(recordOfClaim(claim), since, g.controller.settings.DeletionDeadline); err != nil {
		return err
	}
	last := &g.out.leaving[len(g.out.leaving)-1]
	var denied bool
	g.memory.with(g.key, func(r *remembered) { denied = r.denied == claim.String() })
	last.release.Claimed = !denied && claim.Covers(claim.Connect, claim.Path, last.release.Node, g.recordForClaim())
	return nil
}

// taken tells whether another object holds the znode of a claim.
func (g *gatherer) taken(claim znode.Claim) (bool, error) {
	connect, err := zktypes.ParseConnectString(claim.Connect)
	if err != nil {
		return true, nil // it is nowhere
	}
	full := connect.Full(claim.Path)
	candidates, err := g.Candidates(g.ctx, g.reader, suffixes(full))
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(candidates, func(other v1alpha1.ZooKeeperConfig) bool {
		return keyOf(&other) != g.key && holds(&other, connect, full)
	}), nil
}

// leave adds one znode, as it is seen.
func (g *gatherer) leave(record v1alpha1.ZnodeRecord, since time.Time, deadline time.Duration) error {
	out := leaving{
		record: record, since: since,
		release: znode.Release{
			Keep: g.obj.Spec.DeletionPolicy == v1alpha1.DeletionOrphan, Czxid: znode.ParseZxid(record.Czxid),
			Since: since, Deadline: deadline,
		},
	}
	target, err := g.targetOfRecord(record)
	switch {
	case err != nil && !stalled(err) && !unclear(err):
		return err
	case err != nil:
		out.release.Unseen, out.release.Obstacle = true, err.Error()
	case !znode.Granted(g.controller.settings.Grants, g.obj.Namespace, target.Connect, record.Path):
		// What is no longer granted is no longer written to, deletions included.
		out.release.Unseen, out.release.Obstacle, out.release.Deadline = true, "it is no longer granted to the namespace", 0
	default:
		if err := g.seeLeaving(&out, target); err != nil {
			return err
		}
	}
	g.out.leaving = append(g.out.leaving, out)
	return nil
}

func (g *gatherer) seeLeaving(out *leaving, target zookeeper.Target) error {
	session, node, err := g.look(target, out.record.Path)
	switch {
	case err != nil && (unclear(err) || stalled(err)):
		out.release.Unseen, out.release.Obstacle = true, err.Error()
		return nil
	case err != nil:
		return err
	}
	out.session, out.release.Node = session, node
	g.memory.with(g.key, func(r *remembered) {
		if found, ok := r.obstacles[out.place()]; ok && g.Clock.Now().Before(found.until) {
			out.release.Obstacle = found.text
		}
	})
	return nil
}

// targetOfRecord is how the znode on record was reached. When a Secret that it needs is gone (a namespace that is deleted
// loses its Secrets in no order), the last target that worked will do, or the present one of the same ensemble.
func (g *gatherer) targetOfRecord(record v1alpha1.ZnodeRecord) (zookeeper.Target, error) {
	present := record.ConnectString == g.out.target.Connect.String()
	if present && recordedReach(record) == reachOf(g.obj) {
		return g.out.target, nil // another credential may not be let to what this one made
	}
	target, err := g.targetOf(record.ConnectString, recordedReach(record))
	if err == nil || !stalled(err) && !unclear(err) {
		return target, err
	}
	if known := g.memory.lastTarget(g.key, record.ConnectString); known != nil {
		return *known, nil
	}
	if present {
		return g.out.target, nil
	}
	return zookeeper.Target{}, err
}

// remove deletes a znode that is on its way out. What keeps it from going is remembered for a moment, and is no error:
// the next look decides what follows.
func (c *controller) remove(ctx context.Context, key string, l leaving) error {
	err := l.session.DeleteCreated(ctx, key, l.record.Path, l.release.Node.Czxid, l.release.Node.Version)
	var away *zookeeper.UnavailableError
	switch {
	case err == nil, errors.Is(err, zookeeper.ErrNoNode), errors.Is(err, zookeeper.ErrBadVersion):
		return nil
	case errors.Is(err, zookeeper.ErrNotEmpty):
		c.hinder(key, l, "it has children")
		return nil
	case errors.Is(err, zookeeper.ErrNoAuth):
		c.hinder(key, l, "the access control list of its parent does not let the operator delete it")
		return nil
	case errors.As(err, &away):
		c.hinder(key, l, fmt.Sprintf("ZooKeeper %s cannot be reached", away.Ensemble))
		return nil
	}
	return err
}

func (c *controller) hinder(key string, l leaving, text string) {
	c.memory.with(key, func(r *remembered) {
		if r.obstacles == nil {
			r.obstacles = map[string]obstacle{}
		}
		r.obstacles[l.place()] = obstacle{text: text, until: c.Clock.Now().Add(retryDelete)}
	})
}

// maxDeletes bounds the attempts of one pass of a finalizer, each at the version that was just seen.
const maxDeletes = 4

// ending is what became of a znode.
type ending struct {
	leaving
	parting znode.Parting
	detail  string
}

// A request may take longer than a deletion may: leastPatience is what a pass of a deletion has for all of its requests once the
// deadline is near or over, and firstPatience is that of the first one that a process makes, when it comes too late: the operator was
// away, and has no session yet.
const (
	leastPatience = time.Second
	firstPatience = 5 * time.Second
)

// until is when a pass of a deletion must be over.
func (c *controller) until(key string, deleted time.Time) time.Time {
	now, deadline := c.Clock.Now(), deleted.Add(c.settings.DeletionDeadline)
	patience := leastPatience
	c.memory.with(key, func(r *remembered) {
		if !r.parting && now.After(deadline) {
			patience = firstPatience
		}
		r.parting = true
	})
	if least := now.Add(patience); least.After(deadline) {
		return least
	}
	return deadline
}

// before returns a context that ends at an instant of the controller's clock.
func (c *controller) before(ctx context.Context, until time.Time) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, until.Sub(c.Clock.Now()))
}

// finalize deletes or leaves what the object has, and lets the object go when nothing is left to wait for.
func (c *controller) finalize(ctx context.Context, obj *v1alpha1.ZooKeeperConfig, observed Observation) error {
	ctx, cancel := c.before(ctx, observed.until)
	defer cancel()
	var endings []ending
	for _, l := range observed.leaving {
		end, err := c.end(ctx, obj, l)
		if err != nil {
			return err
		}
		endings = append(endings, end)
	}
	c.memory.forget(keyOf(obj), obj.UID)
	for _, end := range endings {
		c.tell(obj, end)
	}
	return nil
}

// end sees one znode off, or returns a *reconcile.WaitError.
func (c *controller) end(ctx context.Context, obj *v1alpha1.ZooKeeperConfig, l leaving) (ending, error) {
	deleted := false
	for range maxDeletes {
		parting, detail, wait := znode.Part(l.release, c.Clock.Now())
		switch {
		case parting == znode.Await:
			return ending{}, reconcile.Wait(min(wait, c.retryOf(l)), v1alpha1.ReasonDeleting, "znode %s: %s", l.record.Path, detail)
		case parting != znode.Delete && deleted && !l.release.Node.Exists:
			return ending{leaving: l, parting: znode.Delete}, nil
		case parting != znode.Delete:
			return ending{leaving: l, parting: parting, detail: detail}, nil
		}
		if err := c.remove(ctx, keyOf(obj), l); err != nil {
			return ending{}, reconcile.Transient(err, v1alpha1.ReasonDeleting, "znode %s: deleting it failed", l.record.Path)
		}
		deleted = true
		var err error
		if l, err = c.lookAgain(ctx, obj, l); err != nil {
			return ending{}, err
		}
	}
	return ending{}, reconcile.Wait(retryDelete, v1alpha1.ReasonDeleting, "znode %s: somebody changes it all the time", l.record.Path)
}

// retryOf is the time to the next look at a znode that cannot be deleted: an ensemble that is away wakes the object when
// it is back; children do not when they go.
func (c *controller) retryOf(l leaving) time.Duration {
	if l.release.Unseen {
		return c.settings.DeletionDeadline
	}
	return retryDelete
}

func (c *controller) lookAgain(ctx context.Context, obj *v1alpha1.ZooKeeperConfig, l leaving) (leaving, error) {
	l.release.Obstacle = ""
	c.memory.with(keyOf(obj), func(r *remembered) {
		if found, ok := r.obstacles[l.place()]; ok && c.Clock.Now().Before(found.until) {
			l.release.Obstacle = found.text
		}
	})
	node, err := l.session.Observe(ctx, l.record.Path, c.subscription(obj))
	var away *zookeeper.UnavailableError
	switch {
	case errors.As(err, &away):
		l.release.Unseen, l.release.Obstacle = true, unknown(away).Error()
	case err != nil:
		return l, reconcile.Transient(err, v1alpha1.ReasonDeleting, "znode %s: looking at it failed", l.record.Path)
	default:
		l.release.Node = node
	}
	return l, nil
}

// tell emits the event of a deletion: the object is gone before a status could carry it.
func (c *controller) tell(obj *v1alpha1.ZooKeeperConfig, end ending) {
	event := partingEvent(end.leaving, end.parting, end.detail)
	if c.Recorder != nil && event.Reason != "" {
		c.Recorder.Eventf(obj, nil, event.Type, event.Reason, "Reconcile", "%s", event.Message)
	}
}

// partingEvent says what became of a znode. There is nothing to say of one that never was.
func partingEvent(l leaving, parting znode.Parting, detail string) reconcile.Event {
	where := fmt.Sprintf("znode %s of %s", l.record.Path, l.record.ConnectString)
	switch {
	case parting == znode.Delete:
		return reconcile.Event{Type: corev1.EventTypeNormal, Reason: v1alpha1.ReasonDeleted, Message: where + " was deleted"}
	case parting == znode.Orphan && l.release.Keep:
		return reconcile.Event{Type: corev1.EventTypeNormal, Reason: v1alpha1.ReasonOrphaned, Message: where + " is left: " + detail}
	case parting == znode.Orphan:
		return reconcile.Event{Type: corev1.EventTypeWarning, Reason: v1alpha1.ReasonOrphaned, Message: where + " is left behind: " + detail}
	case l.release.Czxid != 0:
		return reconcile.Event{Type: corev1.EventTypeNormal, Reason: v1alpha1.ReasonDeleted, Message: where + ": " + detail}
	}
	return reconcile.Event{}
}
