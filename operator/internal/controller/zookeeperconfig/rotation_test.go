package zookeeperconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

func aclOf(c zookeeper.Credential) []zktypes.ACL {
	return zktypes.Granting(c.Identities(), zktypes.PermAll)
}

func brings(secret string) func(*v1alpha1.ZooKeeperConfigSpec) {
	return func(spec *v1alpha1.ZooKeeperConfigSpec) {
		spec.Connection = &v1alpha1.ZooKeeperConnection{ConnectString: "zk:2181", AuthSecretRef: &v1alpha1.ObjectReference{Name: secret}}
	}
}

// A Secret that brings the previous password beside the new one has every list of its objects replaced, and those of the parents
// that were made for them.
func TestRotation(t *testing.T) {
	w := newWorld(t)
	w.secret("s", "u", "old")
	old, rotated := zookeeper.Credential{User: "u", Password: "old"}, zookeeper.Credential{User: "u", Password: "new"}
	w.zk.put("/top", "", aclOf(old))
	w.zk.put("/top/dir", "", aclOf(old))
	first, second := w.object("first", "/top/dir/first", brings("s")), w.object("second", "/top/dir/second", brings("s"))
	w.ready(first)
	w.ready(second)
	require.Equal(t, aclOf(old), w.zk.nodes["/top/dir/first"].ACL)

	w.secret("s", "u", "new")
	w.secrets["s"].Data["previous-password"] = []byte("old")
	w.ready(first)
	for _, path := range []string{"/top", "/top/dir", "/top/dir/first"} {
		require.Equal(t, aclOf(rotated), w.zk.nodes[path].ACL, path)
		require.EqualValues(t, 1, w.zk.nodes[path].Aversion, path)
	}
	second.Spec.Paused = true
	w.pass(second)
	require.Equal(t, aclOf(old), w.zk.nodes["/top/dir/second"].ACL)
	second.Spec.Paused = false
	w.ready(second)
	require.Equal(t, aclOf(rotated), w.zk.nodes["/top/dir/second"].ACL)
	require.Nil(t, w.decided(second).Effect, "it is at rest")
	require.EqualValues(t, 1, w.zk.nodes["/top"].Aversion)

	delete(w.secrets["s"].Data, "previous-password")
	w.ready(first)
	require.EqualValues(t, 1, w.zk.nodes["/top/dir/first"].Aversion)
}

// Without the previous password the message says what is missing.
func TestRotationWithoutThePreviousPassword(t *testing.T) {
	w := newWorld(t)
	w.secret("s", "u", "old")
	obj := w.object("x", "/x", brings("s"))
	w.ready(obj)
	w.secret("s", "u", "new")
	w.zk.change("/x", func(node *zktypes.Node) { node.Hidden, node.ACL, node.Sum = true, nil, zktypes.Sum{} })
	w.stalled(obj, v1alpha1.ReasonAccessDenied)
	require.Contains(t, obj.Status.Message, "previous-password")
	require.Contains(t, obj.Status.Message, "as user u")

	foreign := w.object("foreign", "/foreign", brings("s"))
	w.zk.put("/foreign", "v", nil)
	w.zk.change("/foreign", func(node *zktypes.Node) { node.Hidden = true })
	w.stalled(foreign, v1alpha1.ReasonAccessDenied)
	require.NotContains(t, foreign.Status.Message, "previous-password", "it never was this object's")
}

// A list that names only the previous password would lock the operator out in a moment.
func TestAListOfThePreviousCredentialLocksOut(t *testing.T) {
	w := newWorld(t)
	w.secret("s", "u", "new")
	w.secrets["s"].Data["previous-password"] = []byte("old")
	obj := w.object("x", "/x", brings("s"), func(spec *v1alpha1.ZooKeeperConfigSpec) {
		spec.ACL = []v1alpha1.ZnodeACL{{Scheme: "digest", ID: zktypes.DigestID("u", "old"), Perms: "cdrwa"}}
	})
	w.stalled(obj, v1alpha1.ReasonWouldLockOut)
	require.Contains(t, obj.Status.Message, "previous credential")
}

// What another credential made is deleted by that one, also when the object connects with another by now.
func TestWhatWasMovedFromIsReachedAsItWas(t *testing.T) {
	w := newWorld(t)
	w.secret("one", "one", "p")
	w.secret("two", "two", "p")
	obj := w.object("x", "/a", brings("one"))
	w.ready(obj)
	brings("two")(&obj.Spec)
	obj.Spec.Path = "/b"
	w.ready(obj)
	require.Equal(t, []string{"/a as one"}, w.zk.deletedAs)
}
