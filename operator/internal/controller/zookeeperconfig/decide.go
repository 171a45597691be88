package zookeeperconfig

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/plan/znode"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

type plan = reconcile.Plan[*v1alpha1.ZooKeeperConfig]

// status is what a plan says of the znode.
type status struct {
	state   v1alpha1.ZnodeState
	synced  metav1.ConditionStatus
	reason  string
	message string
	drift   string
	// record is the znode that the object has; nil leaves the one on record. wrote tells that something was done for it: the
	// versions alone can differ because somebody wrote what was there already.
	record *v1alpha1.ZnodeRecord
	wrote  bool
	// drop removes the record: the znode is not the object's.
	drop bool
	// superseded replaces the list when moved is set.
	superseded []v1alpha1.SupersededZnode
	moved      bool
}

// decide plans one pass: at most one change, and the status as it is before that change.
func (c *controller) decide(obj *v1alpha1.ZooKeeperConfig, o Observation, now time.Time) plan {
	if o.problem != nil {
		return c.decideProblem(obj, o, now)
	}
	if o.denied && o.node.Exists && o.record == nil {
		return c.decideDenied(obj, now)
	}
	switch {
	case o.stray != nil:
		return c.decideStray(obj, o, now)
	case o.void && !obj.Spec.Paused:
		out := c.conclude(now, pending("a claim is taken back that came to nothing"), nil)
		out.Effect = c.takeBack(obj)
		return out
	}
	d := znode.Decide(o.want, o.node, o.record, o.claimed)
	switch d.Verb {
	case znode.Create, znode.SetACL, znode.SetData:
		return c.decideChange(obj, o, d, now)
	case znode.Report:
		return c.without(obj, o, now, status{
			state: v1alpha1.ZnodeOutOfSync, synced: metav1.ConditionFalse, reason: v1alpha1.ReasonDrifted,
			message: "somebody else changed the znode, and driftPolicy is Report", drift: d.Detail,
		}, reconcile.Stalled(v1alpha1.ReasonDrifted, "the znode differs from what is declared (%s), and driftPolicy is Report", d.Detail))
	case znode.Refuse:
		return c.decideRefusal(obj, o, d, now)
	case znode.Nothing, znode.Leave:
	}
	return c.decideInPlace(obj, o, d, now)
}

func (c *controller) decideProblem(obj *v1alpha1.ZooKeeperConfig, o Observation, now time.Time) plan {
	var about *reconcile.StalledError
	var unknown *reconcile.UnknownError
	out := status{state: v1alpha1.ZnodeError, synced: metav1.ConditionUnknown, message: o.problem.Error()}
	switch {
	case errors.As(o.problem, &about):
		out.synced, out.reason = metav1.ConditionFalse, about.Reason
	case errors.As(o.problem, &unknown):
		out.reason = unknown.Reason
	}
	p := c.without(obj, o, now, out, o.problem)
	if (o.void || o.denied) && p.Effect == nil && !obj.Spec.Paused {
		p.Effect = c.takeBack(obj)
	}
	return p
}

// decideDenied voids a claim whose creation was answered with "exists".
func (c *controller) decideDenied(obj *v1alpha1.ZooKeeperConfig, now time.Time) plan {
	out := c.conclude(now, pending("somebody else created the znode at the same time"), nil)
	out.Effect = c.takeBack(obj)
	return out
}

// takeBack voids a claim that came to nothing: were it left, an equal znode that somebody else made would be taken for ours
// after a restart, or when the object is deleted.
func (c *controller) takeBack(obj *v1alpha1.ZooKeeperConfig) *reconcile.Effect {
	key := keyOf(obj)
	return &reconcile.Effect{
		What:  "take the claim to the znode back",
		Claim: map[string]string{v1alpha1.AnnotationZnodeClaim: "void"},
		Run: func(context.Context) error {
			c.memory.with(key, func(r *remembered) { r.denied = "" })
			return nil
		},
	}
}

func pending(message string) status {
	return status{state: v1alpha1.ZnodePending, synced: metav1.ConditionFalse, reason: v1alpha1.ReasonProgressing, message: message}
}

var changing = map[znode.Verb]string{
	znode.Create: "create the znode", znode.SetACL: "set the access control list of the znode", znode.SetData: "set the data of the znode",
}

