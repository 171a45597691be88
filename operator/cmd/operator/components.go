package main

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/crds"
	"github.com/holdfast-io/holdfast/operator/internal/component"
	"github.com/holdfast-io/holdfast/operator/internal/config"
	"github.com/holdfast-io/holdfast/operator/internal/controller/leaseservice"
	"github.com/holdfast-io/holdfast/operator/internal/controller/releaseguard"
	"github.com/holdfast-io/holdfast/operator/internal/controller/zookeeperconfig"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
	"github.com/holdfast-io/holdfast/operator/internal/secrets"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/shared"
)

// components is everything that this binary can run. A new kind is one entry here.
func components(c config.OperatorConfig) []component.Component {
	zk := zooKeeperPool(c.ZooKeeper)
	all := []component.Component{
		secrets.Component(),
		leaseservice.Component(leaseServiceOptions(c)),
		zk.Component(),
		zookeeperconfig.Component(zooKeeperOptions(zk, c.ZooKeeper)),
	}
	if len(c.ReleaseGuard.Namespaces) > 0 {
		all = append(all, releaseguard.Component(releaseGuardOptions(c)))
	}
	return all
}

func releaseGuardOptions(c config.OperatorConfig) releaseguard.Options {
	return releaseguard.Options{
		Namespaces:    c.ReleaseGuard.Namespaces,
		Settings:      releaseguard.Settings{Prometheus: c.ReleaseGuard.Prometheus},
		Workloads:     !slices.Contains(c.Components.Disabled, leaseservice.Name),
		MaxConcurrent: c.ReleaseGuard.MaxConcurrentReconciles,
	}
}

func leaseServiceOptions(c config.OperatorConfig) leaseservice.Options {
	out := leaseservice.Options{
		Settings: desired.Settings{
			DefaultImage: c.LeaseService.Image, OperatorNamespace: c.LeaderElection.Namespace, IssueCertificates: c.LeaseService.TLS.Enabled,
			RollOperatorChanges: c.LeaseService.OperatorChanges == config.OperatorChangesAutomatic,
		},
		Seed:                types.NamespacedName{Namespace: c.LeaderElection.Namespace, Name: crds.SeedSecret},
		CertificateLifetime: c.LeaseService.TLS.CertificateLifetime.Duration,
		MaxConcurrent:       c.LeaseService.MaxConcurrentReconciles,
	}
	if c.LeaseService.ProvisionEtcd {
		out.EtcdAdmin = types.NamespacedName{Namespace: c.LeaderElection.Namespace, Name: crds.EtcdAdminAccess}
	}
	return out
}

func zooKeeperPool(c config.ZooKeeper) *shared.Pool {
	var own *shared.Own
	if connect, ok := c.OwnConnect(); ok {
		own = shared.NewOwn(connect, shared.Reader{Credential: c.Credential, TLS: c.ReadTLS})
	}
	return shared.New(zookeeper.Options{
		SessionTimeout: c.SessionTimeout.Duration, RequestTimeout: c.RequestTimeout.Duration,
		BreakerFailures: uint32(c.BreakerFailures), AuditInterval: c.AuditInterval.Duration, MaxSessions: c.MaxSessions,
	}, own)
}

func zooKeeperOptions(pool *shared.Pool, c config.ZooKeeper) zookeeperconfig.Options {
	return zookeeperconfig.Options{
		Pool: pool,
		Settings: zookeeperconfig.Settings{
			Grants: c.PlanGrants(), DeletionDeadline: c.DeletionDeadline.Duration, NamespaceSessions: c.MaxSessionsPerNamespace,
		},
		MaxConcurrent: c.MaxConcurrentReconciles,
	}
}
