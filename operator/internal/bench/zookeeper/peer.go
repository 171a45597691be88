package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/plan/znode"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// peerNamespace has objects that no operator looks at.
const peerNamespace = "peer"

// writeAsPeer makes the requests that the operator makes for each new object, and nothing else: it has no cache that is told of
// them, decides nothing, and knows no ZooKeeper. So it shows what the API server can take. It returns the objects a second.
func (s *stand) writeAsPeer(ctx context.Context, objects []v1alpha1.ZooKeeperConfig) (float64, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrent)
	begin := time.Now()
	for i := range objects {
		group.Go(func() error { return s.writeOne(ctx, &objects[i]) })
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	return float64(len(objects)) / time.Since(begin).Seconds(), nil
}

// writeOne writes what the operator does: the finalizer with the claim, the status, and an event.
func (s *stand) writeOne(ctx context.Context, obj *v1alpha1.ZooKeeperConfig) error {
	before := obj.DeepCopy()
	controllerutil.AddFinalizer(obj, v1alpha1.FinalizerZnode)
	want := znode.Want{Sum: zktypes.SumOf(payload), Size: len(payload)}
	claim := znode.NewClaim(string(obj.UID), s.target.Connect.String(), obj.Spec.Path, want, nil).String()
	obj.Annotations = map[string]string{v1alpha1.AnnotationZnodeClaim: claim}
	locked := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := s.client.Patch(ctx, obj, locked, client.FieldOwner(reconcile.FieldManager)); err != nil {
		return err
	}
	before = obj.DeepCopy()
	s.describe(obj, want)
	locked = client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := s.client.Status().Patch(ctx, obj, locked, client.FieldOwner(reconcile.FieldManager)); err != nil {
		return err
	}
	return s.client.Create(ctx, eventOf(obj))
}

// describe sets a status like that of an object whose znode was created.
func (s *stand) describe(obj *v1alpha1.ZooKeeperConfig, want znode.Want) {
	now := metav1.Now()
	condition := func(kind string) metav1.Condition {
		return metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, ObservedGeneration: obj.Generation,
			LastTransitionTime: now, Message: fmt.Sprintf("znode %s: the znode is as declared", obj.Spec.Path),
		}
	}
	obj.Status = v1alpha1.ZooKeeperConfigStatus{
		ObservedGeneration: obj.Generation, State: v1alpha1.ZnodeSynced, Message: "the znode is as declared", LastSyncedTime: &now,
		Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady), condition(v1alpha1.ConditionSynced)},
		Znode: &v1alpha1.ZnodeRecord{
			ConnectString: s.target.Connect.String(), Path: obj.Spec.Path, Czxid: znode.FormatZxid(1 << 20),
			Size: int64(want.Size), Hash: want.Sum.Short(),
		},
	}
}

func eventOf(obj *v1alpha1.ZooKeeperConfig) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: obj.Namespace, Name: fmt.Sprintf("%s.%x", obj.Name, time.Now().UnixNano())},
		EventTime:  metav1.NowMicro(), Type: corev1.EventTypeNormal, Reason: v1alpha1.ReasonCreated, Action: "Reconcile",
		Note:                fmt.Sprintf("the znode %s was created: %d bytes (sha256 %s)", obj.Spec.Path, len(payload), zktypes.SumOf(payload).Short()),
		ReportingController: "zookeeperconfig", ReportingInstance: "peer",
		Regarding: corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "ZooKeeperConfig", Namespace: obj.Namespace, Name: obj.Name,
			UID: obj.UID, ResourceVersion: obj.ResourceVersion,
		},
	}
}