// decideChange plans one change of the znode.
func (c *controller) decideChange(obj *v1alpha1.ZooKeeperConfig, o Observation, d znode.Decision, now time.Time) plan {
	what := changing[d.Verb] + " " + obj.Spec.Path
	view := pending("the operator is to " + what)
	if first := c.without(obj, o, now, view, nil); first.Effect != nil {
		return first
	}
	if obj.Spec.Paused {
		view = status{
			state: v1alpha1.ZnodeOutOfSync, synced: metav1.ConditionFalse, reason: v1alpha1.ReasonPaused,
			message: "paused: would " + what, drift: d.Detail,
		}
	}
	out := c.conclude(now, view, nil)
	claim := znode.NewChange(string(obj.UID), o.target.Connect.String(), obj.Spec.Path, o.want, o.node, recorded(obj))
	if d.Verb == znode.Create {
		claim = znode.NewClaim(string(obj.UID), o.target.Connect.String(), obj.Spec.Path, o.want, recorded(obj))
	}
	claim.Reach = reachOf(obj)
	effect := &reconcile.Effect{What: what, Claim: map[string]string{v1alpha1.AnnotationZnodeClaim: claim.String()}}
	a := attempt{
		key: keyOf(obj), path: obj.Spec.Path, claim: claim.String(),
		first: obj.Annotations[v1alpha1.AnnotationZnodeClaim] != claim.String(),
	}
	effect.Run = func(ctx context.Context) error {
		c.tellUnseen(obj, o)
		return c.change(ctx, a, o, d)
	}
	out.Effect = effect
	return out
}

// recorded is the record that a claim names, wherever it is.
func recorded(obj *v1alpha1.ZooKeeperConfig) *znode.Record {
	if obj.Status.Znode == nil {
		return nil
	}
	return &znode.Record{Czxid: znode.ParseZxid(obj.Status.Znode.Czxid)}
}

// attempt is one attempt to change a znode.
type attempt struct {
	key, path, claim string
	// first tells that the claim was written for this very attempt. Otherwise an earlier one, perhaps of a process that
	// is dead by now, may still be on its way to the server.
	first bool
}

// change makes the change that was decided on. Losing a race to somebody else is no error: the pass looks again.
func (c *controller) change(ctx context.Context, a attempt, o Observation, d znode.Decision) error {
	key, path := a.key, a.path
	var err error
	switch d.Verb {
	case znode.Create:
		c.memory.with(key, func(r *remembered) { r.denied = "" })
		_, err = o.session.CreateBelow(ctx, key, path, o.data, o.want.ACL, o.want.ParentACL)
		c.noteCreation(a, err)
	case znode.SetACL:
		_, err = o.session.SetACL(ctx, key, path, o.want.ACL, o.node.Aversion)
	case znode.SetData:
		_, err = o.session.Set(ctx, key, path, o.data, o.node.Version)
	default:
		err = fmt.Errorf("%s is no change", d.Verb)
	}
	if err == nil {
		c.memory.with(key, func(r *remembered) {
			r.change = &change{cause: d.Cause, detail: d.Detail}
		})
	}
	return typed(err, path)
}

// noteCreation remembers how a creation was answered. "It exists" says that somebody else was quicker only to the first
// attempt under a claim: any other may be answered that because of the one before.
func (c *controller) noteCreation(a attempt, err error) {
	c.memory.with(a.key, func(r *remembered) {
		switch {
		case err == nil, errors.Is(err, zookeeper.ErrNoNode), errors.Is(err, zookeeper.ErrNoAuth), errors.Is(err, zookeeper.ErrInvalidACL):
			r.unsure = ""
		case !errors.Is(err, zookeeper.ErrNodeExists):
			r.unsure = a.claim
		case a.first && r.unsure != a.claim:
			r.denied = a.claim
		}
	})
}

// accessRecheck is the time to the next try after ZooKeeper refused one: nothing tells when a list above is changed.
const accessRecheck = time.Minute

// typed gives an error of ZooKeeper the type by which the reconciler goes on.
func typed(err error, path string) error {
	var away *zookeeper.UnavailableError
	switch {
	case err == nil, errors.Is(err, zookeeper.ErrBadVersion), errors.Is(err, zookeeper.ErrNodeExists), errors.Is(err, zookeeper.ErrNoNode):
		return nil
	case errors.As(err, &away):
		return unknown(away)
	case errors.Is(err, zookeeper.ErrNoAuth):
		return &reconcile.StalledError{
			Reason: v1alpha1.ReasonAccessDenied, After: accessRecheck,
			Message: fmt.Sprintf("znode %s: ZooKeeper does not let the operator's credential do it: the access control list of the znode or of one above is in the way "+
				"(after a rotation, that of the previous credential: see %s in the documentation)", path, zktypes.KeyPreviousPassword),
		}
	case errors.Is(err, zookeeper.ErrInvalidACL):
		return reconcile.Stalled(v1alpha1.ReasonInvalidSpec, "znode %s: ZooKeeper refuses the access control list: an identity in spec.acl is malformed, or the server does not know its scheme", path)
	case errors.Is(err, context.Canceled):
		return err
	}
	return reconcile.Transient(err, v1alpha1.ReasonProgressing, "znode %s: ZooKeeper answered with an error; it is tried again", path)
}

func (c *controller) decideRefusal(obj *v1alpha1.ZooKeeperConfig, o Observation, d znode.Decision, now time.Time) plan {
	reason := map[znode.Refusal]string{
		znode.Exists: v1alpha1.ReasonAlreadyExists, znode.LockOut: v1alpha1.ReasonWouldLockOut, znode.Hidden: v1alpha1.ReasonAccessDenied,
	}[d.Refusal]
	message := fmt.Sprintf("znode %s: %s", obj.Spec.Path, d.Detail)
	return c.without(obj, o, now, status{
		state: v1alpha1.ZnodeError, synced: metav1.ConditionFalse, reason: reason, message: message,
	}, reconcile.Stalled(reason, "%s", message))
}

