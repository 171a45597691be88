package acceptance_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/plan/znode"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
	zktest "github.com/holdfast-io/holdfast/test/zookeeper"
)

type spec = v1alpha1.ZooKeeperConfigSpec

// onEach runs a test on one server and on three.
func onEach(t *testing.T, test func(t *testing.T, hosts string)) {
	for name, ensemble := range map[string]*zktest.Ensemble{"standalone": shared, "three servers": trio} {
		t.Run(name, func(t *testing.T) { test(t, ensemble.ConnectString()) })
	}
}

func text(data string) func(*spec) { return func(s *spec) { s.StringData = &data } }

func TestCreateUpdateDelete(t *testing.T) { onEach(t, createUpdateDelete) }

func createUpdateDelete(t *testing.T, hosts string) {
	f := start(t, hosts)
	f.create(f.object("flag", "/flags/checkout", "off"))
	obj := f.ready("flag")
	made := f.znode("/flags/checkout")
	require.Equal(t, "off", string(made.Value))
	require.Zero(t, made.Version)
	require.Equal(t, []zktypes.ACL{digest(operatorCredential, "cdrwa")}, made.ACL, "never world by default")
	require.Equal(t, made.ACL, f.znode("/flags").ACL, "nor its parents")
	require.Equal(t, znode.FormatZxid(made.Czxid), obj.Status.Znode.Czxid)
	require.NotNil(t, obj.Status.LastSyncedTime)
	require.Contains(t, obj.Finalizers, v1alpha1.FinalizerZnode)

	f.edit("flag", text("on"))
	f.ready("flag")
	changed := f.znode("/flags/checkout")
	require.Equal(t, "on", string(changed.Value))
	require.EqualValues(t, 1, changed.Version)
	require.Equal(t, made.Czxid, changed.Czxid, "changed, not made anew")

	f.remove("flag")
	f.gone("flag")
	f.absent("/flags/checkout")
	f.eventually("the events", func() bool {
		events := f.events("flag")
		return events[v1alpha1.ReasonCreated] == 1 && events[v1alpha1.ReasonUpdated] == 1 && events[v1alpha1.ReasonDeleted] == 1
	})
}

func TestKnownFieldsAlone(t *testing.T) {
	f := start(t, shared.ConnectString())
	obj := f.object("known", "/known", "")
	obj.Spec.StringData, obj.Spec.Data = nil, []byte("text")
	obj.Spec.Encoding, obj.Spec.SyncPolicy = v1alpha1.EncodingUTF8, v1alpha1.SyncCreateOrUpdate
	f.create(obj)
	f.ready("known")
	require.Equal(t, "text", string(f.znode("/known").Value))

	binary := f.object("binary", "/binary", "")
	binary.Spec.StringData, binary.Spec.Data = nil, []byte{0xff, 0x00, 0xfe}
	f.create(binary)
	f.not("binary", v1alpha1.ReasonInvalidSpec)
	f.absent("/binary")
	f.edit("binary", func(s *spec) { s.Encoding = v1alpha1.EncodingBinary })
	f.ready("binary")
	require.Equal(t, []byte{0xff, 0x00, 0xfe}, f.znode("/binary").Value)
}

func TestOrphan(t *testing.T) { onEach(t, orphan) }

func orphan(t *testing.T, hosts string) {
	f := start(t, hosts)
	f.create(f.object("kept", "/kept", "v", func(s *spec) { s.DeletionPolicy = v1alpha1.DeletionOrphan }))
	f.ready("kept")
	before := f.znode("/kept")
	f.remove("kept")
	f.gone("kept")
	require.Equal(t, before, f.znode("/kept"))
}

func TestACL(t *testing.T) { onEach(t, acl) }

