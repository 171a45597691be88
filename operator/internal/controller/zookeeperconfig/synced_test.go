package zookeeperconfig

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// When lastSyncedTime moves, and what is told: when something was done, and not when somebody wrote what was there already.
func TestWhatCountsAsSynced(t *testing.T) {
	other := []zktypes.ACL{{Scheme: zktypes.SchemeWorld, ID: zktypes.AnyoneID, Perms: zktypes.PermRead}, mine[0]}
	for _, test := range []struct {
		name  string
		act   func(w *world, obj *v1alpha1.ZooKeeperConfig)
		event string // empty: nothing was synced
	}{
		{"nothing", func(*world, *v1alpha1.ZooKeeperConfig) {}, ""},
		{"the same data written by hand", func(w *world, _ *v1alpha1.ZooKeeperConfig) {
			w.zk.change("/x", func(node *zktypes.Node) { node.Version, node.Mzxid = node.Version+1, node.Mzxid+100 })
		}, ""},
		{"the same list written by hand", func(w *world, _ *v1alpha1.ZooKeeperConfig) {
			w.zk.change("/x", func(node *zktypes.Node) { node.Aversion++ })
		}, ""},
		{"changed by hand and back", func(w *world, _ *v1alpha1.ZooKeeperConfig) {
			w.zk.change("/x", func(node *zktypes.Node) { node.Version += 2 })
		}, ""},
		{"data changed by hand", func(w *world, _ *v1alpha1.ZooKeeperConfig) {
			w.zk.change("/x", func(node *zktypes.Node) { node.Version, node.Sum = node.Version+1, zktypes.SumOf([]byte("x")) })
		}, v1alpha1.ReasonDriftCorrected},
		{"list changed by hand", func(w *world, _ *v1alpha1.ZooKeeperConfig) {
			w.zk.change("/x", func(node *zktypes.Node) { node.Aversion, node.ACL = node.Aversion+1, other })
		}, v1alpha1.ReasonDriftCorrected},
		{"other data", func(_ *world, obj *v1alpha1.ZooKeeperConfig) { obj.Spec.StringData = new("w") }, v1alpha1.ReasonUpdated},
		{"another list", func(_ *world, obj *v1alpha1.ZooKeeperConfig) {
			obj.Spec.ACL = []v1alpha1.ZnodeACL{{Scheme: "digest", ID: mine[0].ID, Perms: "crwa"}}
		}, v1alpha1.ReasonUpdated},
		{"another list, and no status of it", func(w *world, obj *v1alpha1.ZooKeeperConfig) {
			obj.Spec.ACL = []v1alpha1.ZnodeACL{{Scheme: "digest", ID: mine[0].ID, Perms: "crwa"}}
			w.interrupted(obj)
		}, v1alpha1.ReasonUpdated},
		{"another place", func(_ *world, obj *v1alpha1.ZooKeeperConfig) { obj.Spec.Path = "/y" }, v1alpha1.ReasonCreated},
		{"created again by hand, as it was", func(w *world, _ *v1alpha1.ZooKeeperConfig) { w.zk.put("/x", "v", mine) }, v1alpha1.ReasonDriftCorrected},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			obj := w.object("x", "/x")
			w.ready(obj)
			at := obj.Status.LastSyncedTime.Time
			require.Equal(t, begin, at)
			w.clock.SetTime(begin.Add(time.Hour))
			test.act(w, obj)
			p := w.pass(obj)
			require.NoError(t, p.Unready)
			if test.event == "" {
				require.Equal(t, at, obj.Status.LastSyncedTime.Time)
				require.Empty(t, p.Events)
			} else {
				require.Equal(t, begin.Add(time.Hour), obj.Status.LastSyncedTime.Time)
				require.Equal(t, test.event, p.Events[0].Reason)
			}
			node := w.zk.nodes[obj.Spec.Path]
			require.Equal(t, []int32{node.Version, node.Aversion}, []int32{obj.Status.Znode.Version, obj.Status.Znode.ACLVersion},
				"the versions on record tell whose the next change is")
		})
	}
}
