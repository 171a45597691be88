package service_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	backup "go.etcd.io/etcd/client/v3/snapshot"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// What docs/disaster-recovery.md says of a backup: with bumped revisions the tokens go on rising, what the backup has is held still, and what it
// lacks is over. The restored etcd has the cluster id of the one before, and its revisions are no lower, so nothing of it looks like another one.
func TestAnEtcdRestoredFromABackup(t *testing.T) {
	for name, c := range map[string]struct {
		sessionTTL time.Duration
		over       bool // the sessions, when etcd comes back
	}{
		"after the sessions of the replicas were over": {leasetest.Options("a").SessionTTL, true},
		"within the sessions of the replicas":          {20 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			etcd, stopEtcd := etcdAt(t, "127.0.0.1:0", t.TempDir())
			address := etcd.Endpoint()
			start := func(name string) *leasetest.Replica {
				opts := leasetest.Options(name)
				opts.EtcdEndpoints, opts.SessionTTL = []string{address}, c.sessionTTL
				return leasetest.Start(t, opts)
			}
			replica, other := start("a"), start("b")
			client := leasev1.NewLeaseServiceClient(leasetest.Dial(t, replica.Address))
			kept := acquire(t, client, "kept", "one", time.Hour)
			file := filepath.Join(t.TempDir(), "backup.db")
			_, err := backup.SaveWithVersion(within(t, time.Minute), zap.NewNop(), clientv3.Config{Endpoints: []string{address}}, file)
			require.NoError(t, err)
			lost := acquire(t, client, "lost", "one", time.Hour)
			for i := range 50 {
				acquire(t, client, fmt.Sprint("more/", i), "one", time.Hour)
			}

			stopEtcd()
			for _, r := range []*leasetest.Replica{replica, other} {
				if c.over {
					leasetest.AwaitStatus(t, r.Address, "its session is uncertain", func(s *leasestatus.GetStatusResponse) bool { return !s.GetReady() })
				}
			}
			restored := filepath.Join(t.TempDir(), "restored")
			require.NoError(t, snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
				SnapshotPath: file, OutputDataDir: restored, Name: "lease-service", PeerURLs: []string{"http://localhost:2380"},
				InitialCluster: "lease-service=http://localhost:2380", InitialClusterToken: "etcd-cluster",
				RevisionBump: 1_000_000_000, MarkCompacted: true,
			}))
			etcdAt(t, address, restored)

			// Either replica may serve either name, and the two find out by themselves.
			require.EventuallyWithT(t, func(tried *assert.CollectT) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := client.KeepAlive(ctx, &leasev1.KeepAliveRequest{Name: "lost", Token: lost.GetToken()})
				assert.Equal(tried, "LEASE_NOT_HELD", reason(err), "%v", err)
				_, err = client.KeepAlive(ctx, &leasev1.KeepAliveRequest{Name: "kept", Token: kept.GetToken()})
				assert.NoError(tried, err)
			}, c.sessionTTL+20*time.Second, 50*time.Millisecond)
			again := acquire(t, client, "lost", "two", time.Hour)
			assert.Greater(t, again.GetToken(), lost.GetToken()+int64(50))
			_, err = client.Release(within(t, 10*time.Second), &leasev1.ReleaseRequest{Name: "kept", Token: kept.GetToken()})
			require.NoError(t, err)
			assert.Greater(t, acquire(t, client, "kept", "two", time.Hour).GetToken(), again.GetToken())
			for _, r := range []*leasetest.Replica{replica, other} { // before the etcd that they end their sessions with
				r.Stop(t)
			}
		})
	}
}
