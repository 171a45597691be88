package zookeeperconfig

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// moved is an object that moved from /a to /b, and whose znode at /a cannot be deleted, for it has children.
func moved(w *world, change ...func(*v1alpha1.ZooKeeperConfigSpec)) *v1alpha1.ZooKeeperConfig {
	w.Helper()
	obj := w.object("mover", "/a", change...)
	w.ready(obj)
	w.zk.children["/a"] = true
	obj.Spec.Path = "/b"
	require.Error(w, w.pass(obj).Unready)
	require.Equal(w, "/b", obj.Status.Znode.Path)
	require.Equal(w, "/a", obj.Status.Superseded[0].Znode.Path)
	return obj
}

// An object that moves back before the znode there could be deleted has it again, whatever its adoption, and keeps it.
func TestMovingBack(t *testing.T) {
	for _, adoption := range []v1alpha1.ZnodeAdoption{v1alpha1.AdoptionNever, v1alpha1.AdoptionIfEqual, v1alpha1.AdoptionForce} {
		t.Run(string(adoption), func(t *testing.T) {
			w := newWorld(t)
			obj := moved(w, func(spec *v1alpha1.ZooKeeperConfigSpec) { spec.Adoption = adoption })
			first := obj.Status.Superseded[0].Znode
			w.zk.children["/a"] = false
			obj.Spec.Path, obj.Spec.StringData = "/a", new("other")
			p := w.pass(obj)
			require.NoError(t, p.Unready)
			require.Equal(t, first.Czxid, obj.Status.Znode.Czxid)
			require.Equal(t, "/a", obj.Status.Znode.Path)
			w.ready(obj)
			require.Empty(t, obj.Status.Superseded)
			require.Equal(t, []string{"/b"}, w.zk.deleted)
			require.Equal(t, zktypes.SumOf([]byte("other")), w.zk.nodes["/a"].Sum)
			w.clock.SetTime(w.clock.Now().Add(time.Second)) // that it has children is remembered for a moment
			require.True(t, w.remove(obj))
			require.Empty(t, w.zk.paths())
		})
	}
}

// While the place that is wanted again cannot be seen, the znode there stays on record.
func TestMovingBackUnseen(t *testing.T) {
	w := newWorld(t)
	obj := moved(w)
	w.zk.children["/a"] = false
	obj.Spec.Path = "/a"
	rival := w.object("rival", "/a")
	rival.Status.Znode = obj.Status.Superseded[0].Znode.DeepCopy()
	rival.CreationTimestamp = obj.CreationTimestamp
	rival.Namespace = "another"
	before := *obj.Status.DeepCopy()
	w.stalled(obj, v1alpha1.ReasonPathConflict)
	require.Equal(t, before.Superseded, obj.Status.Superseded)
	require.Equal(t, before.Znode, obj.Status.Znode)
	delete(w.objects, "rival")
	w.ready(obj)
	require.Equal(t, []string{"/b"}, w.zk.deleted)
}

// What took the place of a znode lets it go, also when it is refused or differs by now; and the last znode stays until another
// one stands.
func TestWhatWasMovedFromGoesAlsoWithoutTheNextOne(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		w := newWorld(t)
		obj := moved(w)
		w.zk.put("/c", "theirs", mine)
		obj.Spec.Path = "/c"
		p := w.stalled(obj, v1alpha1.ReasonAlreadyExists)
		require.Positive(t, p.RequeueAfter, "children that go tell nobody")
		require.Len(t, obj.Status.Superseded, 1)
		w.zk.children["/a"] = false
		w.clock.SetTime(w.clock.Now().Add(time.Second))
		p = w.stalled(obj, v1alpha1.ReasonAlreadyExists)
		require.Zero(t, p.RequeueAfter)
		require.Equal(t, []string{"/a"}, w.zk.deleted)
		require.Empty(t, obj.Status.Superseded)
		require.Equal(t, "/b", obj.Status.Znode.Path)
	})
	t.Run("drifted", func(t *testing.T) {
		w := newWorld(t)
		obj := moved(w, func(spec *v1alpha1.ZooKeeperConfigSpec) { spec.DriftPolicy = v1alpha1.DriftReport })
		w.zk.change("/b", func(node *zktypes.Node) { node.Sum, node.Version = zktypes.SumOf([]byte("x")), node.Version+1 })
		w.stalled(obj, v1alpha1.ReasonDrifted)
		w.clock.SetTime(w.clock.Now().Add(w.c.settings.MoveDeadline))
		w.stalled(obj, v1alpha1.ReasonDrifted)
		require.Empty(t, obj.Status.Superseded, "left behind at the deadline")
		require.Equal(t, []string{"/a", "/b"}, w.zk.paths())
	})
	t.Run("paused", func(t *testing.T) {
		w := newWorld(t)
		obj := moved(w)
		w.zk.put("/c", "theirs", mine)
		w.zk.children["/a"] = false
		w.clock.SetTime(w.clock.Now().Add(time.Second))
		obj.Spec.Path, obj.Spec.Paused = "/c", true
		w.stalled(obj, v1alpha1.ReasonAlreadyExists)
		require.Empty(t, w.zk.deleted)
		require.Len(t, obj.Status.Superseded, 1)
	})
}

// An object that names its znode otherwise, by a chroot, stays subscribed to it: the connection is the same.
func TestAnotherNameForAZnode(t *testing.T) {
	w := newWorld(t)
	w.secret("s", own.User, own.Password)
	obj := w.object("x", "/a/b")
	w.ready(obj)
	brings("s")(&obj.Spec)
	obj.Spec.Connection.ConnectString, obj.Spec.Path = "zk:2181/a", "/b"
	w.ready(obj)
	require.Equal(t, []string{"/a/b"}, w.zk.paths())
	require.Empty(t, w.zk.forgotten)
	obj.Spec.Path = "/c"
	w.ready(obj)
	w.ready(obj)
	require.Equal(t, []string{"team/x of /a/b"}, w.zk.forgotten)
}
