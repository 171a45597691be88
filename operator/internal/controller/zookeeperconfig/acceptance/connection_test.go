package acceptance_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	zktest "github.com/holdfast-io/holdfast/test/zookeeper"
)

// A connect string comes from a ConfigMap, and a change there is a move, as one in the spec is.
func TestConnectStringFromAConfigMap(t *testing.T) {
	f := start(t, shared.ConnectString())
	source := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "zookeeper"}, Data: map[string]string{"connect": f.connect + "/one\n"},
	}
	f.secret("own", map[string]string{"username": operatorCredential.User, "password": operatorCredential.Password})
	f.create(f.object("flag", "/flag", "v", func(spec *v1alpha1.ZooKeeperConfigSpec) {
		spec.Connection = &v1alpha1.ZooKeeperConnection{
			ConnectStringFrom: &v1alpha1.ObjectKeyReference{Name: "zookeeper", Key: "connect"},
			AuthSecretRef:     &v1alpha1.ObjectReference{Name: "own"},
		}
	}))
	f.not("flag", v1alpha1.ReasonSourceMissing)
	f.create(source)
	f.ready("flag")
	f.holds("/one/flag", "v")

	source.Data["connect"] = f.connect + "/two"
	require.NoError(t, f.client.Update(f.ctx, source))
	f.holds("/two/flag", "v")
	f.eventually("the znode that it moved away from is gone", func() bool {
		_, err := f.hand.Get(f.ctx, "/one/flag")
		return err != nil && f.get("flag").Status.Superseded == nil
	})
	f.ready("flag")
}

// TLS from the spec to the server, with a client certificate, the Secret's rotation, and the deletion.
func TestTLSThroughTheController(t *testing.T) {
	address, certificates := zktest.StartSecure(t)
	f := start(t, shared.ConnectString(), func(o *operatorOptions) {
		// The first handshake of a Java process takes its time.
		o.pool.DialTimeout, o.pool.RequestTimeout = 10*time.Second, 20*time.Second
	})
	f.secret("own", map[string]string{"username": operatorCredential.User, "password": operatorCredential.Password})
	tls := map[string]string{"ca.crt": string(certificates.CA), "tls.crt": string(certificates.ClientCert)}
	f.secret("tls", tls)
	f.create(f.object("flag", "/tls-"+f.ns, "v", func(spec *v1alpha1.ZooKeeperConfigSpec) {
		spec.Connection = &v1alpha1.ZooKeeperConnection{
			ConnectString: address, AuthSecretRef: &v1alpha1.ObjectReference{Name: "own"},
			TLS: &v1alpha1.ZooKeeperTLS{SecretRef: &v1alpha1.ObjectReference{Name: "tls"}},
		}
	}))
	f.not("flag", v1alpha1.ReasonInvalidSpec) // a certificate without its key

	f.deleteSecret("tls")
	tls["tls.key"] = string(certificates.ClientKey)
	f.secret("tls", tls)
	f.ready("flag")
	target := targetAt(t, address, operatorCredential)
	target.TLS = &zookeeper.TLS{CA: certificates.CA, Cert: certificates.ClientCert, Key: certificates.ClientKey}
	options := poolOptions()
	options.DialTimeout, options.RequestTimeout = 10*time.Second, 20*time.Second
	hand := handOf(t, options, target)
	content, err := hand.Get(f.ctx, "/tls-"+f.ns)
	require.NoError(t, err)
	require.Equal(t, "v", string(content.Value))

	f.remove("flag")
	f.gone("flag")
	_, err = hand.Get(f.ctx, "/tls-"+f.ns)
	require.ErrorIs(t, err, zookeeper.ErrNoNode)
}

// lose takes the operator's Role in the namespace away, as the deletion of the namespace does in no certain order.
func (f *fixture) lose() {
	f.Helper()
	require.NoError(f, f.client.Delete(f.ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "operator"}}))
	operator, err := client.New(f.config(), client.Options{Scheme: newScheme(f)})
	require.NoError(f, err)
	f.eventually("the API server knows", func() bool {
		return apierrors.IsForbidden(operator.List(f.ctx, &corev1.SecretList{}, client.InNamespace(f.ns)))
	})
}

// A namespace that is deleted loses the operator's Role and the Secrets in no certain order with its objects. Their
// finalizers must not wait for what does not come back.
func TestANamespaceThatIsDeleted(t *testing.T) {
	f := start(t, shared.ConnectString())
	f.secret("own", map[string]string{"username": operatorCredential.User, "password": operatorCredential.Password})
	bring := func(spec *v1alpha1.ZooKeeperConfigSpec) {
		spec.Connection = &v1alpha1.ZooKeeperConnection{ConnectString: f.connect, AuthSecretRef: &v1alpha1.ObjectReference{Name: "own"}}
	}
	f.create(f.object("relies", "/relies", "a"))
	f.create(f.object("brings", "/brings", "b", bring))
	f.ready("relies")
	f.ready("brings")
	f.lose()
	f.deleteSecret("own")
	for _, name := range []string{"relies", "brings"} {
		f.remove(name)
		f.gone(name)
		f.absent("/" + name)
	}
}

// The same, and the operator is started anew in between: it may not read the namespace any more, but for its own kind, and
// has no credential but its own.
func TestANamespaceThatIsDeletedAndANewOperator(t *testing.T) {
	f := start(t, shared.ConnectString())
	f.secret("own", map[string]string{"username": operatorCredential.User, "password": operatorCredential.Password})
	f.create(f.object("relies", "/relies", "a"))
	f.create(f.object("brings", "/brings", "b", func(spec *v1alpha1.ZooKeeperConfigSpec) {
		spec.Connection = &v1alpha1.ZooKeeperConnection{ConnectString: f.connect, AuthSecretRef: &v1alpha1.ObjectReference{Name: "own"}}
	}))
	f.ready("relies")
	f.ready("brings")
	f.stop()
	f.lose()
	f.remove("relies")
	f.remove("brings")
	f.run(func(o *operatorOptions) { o.Settings.DeletionDeadline = 2 * time.Second })
	f.gone("relies")
	f.absent("/relies")
	f.gone("brings")
	f.holds("/brings", "b") // left behind: nothing that could delete it can be read
}
