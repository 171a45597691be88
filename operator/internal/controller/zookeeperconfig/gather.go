package zookeeperconfig

import (
	"context"
	"errors"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/plan/znode"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// Observation is what one pass knows beside the object.
type Observation struct {
	// problem says why the object cannot be worked on: a *reconcile.StalledError or *reconcile.UnknownError. What
	// follows is then as far as it was got.
	problem error
	// target and session are where the znode should be.
	target  zookeeper.Target
	session Session
	// want and data are what it should be.
	want znode.Want
	data []byte
	// node is what was seen of it.
	node zktypes.Node
	// record is what is on record of it, if that is of this place: current tells that it is the znode in status.znode, returned
	// that it is one that the object had moved away from, and is back at.
	record            *znode.Record
	current, returned bool
	// claimed tells that a claim covers it, and denied that the claim is known to be void.
	claimed, denied bool
	// void tells that the claim is to a znode that another object has, or that the object has let go since.
	void bool
	// change is what the process did last and has not told.
	change *change
	// leaving are the znodes that the object no longer wants: all of them, when it is being deleted. kept are those that it
	// moved away from and that are where it wants one again: they are not to go, whether they can be had or not.
	leaving []leaving
	kept    []v1alpha1.SupersededZnode
	// stray is a znode that was made for the object where it wanted one before, and that no status tells of.
	stray *v1alpha1.ZnodeRecord
	// until bounds what the deletion of the object waits for in this pass. Zero: it is not being deleted.
	until time.Time
	// unseen says of a place where there may be such a znode why that cannot be seen. Empty: there is no such place.
	unseen string
}

// leaving is a znode on its way out.
type leaving struct {
	release znode.Release
	record  v1alpha1.ZnodeRecord
	session Session
	since   time.Time
	// last tells that the object has no other: it goes only once the one that is wanted stands.
	last bool
}

// place names a znode of an ensemble.
func (l leaving) place() string { return l.record.ConnectString + " " + l.record.Path }

// gatherer gathers one observation.
type gatherer struct {
	*controller
	resolver
	// asking bounds requests to ZooKeeper.
	asking  context.Context
	key     string
	watched watched
	out     Observation
}

func (c *controller) gather(ctx context.Context, reader client.Reader, obj *v1alpha1.ZooKeeperConfig) (Observation, error) {
	g := &gatherer{
		controller: c, asking: ctx, key: keyOf(obj),
		resolver: resolver{ctx: ctx, reader: reader, obj: obj, settings: c.settings},
	}
	c.memory.begin(g.key, obj.UID)
	if deleted := obj.DeletionTimestamp; deleted != nil {
		var cancel context.CancelFunc
		g.out.until = c.until(g.key, deleted.Time)
		g.asking, cancel = c.before(ctx, g.out.until)
		defer cancel()
	}
	if text := obj.Annotations[v1alpha1.AnnotationZnodeClaim]; text != "" {
		c.memory.with(g.key, func(r *remembered) { g.out.denied = r.denied == text })
	}
	if err := g.wanted(); err != nil {
		if !stalled(err) && !unclear(err) {
			return Observation{}, err
		}
		g.out.problem = err
	}
	if err := g.unwanted(); err != nil {
		return Observation{}, err
	}
	c.memory.rewatch(g.key, g.watched)
	c.memory.with(g.key, func(r *remembered) { g.out.change, r.change = r.change, nil })
	return g.out, nil
}

// unclear tells whether an error says that ZooKeeper could not be asked.
func unclear(err error) bool {
	var unknown *reconcile.UnknownError
	return errors.As(err, &unknown)
}

// wanted looks at the znode that the spec describes.
func (g *gatherer) wanted() error {
	if err := zktypes.ValidatePath(g.obj.Spec.Path); err != nil {
		return invalid("spec.path: %v", err)
	}
	target, err := g.target()
	if err != nil {
		return err
	}
	g.out.target = target
	path := g.obj.Spec.Path
	if err := zktypes.ValidatePath(target.Connect.Full(path)); err != nil {
		return invalid("spec.path below the chroot of the connect string: %v", err)
	}
	if !znode.Granted(g.controller.settings.Grants, g.obj.Namespace, target.Connect, path) {
		return reconcile.Stalled(v1alpha1.ReasonNotGranted,
			"namespace %s is not granted %s of ZooKeeper %s (zookeeper.grants of the operator's configuration)",
			g.obj.Namespace, target.Connect.Full(path), target.Connect.Ensemble())
	}
	if err := g.uncontested(); err != nil {
		return err
	}
	if g.out.want, g.out.data, err = g.want(target); err != nil {
		return err
	}
	if g.out.session, g.out.node, err = g.look(target, path); err != nil {
		return err
	}
	g.memory.worked(g.key, g.out.session, target)
	g.assign()
	return nil
}

// uncontested tells whether the znode is this object's to have.
func (g *gatherer) uncontested() error {
	full := g.out.target.Connect.Full(g.obj.Spec.Path)
	candidates, err := g.Candidates(g.ctx, g.reader, suffixes(full))
	if err != nil {
		return err
	}
	me := znode.Claimant{
		Namespace: g.obj.Namespace, Name: g.obj.Name, Created: g.obj.CreationTimestamp.Time,
		Holds: holds(g.obj, g.out.target.Connect, full),
	}
	claimants := []znode.Claimant{me}
	for i := range candidates {
		other := &candidates[i]
		if keyOf(other) == g.key {
			continue
		}
		if claimant, ok := g.claimant(other, full); ok {
			claimants = append(claimants, claimant)
		}
	}
	winner := znode.Winner(claimants)
	if winner.Namespace == me.Namespace && winner.Name == me.Name {
		return nil
	}
	// One that is only claimed as well may yet turn out to be ours.
	g.out.void = claims(g.obj, g.out.target.Connect, full) && slices.ContainsFunc(candidates, func(other v1alpha1.ZooKeeperConfig) bool {
		return other.Namespace == winner.Namespace && other.Name == winner.Name && records(&other, g.out.target.Connect, full)
	})
	return reconcile.Stalled(v1alpha1.ReasonPathConflict, "ZooKeeperConfig %s/%s has the znode %s of ZooKeeper %s",
		winner.Namespace, winner.Name, full, g.out.target.Connect.Ensemble())
}

// claimant tells whether another object is after the same znode. One whose own references do not resolve, or that is
// not granted the place, claims nothing: it will not write either.
func (g *gatherer) claimant(other *v1alpha1.ZooKeeperConfig, full string) (znode.Claimant, bool) {
	out := znode.Claimant{
		Namespace: other.Namespace, Name: other.Name, Created: other.CreationTimestamp.Time,
		Holds: holds(other, g.out.target.Connect, full),
	}
	if out.Holds {
		return out, true
	}
	if other.DeletionTimestamp != nil {
		return out, false
	}
	theirs := g.resolver
	theirs.obj = other
	connect, err := theirs.connect()
	if err != nil || !connect.SharesServer(g.out.target.Connect) || connect.Full(other.Spec.Path) != full {
		return out, false
	}
	return out, znode.Granted(g.controller.settings.Grants, other.Namespace, connect, other.Spec.Path)
}

// connect is the connect string alone: whose credential goes with it is nobody else's business.
func (r resolver) connect() (zktypes.ConnectString, error) {
	connection := r.obj.Spec.Connection
	if connection == nil {
		connection = &v1alpha1.ZooKeeperConnection{}
	}
	text, err := r.connectString(connection)
	if err != nil {
		return zktypes.ConnectString{}, err
	}
	if text == "" {
		own, _ := r.ownTarget() // an error is about credential and TLS
		return own.Connect, nil
	}
	return zktypes.ParseConnectString(text)
}

// holds tells whether a znode is on an object's record, or claimed by it.
func holds(obj *v1alpha1.ZooKeeperConfig, connect zktypes.ConnectString, full string) bool {
	return records(obj, connect, full) || claims(obj, connect, full)
}

func records(obj *v1alpha1.ZooKeeperConfig, connect zktypes.ConnectString, full string) bool {
	if r := obj.Status.Znode; r != nil && isAt(r.ConnectString, r.Path, connect, full) {
		return true
	}
	return slices.ContainsFunc(obj.Status.Superseded, func(s v1alpha1.SupersededZnode) bool {
		return isAt(s.Znode.ConnectString, s.Znode.Path, connect, full)
	})
}

func claims(obj *v1alpha1.ZooKeeperConfig, connect zktypes.ConnectString, full string) bool {
	claim, ok := claimOf(obj)
	return ok && claim.After == "" && obj.Status.Znode == nil && isAt(claim.Connect, claim.Path, connect, full)
}

// isAt tells whether a path below a connect string is a znode of an ensemble.
func isAt(text, path string, connect zktypes.ConnectString, full string) bool {
	recorded, err := zktypes.ParseConnectString(text)
	return err == nil && recorded.SharesServer(connect) && recorded.Full(path) == full
}

// claimOf is what an object says that was about to be done for it.
func claimOf(obj *v1alpha1.ZooKeeperConfig) (znode.Claim, bool) {
	return znode.ParseClaim(obj.Annotations[v1alpha1.AnnotationZnodeClaim], string(obj.UID))
}

// suffixes are the paths that, below some chroot, may be a full path: "/a/b" and "/b" for "/a/b".
func suffixes(full string) []string {
	out := []string{full}
	for i := 1; i < len(full); i++ {
		if full[i] == '/' {
			out = append(out, full[i:])
		}
	}
	return out
}

// look observes a znode, and turns ZooKeeper's absence into an UnknownError.
func (g *gatherer) look(target zookeeper.Target, path string) (Session, zktypes.Node, error) {
	namespace, most := g.obj.Namespace, g.controller.settings.NamespaceSessions
	if !target.Own && !g.memory.mayUse(namespace, target.Key(), most) {
		return nil, zktypes.Node{}, reconcile.Unknown(retrySessions, v1alpha1.ReasonEnsembleUnavailable,
			"the objects of namespace %s have as many connections to ZooKeeper as they may have, %d (zookeeper.maxSessionsPerNamespace of the "+
				"operator's configuration): each ensemble and credential is one", namespace, most)
	}
	session, err := g.Sessions(target)
	if err != nil {
		return nil, zktypes.Node{}, g.unavailable(err)
	}
	if full := target.Connect.Full(path); !g.watched.has(session, full) {
		g.watched = append(g.watched, watchedZnode{session, path, full})
	}
	node, err := session.Observe(g.asking, path, g.subscription(g.obj))
	if err != nil {
		return session, zktypes.Node{}, g.unavailable(err)
	}
	return session, node, nil
}

// subscription wakes the object.
func (c *controller) subscription(obj *v1alpha1.ZooKeeperConfig) zookeeper.Subscription {
	namespace, name, wake := obj.Namespace, obj.Name, c.Wake
	return zookeeper.Subscription{Key: keyOf(obj), Notify: func() { wake(namespace, name) }}
}

// unavailable gives an error of a session its type.
func (g *gatherer) unavailable(err error) error {
	var away *zookeeper.UnavailableError
	if errors.As(err, &away) {
		return unknown(away)
	}
	if errors.Is(err, zookeeper.ErrTooManySessions) {
		return reconcile.Unknown(retrySessions, v1alpha1.ReasonEnsembleUnavailable,
			"the operator has as many connections to ZooKeeper as it may have (zookeeper.maxSessions of its configuration): each ensemble and credential is one")
	}
	if g.ctx.Err() != nil {
		return err
	}
	return invalid("spec.connection: %v", err)
}

// retryUnavailable is the time to the next look while the breaker is closed. Once it is open, its closing wakes.
const retryUnavailable = time.Second

// retrySessions is the time to the next try for a session when there are too many.
const retrySessions = 30 * time.Second

// unknown says that an ensemble is away. The message names no cause, which would differ from one pass to the next.
func unknown(away *zookeeper.UnavailableError) error {
	after := retryUnavailable
	if away.Open {
		after = 0
	}
	return reconcile.Unknown(after, v1alpha1.ReasonEnsembleUnavailable, "ZooKeeper %s cannot be reached", away.Ensemble)
}

// assign finds out what is on record about the znode that was seen.
func (g *gatherer) assign() {
	connect, path := g.out.target.Connect.String(), g.obj.Spec.Path
	if r := g.obj.Status.Znode; r != nil && g.here(r) {
		g.out.record, g.out.current = planRecord(r), true
	} else if r := g.supersededHere(); r != nil {
		g.out.record, g.out.returned = planRecord(r), true
	}
	claim, ok := claimOf(g.obj)
	if !ok {
		return
	}
	if g.out.record != nil {
		*g.out.record = claim.Moved(g.out.node, *g.out.record)
	}
	g.out.claimed = !g.out.denied && claim.Covers(connect, path, g.out.node, g.recordForClaim())
	if g.out.claimed && g.out.returned {
		// What was done to it since it is ours again is not somebody else's doing.
		g.out.record = nil
	}
}

// planRecord is a record in the form that decisions are made by.
func planRecord(r *v1alpha1.ZnodeRecord) *znode.Record {
	return &znode.Record{Czxid: znode.ParseZxid(r.Czxid), Version: r.Version, Aversion: r.ACLVersion}
}

// supersededHere is the record of the znode that was seen, when the object moved away from it and now wants it again before it was
// deleted; else nil.
func (g *gatherer) supersededHere() *v1alpha1.ZnodeRecord {
	for i := range g.obj.Status.Superseded {
		if r := &g.obj.Status.Superseded[i].Znode; g.isSeen(r) {
			return r
		}
	}
	return nil
}

// isSeen tells whether a record is of the very znode that was seen where the object wants one.
func (g *gatherer) isSeen(r *v1alpha1.ZnodeRecord) bool {
	return g.out.node.Exists && znode.FormatZxid(g.out.node.Czxid) == r.Czxid && g.here(r)
}

// stays tells whether a znode that the object moved away from is not to go, since the object wants it again. As long as the place
// was not seen every znode that may be there stays.
func (g *gatherer) stays(r *v1alpha1.ZnodeRecord) bool {
	if !g.stuck() {
		return g.isSeen(r)
	}
	if len(g.out.target.Connect.Hosts) == 0 {
		return true // it is not known where the object wants one
	}
	recorded, err := zktypes.ParseConnectString(r.ConnectString)
	return err == nil && recorded.Full(r.Path) == g.out.target.Connect.Full(g.obj.Spec.Path)
}

// recordForClaim is the record that a claim is compared with: the one there is, wherever it is.
func (g *gatherer) recordForClaim() *znode.Record {
	if r := g.obj.Status.Znode; r != nil {
		return &znode.Record{Czxid: znode.ParseZxid(r.Czxid)}
	}
	return nil
}

// here tells whether a record speaks of the znode that the spec describes. It also does when the connect string was
// only written differently, or lists servers of the same ensemble that it did not list before: the znode is then the
// same, created by the same transaction, and must not be taken for one to move away from.
func (g *gatherer) here(r *v1alpha1.ZnodeRecord) bool {
	if r.ConnectString == g.out.target.Connect.String() && r.Path == g.obj.Spec.Path {
		return true
	}
	recorded, err := zktypes.ParseConnectString(r.ConnectString)
	return err == nil && recorded.Full(r.Path) == g.out.target.Connect.Full(g.obj.Spec.Path) &&
		g.out.node.Exists && znode.FormatZxid(g.out.node.Czxid) == r.Czxid
}
