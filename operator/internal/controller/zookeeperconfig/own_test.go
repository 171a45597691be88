package zookeeperconfig

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/shared"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// What of the operator's own target an object gets: the TLS settings, whoever's the credential, on that ensemble and no other, and
// unless it has its own. What an object does not get may be unreadable.
func TestWhatIsTheOperatorsOwn(t *testing.T) {
	connect, err := zktypes.ParseConnectString("zk:2281")
	require.NoError(t, err)
	all := zookeeper.Target{Connect: connect, Credential: own, TLS: &zookeeper.TLS{CA: []byte("own")}, Own: true}
	auth, theirs := &v1alpha1.ObjectReference{Name: "auth"}, &v1alpha1.ZooKeeperTLS{ServerName: "theirs"}
	for name, c := range map[string]struct {
		connection      *v1alpha1.ZooKeeperConnection
		credential, tls string // whose
		own             bool
	}{
		"nothing":                        {nil, "operator", "own", true},
		"the same connect string":        {&v1alpha1.ZooKeeperConnection{ConnectString: "zk:2281"}, "operator", "own", true},
		"a credential":                   {&v1alpha1.ZooKeeperConnection{AuthSecretRef: auth}, "u", "own", false},
		"TLS":                            {&v1alpha1.ZooKeeperConnection{TLS: theirs}, "operator", "theirs", false},
		"credential and TLS":             {&v1alpha1.ZooKeeperConnection{AuthSecretRef: auth, TLS: theirs}, "u", "theirs", false},
		"another ensemble":               {&v1alpha1.ZooKeeperConnection{ConnectString: "other:2281", AuthSecretRef: auth}, "u", "", false},
		"another ensemble, with nothing": {&v1alpha1.ZooKeeperConnection{ConnectString: "other:2281"}, "", "", false},
		"another ensemble by TLS":        {&v1alpha1.ZooKeeperConnection{ConnectString: "other:2281", AuthSecretRef: auth, TLS: theirs}, "u", "theirs", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.secrets["auth"] = &corev1.Secret{Data: map[string][]byte{"username": []byte("u"), "password": []byte("p")}}
			obj := w.object("x", "/x")
			obj.Spec.Connection = c.connection
			for _, fault := range []error{nil, shared.ErrCredential, shared.ErrTLS, errors.Join(shared.ErrCredential, shared.ErrTLS)} {
				r := resolver{ctx: t.Context(), reader: w, obj: obj, settings: Settings{
					Default: func(string) (zookeeper.Target, error) { return all, fault },
				}}
				got, err := r.target()
				reason := ""
				switch {
				case c.credential == "operator" && errors.Is(fault, shared.ErrCredential):
					reason = v1alpha1.ReasonOperatorCredential
				case c.tls == "own" && errors.Is(fault, shared.ErrTLS):
					reason = v1alpha1.ReasonOperatorTLS
				}
				if reason != "" {
					var unknown *reconcile.UnknownError
					require.ErrorAs(t, err, &unknown, "%v", fault)
					require.Equal(t, reason, unknown.Reason, "%v", fault)
					continue
				}
				require.NoError(t, err, "%v", fault)
				require.Equal(t, c.credential, got.Credential.User)
				require.Equal(t, c.own, got.Own)
				require.Equal(t, c.tls, ofTLS(got.TLS))
			}
		})
	}
}

// ofTLS says whose TLS settings these are.
func ofTLS(tls *zookeeper.TLS) string {
	if tls == nil {
		return ""
	}
	return fmt.Sprint(string(tls.CA), tls.ServerName)
}
