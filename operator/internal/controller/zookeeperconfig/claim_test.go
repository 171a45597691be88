package zookeeperconfig

import (
	"context"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/plan/znode"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
)

// unanswered makes a pass whose creation is not answered, and was not carried out.
func (w *world) unanswered(obj *v1alpha1.ZooKeeperConfig) {
	w.Helper()
	requests := 0
	w.zk.fault = func(ctx context.Context) error {
		if requests++; requests == 1 {
			return nil // the look
		}
		return w.zk.away(ctx)
	}
	_, err := w.work(obj)
	require.Error(w, err)
	w.zk.fault = nil
	_, ok := claimOf(obj)
	require.True(w, ok)
}

// record puts a znode on an object's record that somebody made for it.
func (w *world) record(obj *v1alpha1.ZooKeeperConfig) {
	w.Helper()
	made := w.zk.put(obj.Spec.Path, *obj.Spec.StringData, mine)
	obj.Status.Znode = &v1alpha1.ZnodeRecord{ConnectString: "zk:2181", Path: obj.Spec.Path, Czxid: znode.FormatZxid(made.Czxid)}
}

// An object that was made of a copy of another one, annotations and all, has no claim to the other's znode.
func TestACopiedClaimIsNobodys(t *testing.T) {
	w := newWorld(t)
	first := w.object("first", "/x")
	w.ready(first)
	second := w.object("second", "/x")
	second.Annotations, second.Finalizers = maps.Clone(first.Annotations), first.Finalizers
	require.Contains(t, second.Annotations[v1alpha1.AnnotationZnodeClaim], "/x")
	require.True(t, w.remove(second))
	require.Equal(t, []string{"/x"}, w.zk.paths())

	second.DeletionTimestamp = nil
	w.objects["second"] = second
	w.stalled(second, v1alpha1.ReasonPathConflict)
	require.True(t, w.remove(first))
	w.ready(second)
}

// Nor has one that was restored from a backup, where nobody knows of the first one.
func TestARestoredClaimIsNobodys(t *testing.T) {
	w := newWorld(t)
	first := w.object("x", "/x")
	w.ready(first)
	restored := w.object("x", "/x")
	restored.Annotations, restored.Finalizers = maps.Clone(first.Annotations), first.Finalizers
	w.stalled(restored, v1alpha1.ReasonAlreadyExists)
	require.True(t, w.remove(restored))
	require.Equal(t, []string{"/x"}, w.zk.paths())
}

// An object whose creation was not answered leaves what another one has there since.
func TestAClaimToWhatAnotherObjectHas(t *testing.T) {
	w := newWorld(t)
	obj, rival := w.object("claims", "/x"), w.object("has", "/x")
	w.unanswered(obj)
	w.record(rival)
	require.True(t, w.remove(obj))
	require.Equal(t, []string{"/x"}, w.zk.paths())
}

// Such a claim is taken back as soon as the conflict is seen: the other object may be gone before this one.
func TestAClaimIsVoidInAConflict(t *testing.T) {
	w := newWorld(t)
	obj, rival := w.object("claims", "/x"), w.object("has", "/x")
	w.unanswered(obj)
	rival.CreationTimestamp = obj.CreationTimestamp
	rival.Namespace = "another"
	w.record(rival)
	w.stalled(obj, v1alpha1.ReasonPathConflict)
	require.Equal(t, "void", obj.Annotations[v1alpha1.AnnotationZnodeClaim])
	delete(w.objects, "has")
	require.True(t, w.remove(obj))
	require.Equal(t, []string{"/x"}, w.zk.paths())
}

// Two that only claim a znode may both be the one who made it: neither claim is void.
func TestAClaimAgainstAClaimStays(t *testing.T) {
	w := newWorld(t)
	obj, rival := w.object("claims", "/x"), w.object("claims-too", "/x")
	w.unanswered(obj)
	w.objects = map[string]*v1alpha1.ZooKeeperConfig{"claims-too": rival}
	w.unanswered(rival)
	rival.CreationTimestamp = obj.CreationTimestamp
	rival.Namespace = "another"
	w.objects["claims"] = obj
	w.zk.put("/x", "v", mine)
	w.stalled(obj, v1alpha1.ReasonPathConflict)
	_, ok := claimOf(obj)
	require.True(t, ok)
	delete(w.objects, "claims-too")
	w.ready(obj)
}

// A claim that is known to have come to nothing is taken back whatever else keeps the object from its znode.
func TestADeniedClaimIsVoidAlsoWhenTheObjectIsStalled(t *testing.T) {
	w := newWorld(t)
	obj := w.object("x", "/x")
	requests := 0
	w.zk.fault = func(context.Context) error {
		if requests++; requests == 2 {
			return zookeeper.ErrNodeExists
		}
		return nil
	}
	p := w.decided(obj)
	obj.Annotations = p.Effect.Claim
	require.NoError(t, p.Effect.Run(t.Context()))
	obj.Spec.StringData, obj.Spec.DataFrom = nil, &v1alpha1.ZnodeDataSource{SecretKeyRef: &v1alpha1.ObjectKeyReference{Name: "none", Key: "none"}}
	w.stalled(obj, v1alpha1.ReasonSourceMissing)
	require.Equal(t, "void", obj.Annotations[v1alpha1.AnnotationZnodeClaim])
}