func acl(t *testing.T, hosts string) {
	f := start(t, hosts)
	app := zookeeper.Credential{User: "app", Password: planted}
	f.secret("app", map[string]string{"username": app.User, "password": app.Password})
	f.secret("me", map[string]string{"username": operatorCredential.User, "password": operatorCredential.Password})
	f.create(f.object("acl", "/acl", "v", func(s *spec) {
		s.ACL = []v1alpha1.ZnodeACL{
			{Scheme: "digest", SecretRef: &v1alpha1.ObjectReference{Name: "me"}, Perms: "cdrwa"},
			{Scheme: "digest", SecretRef: &v1alpha1.ObjectReference{Name: "app"}, Perms: "r"},
		}
	}))
	f.ready("acl")
	want := []zktypes.ACL{digest(operatorCredential, "cdrwa"), digest(app, "r")}
	require.True(t, zktypes.EqualACL(want, f.znode("/acl").ACL))
	theirs := handAt(t, f.connect, app)
	got, err := theirs.Get(f.ctx, "/acl")
	require.NoError(t, err)
	require.Equal(t, "v", string(got.Value))

	// A rotated password is a changed list, at once.
	rotated := zookeeper.Credential{User: "app", Password: "new-" + planted}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "app"}}
	require.NoError(t, f.client.Patch(f.ctx, secret, client.RawPatch("application/merge-patch+json", []byte(`{"stringData":{"password":"`+rotated.Password+`"}}`))))
	want[1] = digest(rotated, "r")
	f.eventually("the rotated password is in the list", func() bool { return zktypes.EqualACL(want, f.znode("/acl").ACL) })
	require.Zero(t, f.znode("/acl").Version, "the data is left alone")

	// A list that locks the operator out is refused, and nothing is changed.
	good := f.get("acl").Spec.ACL
	f.edit("acl", func(s *spec) { s.ACL = s.ACL[1:] })
	obj := f.not("acl", v1alpha1.ReasonWouldLockOut)
	require.Contains(t, obj.Status.Message, "operator")
	require.Equal(t, v1alpha1.ZnodeError, obj.Status.State)
	require.True(t, zktypes.EqualACL(want, f.znode("/acl").ACL))
	f.edit("acl", func(s *spec) { s.ACL = good })
	f.ready("acl")
}

func TestDataFrom(t *testing.T) { onEach(t, dataFrom) }

func dataFrom(t *testing.T, hosts string) {
	f := start(t, hosts)
	f.create(f.object("from", "/from", "", func(s *spec) {
		s.StringData = nil
		s.DataFrom = &v1alpha1.ZnodeDataSource{SecretKeyRef: &v1alpha1.ObjectKeyReference{Name: "source", Key: "value"}}
	}))
	f.not("from", v1alpha1.ReasonSourceMissing)
	f.secret("source", map[string]string{"value": planted})
	f.ready("from")
	require.Equal(t, planted, string(f.znode("/from").Value))

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "source"}}
	require.NoError(t, f.client.Patch(f.ctx, secret, client.RawPatch("application/merge-patch+json", []byte(`{"stringData":{"value":"`+planted+`-2"}}`))))
	require.EqualValues(t, 1, f.holds("/from", planted+"-2").Version)

	// A source that goes takes nothing with it.
	require.NoError(t, f.client.Delete(f.ctx, secret))
	f.not("from", v1alpha1.ReasonSourceMissing)
	require.Equal(t, planted+"-2", string(f.znode("/from").Value))

	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "source"}, Data: map[string]string{"value": "plain"}}
	f.create(config)
	f.edit("from", func(s *spec) {
		s.DataFrom = &v1alpha1.ZnodeDataSource{ConfigMapKeyRef: &v1alpha1.ObjectKeyReference{Name: "source", Key: "value"}}
	})
	f.ready("from")
	f.holds("/from", "plain")
	config.Data = nil
	config.BinaryData = map[string][]byte{"value": []byte("binary")}
	require.NoError(t, f.client.Update(f.ctx, config))
	f.holds("/from", "binary")
}

func TestAdoption(t *testing.T) { onEach(t, adoption) }

