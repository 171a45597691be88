package zookeeperconfig

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/plan/znode"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

// strayed looks for the znode that was created or taken over for the object where it wanted one before: between that and the
// status that would tell of it the object was changed. The claim is all that tells of it, and is about to be replaced by another.
func (g *gatherer) strayed() error {
	claim, ok := claimOf(g.obj)
	target := g.out.target.Connect
	if !ok || g.obj.Spec.Paused || g.out.denied || claim.Spent(g.recordForClaim()) ||
		isAt(claim.Connect, claim.Path, target, target.Full(g.obj.Spec.Path)) {
		return nil
	}
	if taken, err := g.taken(claim); taken || err != nil {
		return err
	}
	err := g.lookForStray(claim)
	if err != nil && (stalled(err) || unclear(err)) {
		g.out.unseen = fmt.Sprintf("znode %s of %s was about to be made for the object and cannot be seen; if it was, it is left behind: %v",
			claim.Path, claim.Connect, err)
		return nil
	}
	return err
}

func (g *gatherer) lookForStray(claim znode.Claim) error {
	record := recordOfClaim(claim)
	target, err := g.targetOfRecord(record)
	if err != nil {
		return err
	}
	if !znode.Granted(g.controller.settings.Grants, g.obj.Namespace, target.Connect, record.Path) {
		return nil // it could not be deleted either
	}
	_, node, err := g.look(target, record.Path)
	if err != nil || !claim.Covers(claim.Connect, claim.Path, node, g.recordForClaim()) || !claim.Begun(node) {
		return err
	}
	record.Czxid, record.Version, record.ACLVersion = znode.FormatZxid(node.Czxid), node.Version, node.Aversion
	record.Size, record.Hash = int64(node.Size), node.Sum.Short()
	known := slices.ContainsFunc(g.obj.Status.Superseded, func(s v1alpha1.SupersededZnode) bool {
		return s.Znode.Czxid == record.Czxid && s.Znode.Path == record.Path && s.Znode.ConnectString == record.ConnectString
	})
	if known {
		// It is on its way out. The claim must not bring it back when it is left by policy.
		g.out.void = true
		return nil
	}
	g.out.stray = &record
	return nil
}

// decideStray puts a stray znode on record, before anything else is done: what follows is a move, as it would have been had the
// status been written in time. When the one that is wanted now is on record already, the stray one is what it moved away from.
func (c *controller) decideStray(obj *v1alpha1.ZooKeeperConfig, o Observation, now time.Time) plan {
	view := pending(fmt.Sprintf("the znode %s was made for the object before it wanted another", o.stray.Path))
	view.moved, view.superseded = true, slices.Clone(obj.Status.Superseded)
	supersede := func(record v1alpha1.ZnodeRecord) {
		view.superseded = append(view.superseded, v1alpha1.SupersededZnode{Znode: record, Since: metav1.NewTime(now.Truncate(time.Second))})
	}
	view.wrote = true
	switch current := obj.Status.Znode; {
	case o.current:
		supersede(*o.stray)
	case current != nil:
		supersede(*current)
		view.record = o.stray
	default:
		view.record = o.stray
	}
	return c.conclude(now, view, reconcile.Wait(time.Second, v1alpha1.ReasonProgressing, "%s, and is put on record", view.message))
}

// tellUnseen says that something may be left behind, when the claim that told of it is replaced.
func (c *controller) tellUnseen(obj *v1alpha1.ZooKeeperConfig, o Observation) {
	if c.Recorder != nil && o.unseen != "" {
		c.Recorder.Eventf(obj, nil, corev1.EventTypeWarning, v1alpha1.ReasonOrphaned, "Reconcile", "%s", o.unseen)
	}
}
