package zookeeperconfig

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/plan/znode"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

// recordOf is the record of the znode that was seen.
func recordOf(obj *v1alpha1.ZooKeeperConfig, o Observation) v1alpha1.ZnodeRecord {
	out := v1alpha1.ZnodeRecord{
		ConnectString: o.target.Connect.String(), Path: obj.Spec.Path, Czxid: znode.FormatZxid(o.node.Czxid),
		Version: o.node.Version, ACLVersion: o.node.Aversion, Size: int64(o.node.Size), Hash: o.node.Sum.Short(),
	}
	setReach(&out, reachOf(obj))
	return out
}

// wrote tells whether something was done since the record before: the znode is another, or has other data, or a change was made
// by this process, or by one that left its claim and no status.
func wrote(before *v1alpha1.ZnodeRecord, o Observation, record v1alpha1.ZnodeRecord) bool {
	if before == nil || o.change != nil {
		return true
	}
	same := before.ConnectString == record.ConnectString && before.Path == record.Path && before.Czxid == record.Czxid &&
		before.Hash == record.Hash && before.Size == record.Size
	claimed := o.record != nil && (o.record.Version != before.Version || o.record.Aversion != before.ACLVersion)
	return !same || claimed
}

// syncEvents tell what was done, once: when the record that says so is written.
func syncEvents(obj *v1alpha1.ZooKeeperConfig, o Observation, d znode.Decision, record v1alpha1.ZnodeRecord) []reconcile.Event {
	before := obj.Status.Znode
	tell := func(reason, format string, args ...any) []reconcile.Event {
		return []reconcile.Event{{Type: corev1.EventTypeNormal, Reason: reason, Message: fmt.Sprintf(format, args...)}}
	}
	cause, detail := d.Cause, d.Detail
	if o.change != nil {
		cause, detail = o.change.cause, o.change.detail
	}
	switch {
	case before != nil && *before == record:
		return nil
	case cause == znode.ByDrift:
		return tell(v1alpha1.ReasonDriftCorrected, "somebody changed the znode %s, and it was put right: %s", record.Path, detail)
	case o.returned:
		return tell(v1alpha1.ReasonAdopted, "the znode %s, which the object had moved away from, is its own again", record.Path)
	case before == nil && (cause == znode.ByAdoption || takes(obj)):
		return tell(v1alpha1.ReasonAdopted, "the znode %s existed and was adopted", record.Path)
	case before == nil || before.Czxid != record.Czxid && (before.Path != record.Path || before.ConnectString != record.ConnectString):
		return tell(v1alpha1.ReasonCreated, "the znode %s was created: %d bytes (sha256 %s)", record.Path, record.Size, record.Hash)
	case before.Version != record.Version || before.ACLVersion != record.ACLVersion:
		return tell(v1alpha1.ReasonUpdated, "the znode %s was changed: %d bytes (sha256 %s)", record.Path, record.Size, record.Hash)
	}
	return nil
}

// takes tells whether the object claims a znode that existed.
func takes(obj *v1alpha1.ZooKeeperConfig) bool {
	claim, ok := claimOf(obj)
	return ok && claim.Takes != ""
}