func adoption(t *testing.T, hosts string) {
	f := start(t, hosts)
	acl := []zktypes.ACL{digest(operatorCredential, "cdrwa")}
	require.NoError(t, f.hand.EnsureParents(f.ctx, "/theirs", acl))
	_, err := f.hand.Create(f.ctx, "", "/theirs", []byte("by hand"), acl)
	require.NoError(t, err)

	f.create(f.object("adopter", "/theirs", "declared"))
	f.not("adopter", v1alpha1.ReasonAlreadyExists)
	require.Empty(t, f.get("adopter").Finalizers, "an object without a znode goes without ceremony")
	f.edit("adopter", func(s *spec) { s.Adoption = v1alpha1.AdoptionIfEqual })
	f.not("adopter", v1alpha1.ReasonAlreadyExists)
	require.Equal(t, "by hand", string(f.znode("/theirs").Value))
	// The rival is made equal by hand, which is noticed.
	_, err = f.hand.Set(f.ctx, "", "/theirs", []byte("declared"), 0)
	require.NoError(t, err)
	f.ready("adopter")
	require.EqualValues(t, 1, f.znode("/theirs").Version, "adopted as it is")
	f.remove("adopter")
	f.gone("adopter")
	f.absent("/theirs")

	_, err = f.hand.Create(f.ctx, "", "/theirs", []byte("by hand"), append(acl, zktypes.ACL{Scheme: "world", ID: "anyone", Perms: zktypes.PermRead}))
	require.NoError(t, err)
	f.create(f.object("forcer", "/theirs", "forced", func(s *spec) { s.Adoption = v1alpha1.AdoptionForce }))
	f.ready("forcer")
	forced := f.znode("/theirs")
	require.Equal(t, "forced", string(forced.Value))
	require.Equal(t, acl, forced.ACL)
	f.eventually("the event", func() bool { return f.events("forcer")[v1alpha1.ReasonAdopted] == 1 })
}

func TestCreateOnly(t *testing.T) {
	f := start(t, shared.ConnectString())
	acl := []zktypes.ACL{digest(operatorCredential, "cdrwa")}
	require.NoError(t, f.hand.EnsureParents(f.ctx, "/there", acl))
	_, err := f.hand.Create(f.ctx, "", "/there", []byte("by hand"), acl)
	require.NoError(t, err)
	once := func(s *spec) { s.SyncPolicy = v1alpha1.SyncCreateOnly }
	f.create(f.object("there", "/there", "declared", once))
	f.create(f.object("new", "/new", "declared", once))
	f.ready("there")
	f.ready("new")
	require.Equal(t, "by hand", string(f.znode("/there").Value))
	require.Equal(t, "declared", string(f.znode("/new").Value))
	f.edit("new", text("edited"))
	f.ready("new")
	require.Equal(t, "declared", string(f.znode("/new").Value), "created once, and never changed")
	f.remove("there")
	f.gone("there")
	f.remove("new")
	f.gone("new")
	require.Equal(t, "by hand", string(f.znode("/there").Value), "what it did not create it does not delete")
	f.absent("/new")
}

func TestConflict(t *testing.T) { onEach(t, conflict) }

func conflict(t *testing.T, hosts string) {
	f := start(t, hosts)
	f.create(f.object("first", "/path", "first"))
	f.ready("first")
	f.create(f.object("second", "/path", "second", func(s *spec) { s.Adoption = v1alpha1.AdoptionForce }))
	obj := f.not("second", v1alpha1.ReasonPathConflict)
	require.Contains(t, obj.Status.Message, f.ns+"/first")
	require.Equal(t, "first", string(f.znode("/path").Value))
	// The same znode by another name: the chroot as a part of the path.
	root, err := zktypes.ParseConnectString(f.connect)
	require.NoError(t, err)
	f.secret("me", map[string]string{"username": operatorCredential.User, "password": operatorCredential.Password})
	f.create(f.object("third", root.Full("/path"), "third", func(s *spec) {
		s.Connection = &v1alpha1.ZooKeeperConnection{ConnectString: root.Ensemble(), AuthSecretRef: &v1alpha1.ObjectReference{Name: "me"}}
	}))
	f.not("third", v1alpha1.ReasonPathConflict)

	f.remove("third")
	f.gone("third")
	require.Equal(t, "first", string(f.znode("/path").Value), "the deletion of one that lost touches nothing")
	f.remove("first")
	f.gone("first")
	f.ready("second")
	f.holds("/path", "second")
}

func TestMove(t *testing.T) { onEach(t, move) }

