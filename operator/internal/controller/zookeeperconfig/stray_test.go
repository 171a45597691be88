package zookeeperconfig

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/events"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// interrupted makes a pass whose status is never written.
func (w *world) interrupted(obj *v1alpha1.ZooKeeperConfig) {
	w.Helper()
	_, err := w.work(obj)
	require.NoError(w, err)
	w.restart()
}

// A znode that was made just before the object wanted another path, and before a status told of it, is moved away from as any
// other.
func TestAZnodeThatNoStatusTellsOf(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy v1alpha1.ZnodeDeletionPolicy
		before []string // the paths that the object had before, each with a status
		lost   string   // the path of the pass that was interrupted
		wants  string
		left   []string
	}{
		{"the first one", "", nil, "/a", "/b", []string{"/b"}},
		{"a later one", "", []string{"/0"}, "/a", "/b", []string{"/b"}},
		{"and back again", "", []string{"/0"}, "/a", "/0", []string{"/0"}},
		{"left by policy", v1alpha1.DeletionOrphan, nil, "/a", "/b", []string{"/a", "/b"}},
		{"left by policy, and back again", v1alpha1.DeletionOrphan, []string{"/0"}, "/a", "/0", []string{"/0", "/a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			obj := w.object("x", "/none", func(spec *v1alpha1.ZooKeeperConfigSpec) { spec.DeletionPolicy = test.policy })
			for _, path := range test.before {
				obj.Spec.Path = path
				w.ready(obj)
			}
			obj.Spec.Path = test.lost
			w.interrupted(obj)
			require.Contains(t, w.zk.paths(), test.lost)
			obj.Spec.Path = test.wants
			w.ready(obj)
			require.Equal(t, test.left, w.zk.paths())
			require.Equal(t, test.wants, obj.Status.Znode.Path)
			settled := *obj.Status.DeepCopy()
			w.ready(obj)
			require.Equal(t, settled, obj.Status, "it is at rest")
			require.Empty(t, obj.Status.Superseded)
			require.True(t, w.remove(obj))
		})
	}
}

// What another object has meanwhile, and what was to be taken over and was not touched, is left alone.
func TestAStrayThatIsNone(t *testing.T) {
	w := newWorld(t)
	obj := w.object("x", "/a")
	w.unanswered(obj)
	rival := w.object("rival", "/a")
	w.record(rival)
	obj.Spec.Path = "/b"
	w.ready(obj)
	require.Equal(t, []string{"/a", "/b"}, w.zk.paths())

	w.zk.put("/c", "theirs", mine)
	taker := w.object("taker", "/c", func(spec *v1alpha1.ZooKeeperConfigSpec) { spec.Adoption = v1alpha1.AdoptionForce })
	w.unanswered(taker)
	taker.Spec.Path = "/d"
	w.ready(taker)
	require.Equal(t, []string{"/a", "/b", "/c", "/d"}, w.zk.paths())
}

// An ensemble that is away keeps no object from moving to another; that something may be left there is told.
func TestAStrayThatCannotBeSeen(t *testing.T) {
	w := newWorld(t)
	recorder := events.NewFakeRecorder(10)
	obj := w.object("x", "/a")
	w.interrupted(obj)
	w.c.Recorder = recorder
	w.zk.fault = w.zk.away
	other := "other:2181"
	w.secret("me", own.User, own.Password)
	obj.Spec.Connection = &v1alpha1.ZooKeeperConnection{ConnectString: other, AuthSecretRef: &v1alpha1.ObjectReference{Name: "me"}}
	w.ready(obj)
	require.Equal(t, []string{"/a"}, w.tree(other).paths())
	require.Contains(t, <-recorder.Events, "left behind")
	require.Empty(t, recorder.Events)
}
