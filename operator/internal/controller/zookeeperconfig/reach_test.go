package zookeeperconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// What the object moved away from, or was about to make, is reached as it was made: over TLS, with the name that the certificate
// is for, by the credential of then.
func TestWhatIsLeftIsReachedAsItWas(t *testing.T) {
	secure := func(spec *v1alpha1.ZooKeeperConfigSpec) {
		spec.Connection = &v1alpha1.ZooKeeperConnection{
			ConnectString: "secure:2281", AuthSecretRef: &v1alpha1.ObjectReference{Name: "s"},
			TLS: &v1alpha1.ZooKeeperTLS{ServerName: "zk.example"},
		}
	}
	for name, made := range map[string]func(*world, *v1alpha1.ZooKeeperConfig){
		"on record":            func(w *world, obj *v1alpha1.ZooKeeperConfig) { w.ready(obj) },
		"not on record":        func(w *world, obj *v1alpha1.ZooKeeperConfig) { w.interrupted(obj) },
		"on record, restarted": func(w *world, obj *v1alpha1.ZooKeeperConfig) { w.ready(obj); w.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.secret("s", "u", "p")
			obj := w.object("x", "/x", secure)
			made(w, obj)
			obj.Spec.Connection = nil
			w.ready(obj)
			require.Equal(t, []string{"/x as u by TLS with zk.example"}, w.tree("secure:2281").deletedAs)
			require.Equal(t, []string{"/x"}, w.zk.paths())
		})
		t.Run(name+", deleted", func(t *testing.T) {
			w := newWorld(t)
			w.secret("s", "u", "p")
			obj := w.object("x", "/x", secure)
			made(w, obj)
			obj.Spec.Connection = nil
			require.True(t, w.remove(obj))
			require.Equal(t, []string{"/x as u by TLS with zk.example"}, w.tree("secure:2281").deletedAs)
		})
	}
}