func move(t *testing.T, hosts string) {
	f := start(t, hosts)
	f.create(f.object("mover", "/old", "v"))
	f.ready("mover")
	f.edit("mover", func(s *spec) { s.Path = "/deep/new" })
	obj := f.ready("mover")
	require.Equal(t, "/deep/new", obj.Status.Znode.Path)
	require.Empty(t, obj.Status.Superseded)
	require.Equal(t, "v", string(f.znode("/deep/new").Value))
	f.absent("/old")

	// The old one has children by now: it cannot go, and does when they do.
	_, err := f.hand.Create(f.ctx, "", "/deep/new/child", nil, []zktypes.ACL{digest(operatorCredential, "cdrwa")})
	require.NoError(t, err)
	f.edit("mover", func(s *spec) { s.Path = "/newer" })
	obj = f.not("mover", v1alpha1.ReasonProgressing)
	require.Equal(t, "/newer", obj.Status.Znode.Path)
	require.Equal(t, "/deep/new", obj.Status.Superseded[0].Znode.Path)
	require.NoError(t, f.hand.Delete(f.ctx, "", "/deep/new/child", 0))
	f.ready("mover")
	f.absent("/deep/new")

	// The same znode by another name is not moved.
	made := f.znode("/newer")
	root, err := zktypes.ParseConnectString(f.connect)
	require.NoError(t, err)
	f.secret("me", map[string]string{"username": operatorCredential.User, "password": operatorCredential.Password})
	f.edit("mover", func(s *spec) {
		s.Path = root.Full("/newer")
		s.Connection = &v1alpha1.ZooKeeperConnection{ConnectString: root.Ensemble(), AuthSecretRef: &v1alpha1.ObjectReference{Name: "me"}}
	})
	f.ready("mover")
	require.Equal(t, made, f.znode("/newer"))
}

func TestMoveToAnotherEnsemble(t *testing.T) {
	f := start(t, shared.ConnectString())
	other := zktest.Start(t, 1)
	there := handAt(t, other.ConnectString(), operatorCredential)
	f.secret("me", map[string]string{"username": operatorCredential.User, "password": operatorCredential.Password})
	f.create(f.object("mover", "/x", "v"))
	f.ready("mover")
	other.Server(0).Kill()
	f.edit("mover", func(s *spec) {
		s.Connection = &v1alpha1.ZooKeeperConnection{ConnectString: other.ConnectString(), AuthSecretRef: &v1alpha1.ObjectReference{Name: "me"}}
	})
	f.not("mover", v1alpha1.ReasonEnsembleUnavailable)
	require.Equal(t, "v", string(f.znode("/x").Value), "the old one stays until the new one stands")
	other.Server(0).Restart(t)
	f.ready("mover")
	f.eventually("the znode is in the other ensemble", func() bool {
		got, err := there.Get(f.ctx, "/x")
		return err == nil && string(got.Value) == "v"
	})
	f.absent("/x")
}

func TestPause(t *testing.T) { onEach(t, pause) }

func pause(t *testing.T, hosts string) {
	f := start(t, hosts)
	f.create(f.object("paused", "/paused", "v", func(s *spec) { s.Paused = true }))
	f.not("paused", v1alpha1.ReasonPaused)
	f.absent("/paused")
	f.edit("paused", func(s *spec) { s.Paused = false })
	f.ready("paused")
	f.edit("paused", func(s *spec) { s.Paused = true })
	f.ready("paused")
	_, err := f.hand.Set(f.ctx, "", "/paused", []byte("by hand"), 0)
	require.NoError(t, err)
	obj := f.not("paused", v1alpha1.ReasonPaused)
	require.Equal(t, v1alpha1.ZnodeOutOfSync, obj.Status.State)
	require.Contains(t, obj.Status.Drift, "7 bytes")
	require.Equal(t, "by hand", string(f.znode("/paused").Value))
	f.edit("paused", func(s *spec) { s.Paused = false })
	f.holds("/paused", "v")
	f.edit("paused", func(s *spec) { s.Paused = true })
	f.remove("paused")
	f.gone("paused")
	f.absent("/paused")
}

