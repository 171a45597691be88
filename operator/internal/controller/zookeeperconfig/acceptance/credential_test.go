package acceptance_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	pool "github.com/holdfast-io/holdfast/operator/internal/zookeeper/shared"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// folder is where the operator's own credential comes from.
type folder struct {
	mu    sync.Mutex
	fault error
}

func (f *folder) read() (zookeeper.Credential, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fault != nil {
		return zookeeper.Credential{}, f.fault
	}
	return operatorCredential, nil
}

func (f *folder) set(fault error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

func (f *folder) asOwn(t *testing.T) setting {
	return func(o *operatorOptions) {
		target, err := o.Settings.Default("")
		require.NoError(t, err)
		o.own = pool.NewOwn(target.Connect, pool.Reader{Credential: f.read})
	}
}

// Objects that rely on the operator's own credential say so while it cannot be read, the others do not care, and all go on by
// themselves when it is there.
func TestTheOperatorsOwnCredentialCannotBeRead(t *testing.T) {
	f := start(t, shared.ConnectString())
	f.stop()
	credential := &folder{fault: errors.New("no such file")}
	f.run(credential.asOwn(t))
	f.secret("own", map[string]string{"username": operatorCredential.User, "password": operatorCredential.Password})
	f.create(f.object("relies", "/relies", "a"))
	f.create(f.object("brings", "/brings", "b", func(spec *v1alpha1.ZooKeeperConfigSpec) {
		spec.Connection = &v1alpha1.ZooKeeperConnection{AuthSecretRef: &v1alpha1.ObjectReference{Name: "own"}}
	}))
	obj := f.not("relies", v1alpha1.ReasonOperatorCredential)
	require.Empty(t, obj.Finalizers)
	require.Contains(t, obj.Status.Message, "zookeeper.credentialFolder")
	require.NotContains(t, obj.Status.Message, "no such file", "the cause is the operator's business")
	f.ready("brings")

	credential.set(nil)
	f.ready("relies")
	f.holds("/relies", "a")
	f.eventually("one event", func() bool { return f.events("relies")[v1alpha1.ReasonOperatorCredential] == 1 })

	credential.set(errors.New("unmounted"))
	f.not("relies", v1alpha1.ReasonOperatorCredential)
	f.ready("brings")
	f.remove("relies")
	f.gone("relies") // by the credential that worked last
	f.absent("/relies")
}

// A password is rotated: the former one beside it for a while opens everything, and what was made before can be changed and
// deleted by the new one alone afterwards, and siblings made.
func TestAPasswordIsRotated(t *testing.T) {
	f := start(t, shared.ConnectString())
	first, second := zookeeper.Credential{User: "app", Password: "1-" + planted}, zookeeper.Credential{User: "app", Password: "2-" + planted}
	brings := func(spec *v1alpha1.ZooKeeperConfigSpec) {
		spec.Connection = &v1alpha1.ZooKeeperConnection{ConnectString: shared.ConnectString(), AuthSecretRef: &v1alpha1.ObjectReference{Name: "app"}}
	}
	at := func(name string) string { return "/rotation-" + f.ns + "/" + name }
	f.secret("app", map[string]string{"username": first.User, "password": first.Password})
	f.create(f.object("x", at("x"), "v", brings))
	f.ready("x")

	rotate := func(patch string) {
		t.Helper()
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "app"}}
		require.NoError(t, f.client.Patch(f.ctx, secret, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	rotate(`{"stringData":{"password":"` + second.Password + `"}}`)
	obj := f.not("x", v1alpha1.ReasonAccessDenied)
	require.Contains(t, obj.Status.Message, "previous-password")
	rotate(`{"stringData":{"previous-password":"` + first.Password + `"}}`)
	f.ready("x")
	theirs := handAt(t, shared.ConnectString(), second)
	for _, path := range []string{at("x"), zktypes.Parent(at("x"))} {
		f.eventually(path+" has another list", func() bool {
			got, err := theirs.Get(f.ctx, path)
			return err == nil && zktypes.EqualACL(got.ACL, []zktypes.ACL{digest(second, "cdrwa")})
		})
	}

	rotate(`{"data":{"previous-password":null}}`)
	f.create(f.object("y", at("y"), "v", brings))
	f.ready("y")
	f.edit("x", text("w"))
	f.ready("x")
	for _, name := range []string{"x", "y"} {
		f.remove(name)
		f.gone(name)
		_, err := theirs.Get(f.ctx, at(name))
		require.ErrorIs(t, err, zookeeper.ErrNoNode)
	}
	require.NotContains(t, f.logs.String(), planted)
}
