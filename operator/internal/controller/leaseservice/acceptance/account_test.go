package acceptance_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/crds"
	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/etcdadmin"
	"github.com/holdfast-io/holdfast/operator/internal/etcdadmin/etcdtest"
)

// administered gives the operator of a stage an etcd to administer.
func administered(etcd *etcdtest.Server) func(*stage) {
	return func(s *stage) {
		s.administers = true
		require.NoError(s.t, s.c.Create(s.t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.own, Name: crds.EtcdAdminAccess},
			Data: map[string][]byte{
				"endpoints": []byte("https://elsewhere:2379, " + etcd.Endpoint), "username": []byte("root"), "password": []byte(etcdtest.RootPassword),
				"ca.crt": etcd.Keys.CA, "tls.crt": etcd.Keys.Cert, "tls.key": etcd.Keys.Key,
			},
		}))
	}
}

// login connects to etcd as the pods of a LeaseService do.
func (s *stage) login(etcd *etcdtest.Server, name string) (*clientv3.Client, string) {
	s.t.Helper()
	secret := &corev1.Secret{}
	require.NoError(s.t, s.child(secret, name+"-etcd-auth"))
	require.Equal(s.t, corev1.SecretTypeBasicAuth, secret.Type)
	user := string(secret.Data["username"])
	return etcd.Login(s.root, user, string(secret.Data["password"])), user
}