func TestGrants(t *testing.T) {
	hosts, err := zktypes.ParseConnectString(shared.ConnectString())
	require.NoError(t, err)
	f := start(t, shared.ConnectString(), withGrants(znode.Grant{
		Namespaces: []string{"*"}, Ensembles: []zktypes.ConnectString{hosts}, Paths: []string{"/{namespace}/mine"},
	}))
	f.create(f.object("mine", "/mine/x", "v"))
	f.ready("mine")
	f.create(f.object("other", "/minefield/x", "v"))
	obj := f.not("other", v1alpha1.ReasonNotGranted)
	require.Contains(t, obj.Status.Message, "/minefield/x")
	f.absent("/minefield")
	f.remove("other")
	f.gone("other")
}

// The operator's own credential is never sent to a server that an object's author names.
func TestOwnCredentialStaysHome(t *testing.T) {
	f := start(t, shared.ConnectString())
	f.create(f.object("foreign", "/foreign", "v", func(s *spec) {
		s.Connection = &v1alpha1.ZooKeeperConnection{ConnectString: shared.ConnectString() + "/elsewhere"}
	}))
	obj := f.not("foreign", v1alpha1.ReasonWouldLockOut)
	require.Contains(t, obj.Status.Message, "authSecretRef")
}

// An object below another may come first.
func TestOrderOfParentsDoesNotMatter(t *testing.T) {
	f := start(t, shared.ConnectString())
	f.create(f.object("child", "/tree/child", "c"))
	f.ready("child")
	f.create(f.object("parent", "/tree", "p", func(s *spec) {
		s.ACL = []v1alpha1.ZnodeACL{{Scheme: "world", ID: "anyone", Perms: "cdrwa"}}
	}))
	f.ready("parent")
	tree := f.znode("/tree")
	require.Equal(t, "p", string(tree.Value))
	require.Equal(t, zktypes.SchemeWorld, tree.ACL[0].Scheme)
	// Deleted together, in whatever order: the parent waits for the child.
	f.remove("parent")
	f.remove("child")
	f.gone("child")
	f.gone("parent")
	f.absent("/tree")
}

// A grant that is taken back stops every write, the deletion of what was made under it included; the object still goes.
func TestRevokedGrant(t *testing.T) {
	f := start(t, shared.ConnectString())
	f.create(f.object("x", "/x", "v"))
	f.ready("x")
	f.stop()
	f.run(withGrants(znode.Grant{Namespaces: []string{"somebody-else"}, Paths: []string{"/"}}))
	f.not("x", v1alpha1.ReasonNotGranted)
	_, err := f.hand.Set(f.ctx, "", "/x", []byte("by hand"), 0)
	require.NoError(t, err)
	f.remove("x")
	f.gone("x")
	require.Equal(t, "by hand", string(f.znode("/x").Value))
}

// The operator of another cluster is somebody else, though it has the same credential: nothing of one is changed or deleted
// by the other.
func TestTwoClusters(t *testing.T) {
	f := start(t, shared.ConnectString())
	f.create(f.object("x", "/x", "mine"))
	f.ready("x")
	made := f.znode("/x")
	target := targetAt(t, f.connect, operatorCredential)
	other := start(t, shared.ConnectString(), func(o *operatorOptions) { o.Settings.Default = fixed(target) })
	other.create(other.object("x", "/x", "theirs"))
	other.not("x", v1alpha1.ReasonAlreadyExists)
	other.remove("x")
	other.gone("x")
	require.Equal(t, made, f.znode("/x"))
	// Created twice at the same time, with the same content: one of them has it, and only its deletion deletes it.
	for _, each := range []*fixture{f, other} {
		each.create(each.object("race", "/race", "same"))
	}
	winner, loser := f, other
	f.eventually("one has it", func() bool {
		for _, each := range []*fixture{f, other} {
			if obj := each.get("race"); obj.Status.State == v1alpha1.ZnodeSynced {
				if winner = each; each == f {
					loser = other
				} else {
					loser = f
				}
				return true
			}
		}
		return false
	})
	loser.not("race", v1alpha1.ReasonAlreadyExists)
	loser.remove("race")
	loser.gone("race")
	require.Equal(t, "same", string(f.znode("/race").Value))
	winner.remove("race")
	winner.gone("race")
	f.absent("/race")
}
