package etcdadmin_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-io/holdfast/operator/internal/etcdadmin"
	"github.com/holdfast-io/holdfast/operator/internal/etcdadmin/etcdtest"
	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func account(name string) etcdadmin.Account {
	return etcdadmin.Account{Name: name, Password: "of " + name, Prefix: "/holdfast/" + name + "/locks/"}
}

// What one tenant's credentials cannot do to another's keys. Each is tried with what etcd offers to get there.
func TestTenantsCannotReachEachOther(t *testing.T) {
	etcd, ctx := etcdtest.Start(t), within(t, time.Minute)
	admin := etcdadmin.Admin{Client: etcd.Root}
	for _, name := range []string{"team-a", "team-b"} {
		require.NoError(t, admin.Grant(ctx, account(name)))
	}
	mine, theirs := account("team-a").Prefix, account("team-b").Prefix
	_, err := etcd.Root.Put(ctx, theirs+"key", "secret")
	require.NoError(t, err)
	a := etcd.Login(t, "team-a", "of team-a")
	_, err = a.Put(ctx, mine+"key", "v")
	require.NoError(t, err)
	_, err = a.Get(ctx, mine, clientv3.WithPrefix())
	require.NoError(t, err)

	get := func(key string, opts ...clientv3.OpOption) func() error {
		return func() error { _, err := a.Get(ctx, key, opts...); return err }
	}
	txn := func(cmps []clientv3.Cmp, ops ...clientv3.Op) func() error {
		return func() error { _, err := a.Txn(ctx).If(cmps...).Then(ops...).Commit(); return err }
	}
	for name, attack := range map[string]func() error{
		"read":                        get(theirs + "key"),
		"read by prefix":              get(theirs, clientv3.WithPrefix()),
		"read everything":             get("", clientv3.WithPrefix()),
		"a range that begins in ours": get(mine, clientv3.WithRange(theirs+"z")),
		"our prefix as a key from":    get(mine, clientv3.WithFromKey()),
		"a sibling by name":           get("/holdfast/team-a/locks0"),
		"the prefix without its end":  get("/holdfast/team-a/locks"),
		"count":                       get(theirs, clientv3.WithPrefix(), clientv3.WithCountOnly()),
		"write":                       func() error { _, err := a.Put(ctx, theirs+"key", "mine"); return err },
		"delete":                      func() error { _, err := a.Delete(ctx, theirs, clientv3.WithPrefix()); return err },
		"compare":                     txn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(theirs+"key"), "=", "secret")}, clientv3.OpGet(mine+"key")),
		"write in a transaction":      txn(nil, clientv3.OpPut(theirs+"key", "mine")),
		"write in a nested one":       txn(nil, clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut(theirs+"key", "mine")}, nil)),
		"add a user":                  func() error { _, err := a.UserAdd(ctx, "mallory", "x"); return err },
		"grant itself more": func() error {
			_, err := a.RoleGrantPermission(ctx, "team-a", theirs, "", clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		"turn authentication off": func() error { _, err := a.AuthDisable(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) { require.ErrorIs(t, attack(), rpctypes.ErrPermissionDenied) })
	}
	t.Run("watch", func(t *testing.T) {
		answer := <-a.Watch(ctx, theirs, clientv3.WithPrefix())
		require.ErrorContains(t, answer.Err(), "permission denied")
	})
	t.Run("another's password", func(t *testing.T) {
		_, err := etcd.Root.Authenticate(ctx, "team-b", "of team-a")
		require.ErrorIs(t, err, rpctypes.ErrAuthFailed)
	})
}

// The account is enough for the lease service, and goes with all that it wrote.
func TestLeaseServiceLivesOnItsAccount(t *testing.T) {
	etcd, ctx := etcdtest.Start(t), within(t, time.Minute)
	admin := etcdadmin.Admin{Client: etcd.Root}
	require.NoError(t, admin.Grant(ctx, account("team-a")))
	_, err := etcd.Root.Put(ctx, "/holdfast/team-a/locks0", "a neighbour in the order of keys")
	require.NoError(t, err)

	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("of team-a"), 0o600))
	opts := leasetest.Options("a")
	opts.EtcdEndpoints, opts.EtcdPrefix, opts.EtcdTLS = []string{etcd.Endpoint}, account("team-a").Prefix, etcd.Files
	opts.EtcdUser, opts.EtcdPasswordFile = "team-a", password
	replica := leasetest.Start(t, opts)
	_, err = leasev1.NewLeaseServiceClient(leasetest.Dial(t, replica.Address)).Acquire(ctx, &leasev1.AcquireRequest{Name: "jobs"})
	require.NoError(t, err)
	replica.Stop(t)

	for range 2 { // the second finds nothing to do
		require.NoError(t, admin.Revoke(ctx, "team-a"))
	}
	left, err := etcd.Root.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	require.Len(t, left.Kvs, 1)
	require.Equal(t, "/holdfast/team-a/locks0", string(left.Kvs[0].Key))
	_, err = etcd.Root.UserGet(ctx, "team-a")
	require.ErrorIs(t, err, rpctypes.ErrUserNotFound)
	names, err := admin.Names(ctx, "team")
	require.NoError(t, err)
	require.Empty(t, names)
}

func TestGrantPutsRight(t *testing.T) {
	etcd, ctx := etcdtest.Start(t), within(t, time.Minute)
	admin := etcdadmin.Admin{Client: etcd.Root}
	want := account("team-a")
	require.NoError(t, admin.Grant(ctx, want))
	revision := func() uint64 {
		status, err := etcd.Root.AuthStatus(ctx)
		require.NoError(t, err)
		return status.AuthRevision
	}
	before := revision()
	require.NoError(t, admin.Grant(ctx, want))
	require.Equal(t, before, revision(), "a second grant changes nothing")

	_, err := etcd.Root.RoleGrantPermission(ctx, "team-a", "/", "0", clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = etcd.Root.UserGrantRole(ctx, "team-a", "root")
	require.NoError(t, err)
	want.Password = "a new one"
	require.NoError(t, admin.Grant(ctx, want))
	a := etcd.Login(t, "team-a", "a new one")
	_, err = a.Get(ctx, "/", clientv3.WithPrefix())
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, "what others gave it is taken away")
	_, err = a.Get(ctx, want.Prefix, clientv3.WithPrefix())
	require.NoError(t, err)
	_, err = etcd.Root.Authenticate(ctx, "team-a", "of team-a")
	require.ErrorIs(t, err, rpctypes.ErrAuthFailed, "the old password")

	for _, bad := range []etcdadmin.Account{
		{Name: "root", Password: "x", Prefix: "/a/"}, {Name: "a", Prefix: "/a/"}, {Name: "a", Password: "x", Prefix: "/"}, {Name: "a", Password: "x", Prefix: "/a"},
	} {
		require.Error(t, admin.Grant(ctx, bad))
	}
}