// without makes the plan of an object that does not have the znode that it wants, or not as it wants it. What it moved away from
// earlier goes all the same: something took its place at the time.
func (c *controller) without(obj *v1alpha1.ZooKeeperConfig, o Observation, now time.Time, view status, unready error) plan {
	if obj.Spec.Paused {
		return c.conclude(now, view, unready)
	}
	var events []reconcile.Event
	effect, waiting := c.seeOff(obj, o, now, false, &view, &events)
	out := c.conclude(now, view, unready)
	out.Effect, out.Events = effect, events
	if wait := new(*reconcile.WaitError); errors.As(waiting, wait) {
		out.RequeueAfter = (*wait).After
	}
	return out
}

// decideInPlace reports a znode that is as declared, or that is left as it is because the object wants that, and sees off
// those that the object had before.
func (c *controller) decideInPlace(obj *v1alpha1.ZooKeeperConfig, o Observation, d znode.Decision, now time.Time) plan {
	view := status{
		state: v1alpha1.ZnodeSynced, synced: metav1.ConditionTrue, reason: v1alpha1.ReasonReady,
		message: "the znode is as declared",
	}
	var events []reconcile.Event
	if d.Ours {
		record := recordOf(obj, o)
		view.record, view.wrote = &record, wrote(obj.Status.Znode, o, record)
		if view.wrote {
			events = syncEvents(obj, o, d, record)
		}
	} else {
		view.message, view.drop = d.Detail, true
	}
	effect, unready := c.seeOff(obj, o, now, true, &view, &events)
	if d.Ours && effect == nil && !obj.Spec.Paused {
		effect = c.renewParents(obj, o)
	}
	if d.Ours && effect == nil && !controllerutil.ContainsFinalizer(obj, v1alpha1.FinalizerZnode) {
		// What is on record must be protected, also when nothing had to be changed.
		effect = &reconcile.Effect{What: "take over the znode " + obj.Spec.Path, Run: func(context.Context) error { return nil }}
	}
	out := c.conclude(now, view, unready)
	out.Message = fmt.Sprintf("znode %s: %s", obj.Spec.Path, view.message)
	out.Events, out.Effect = events, effect
	return out
}

// seeOff decides on the znodes that the object moved away from: the next one to delete, what there is to wait for, which
// stay on record, and what is to be told of the others. Until the one that is wanted stands the last one stays as it is.
func (c *controller) seeOff(
	obj *v1alpha1.ZooKeeperConfig, o Observation, now time.Time, stands bool, view *status, events *[]reconcile.Event,
) (effect *reconcile.Effect, unready error) {
	key := keyOf(obj)
	view.moved = true
	for _, l := range o.leaving {
		if l.last && !stands {
			continue
		}
		parting, detail, wait := znode.Part(l.release, now)
		switch parting {
		case znode.Delete:
			if effect == nil {
				effect = &reconcile.Effect{
					What: fmt.Sprintf("delete the znode %s of %s, which the object moved away from", l.record.Path, l.record.ConnectString),
					Run:  func(ctx context.Context) error { return typed(c.remove(ctx, key, l), l.record.Path) },
				}
			}
		case znode.Await:
			unready = reconcile.Wait(min(wait, c.retryOf(l)), v1alpha1.ReasonProgressing,
				"the znode stands, and %s, which the object moved away from, is still to be deleted: %s", l.record.Path, detail)
		default:
			if event := partingEvent(l, parting, detail); event.Reason != "" {
				*events = append(*events, event)
			}
			continue
		}
		view.superseded = append(view.superseded, v1alpha1.SupersededZnode{Znode: l.record, Since: metav1.NewTime(l.since.Truncate(time.Second))})
	}
	if !stands {
		view.superseded = append(view.superseded, o.kept...)
	}
	return effect, unready
}

// conclude makes a plan of a status and of what keeps the object from being ready.
func (c *controller) conclude(now time.Time, s status, unready error) plan {
	out := plan{
		Unready: unready,
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionSynced, Status: s.synced, Reason: s.reason, Message: s.message,
		}},
	}
	out.Status = func(obj *v1alpha1.ZooKeeperConfig) {
		st := &obj.Status
		st.State, st.Message, st.Drift = s.state, s.message, s.drift
		switch {
		case s.drop:
			st.Znode = nil
		case s.record != nil && (st.Znode == nil || *st.Znode != *s.record):
			record := *s.record
			st.Znode = &record
			if s.wrote {
				st.LastSyncedTime = new(metav1.NewTime(now.Truncate(time.Second)))
			}
		}
		if s.moved {
			st.Superseded = s.superseded
		}
	}
	return out
}
