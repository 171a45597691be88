package service_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-io/holdfast/operator/internal/etcdadmin/etcdtest"
	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

func TestEtcdWithTLSAndUsers(t *testing.T) {
	etcd := etcdtest.Start(t)
	ctx := within(t, time.Minute)
	prefix := "/holdfast/team-a/locks/"
	_, err := etcd.Root.RoleAdd(ctx, "locks")
	require.NoError(t, err)
	_, err = etcd.Root.RoleGrantPermission(ctx, "locks", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = etcd.Root.UserAdd(ctx, "locks", "first")
	require.NoError(t, err)
	_, err = etcd.Root.UserGrantRole(ctx, "locks", "locks")
	require.NoError(t, err)

	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		return file
	}
	opts := leasetest.Options("a")
	opts.EtcdEndpoints, opts.EtcdPrefix, opts.EtcdTLS = []string{etcd.Endpoint}, prefix, etcd.Files
	opts.EtcdUserFile, opts.EtcdPasswordFile = write("username", "locks\n"), write("password", "first\n")
	client := leasev1.NewLeaseServiceClient(leasetest.Dial(t, leasetest.Start(t, opts).Address))
	acquire := func(name string) error {
		_, err := client.Acquire(within(t, 20*time.Second), &leasev1.AcquireRequest{Name: name})
		return err
	}
	require.NoError(t, acquire("before"))

	// A change of the password makes every token of the user worthless.
	write("password", "second")
	_, err = etcd.Root.UserChangePassword(ctx, "locks", "second")
	require.NoError(t, err)
	for i := range 5 {
		require.NoError(t, acquire(fmt.Sprintf("after-%d", i)), "the password is read anew")
	}

	opts.Listen, opts.Name = "127.0.0.1:0", "b"
	opts.EtcdTLS.Cert, opts.EtcdTLS.Key = filepath.Join(dir, "none"), filepath.Join(dir, "none")
	require.NoError(t, opts.Validate(), "a certificate that is not there is none")
	opts.EtcdUser = "locks"
	require.ErrorContains(t, opts.Validate(), "exclude each other")
}