func TestUsersOfEtcd(t *testing.T) {
	etcd := etcdtest.Start(t)
	s := newStage(t, administered(etcd))
	admin, ctx := etcdadmin.Admin{Client: etcd.Root}, t.Context()
	spec := `{etcdEndpoints: ["` + etcd.Endpoint + `"]}`
	put := func(c *clientv3.Client, name string) error {
		_, err := c.Put(ctx, "/holdfast/"+s.ns+"/"+name+"/key", "v")
		return err
	}
	keys := func(name string) int64 {
		answer, err := etcd.Root.Get(ctx, "/holdfast/"+s.ns+"/"+name+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		return answer.Count
	}
	for _, name := range []string{"locks", "other"} {
		require.NoError(t, s.c.Create(ctx, minimal(t, s.ns, name, spec)))
		s.until(name, "Ready", ready)
	}
	locks, user := s.login(etcd, "locks")
	other, _ := s.login(etcd, "other")
	s.run("each has its own prefix and no other", func(t *testing.T) {
		require.NoError(t, put(locks, "locks"))
		require.NoError(t, put(other, "other"))
		require.ErrorIs(t, put(other, "locks"), rpctypes.ErrPermissionDenied)
		_, err := locks.Get(ctx, "/holdfast/"+s.ns+"/other/", clientv3.WithPrefix())
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	})
	s.run("the pods log in with it", func(t *testing.T) {
		pod := &corev1.Pod{}
		require.NoError(t, s.child(pod, "locks-0"))
		for _, flag := range []string{
			"--etcd-user-file=/etc/holdfast/etcd-auth/username", "--etcd-password-file=/etc/holdfast/etcd-auth/password", "--etcd-ca=/etc/holdfast/etcd-auth/ca.crt",
		} {
			require.Contains(t, pod.Spec.Containers[0].Args, flag)
		}
	})
	s.run("another's prefix cannot be asked for", func(t *testing.T) {
		for name, prefix := range map[string]string{"thief": "/holdfast/" + s.ns + "/locks/", "greedy": "/holdfast/", "sly": "/holdfast/" + s.ns + "/sly2/"} {
			require.NoError(t, s.c.Create(ctx, minimal(t, s.ns, name, `{etcd: {prefix: `+prefix+`}, etcdEndpoints: ["`+etcd.Endpoint+`"]}`)))
			ls := s.until(name, "Stalled", func(ls *v1alpha1.LeaseService) bool { return condition(ls, "Stalled").Status == metav1.ConditionTrue })
			require.Equal(t, v1alpha1.ReasonInvalidSpec, condition(ls, "Stalled").Reason)
			names, err := admin.Names(ctx, "")
			require.NoError(t, err)
			for _, account := range names {
				require.NotContains(t, account, "/"+name+"/")
			}
		}
	})
	s.run("what is gone is collected, and nothing else", func(t *testing.T) {
		strangers := []string{"holdfast-another-installation/" + s.ns + "/locks/uid", "a-person"}
		for _, name := range strangers {
			require.NoError(t, admin.Grant(ctx, etcdadmin.Account{Name: name, Password: "x", Prefix: "/strangers/"}))
		}
		require.NoError(t, s.c.Delete(ctx, s.get("locks")))
		require.True(t, poll(func() bool { return keys("locks") == 0 }), "the keys stay")
		require.True(t, poll(func() bool { names, err := admin.Names(ctx, user); return err == nil && len(names) == 0 }), "the user stays")
		for _, name := range strangers {
			_, err := etcd.Root.UserGet(ctx, name)
			require.NoError(t, err, name)
		}
		require.EqualValues(t, 1, keys("other"))
		require.NoError(t, put(other, "other"))
	})
	s.run("a namespace that is no longer the operator's keeps its users until it is gone", func(t *testing.T) {
		installation, _, _ := strings.Cut(user, "/")
		abandoned, gone := installation+"/"+newNamespace(t, s.c)+"/locks/uid", installation+"/never-there/locks/uid"
		for _, name := range []string{abandoned, gone} {
			require.NoError(t, admin.Grant(ctx, etcdadmin.Account{Name: name, Password: "x", Prefix: "/strangers/"}))
		}
		require.True(t, poll(func() bool { names, err := admin.Names(ctx, gone); return err == nil && len(names) == 0 }), "the user stays")
		_, err := etcd.Root.UserGet(ctx, abandoned)
		require.NoError(t, err, "pods may run there")
		require.NoError(t, admin.Revoke(ctx, abandoned))
	})
	s.run("one of the same name begins anew", func(t *testing.T) {
		require.True(t, poll(func() bool { return s.c.Create(ctx, minimal(t, s.ns, "locks", spec)) == nil }))
		s.until("locks", "Ready", ready)
		again, name := s.login(etcd, "locks")
		require.NotEqual(t, user, name)
		require.NoError(t, put(again, "locks"))
	})
	s.run("a new operator changes nothing", func(t *testing.T) {
		before, err := etcd.Root.AuthStatus(ctx)
		require.NoError(t, err)
		s.stop()
		s.startOperator()
		s.until("locks", "Ready", ready)
		_, gone := s.login(etcd, "other")
		require.NoError(t, s.c.Delete(ctx, s.get("other")))
		require.True(t, poll(func() bool { names, err := admin.Names(ctx, gone); return err == nil && len(names) == 0 }), "the user stays")
		after, err := etcd.Root.AuthStatus(ctx)
		require.NoError(t, err)
		require.Equal(t, before.AuthRevision+2, after.AuthRevision, "the user and the role of the one that was deleted, and no more")
	})
	s.run("a new operator puts right what it may while it cannot administer etcd, and confirms later", func(t *testing.T) {
		_, err := etcd.Root.UserChangePassword(ctx, "root", "another")
		require.NoError(t, err)
		root := etcd.Login(t, "root", "another")
		_, name := s.login(etcd, "locks")
		_, err = root.UserRevokeRole(ctx, name, name)
		require.NoError(t, err)
		s.stop()
		s.startOperator()
		s.edit("locks", func(spec *v1alpha1.LeaseServiceSpec) { spec.Replicas = 2 })
		s.until("locks", "Ready with 2 replicas", func(ls *v1alpha1.LeaseService) bool { return ready(ls) && ls.Status.ReadyReplicas == 2 })
		require.NoError(t, s.c.Create(ctx, minimal(t, s.ns, "late", spec)))
		s.until("late", "without its user", func(ls *v1alpha1.LeaseService) bool {
			return condition(ls, "Ready").Reason == v1alpha1.ReasonEtcdAccountFailed
		})
		_, err = root.UserChangePassword(ctx, "root", etcdtest.RootPassword)
		require.NoError(t, err)
		s.until("late", "Ready", ready)
		require.True(t, poll(func() bool {
			user, err := etcd.Root.UserGet(ctx, name)
			return err == nil && len(user.Roles) == 1
		}), "the account is not confirmed")
	})
}
