package main

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/crds"
	"github.com/holdfast-io/holdfast/operator/internal/component"
	"github.com/holdfast-io/holdfast/operator/internal/config"
	"github.com/holdfast-io/holdfast/operator/internal/controller/leaseservice"
	"github.com/holdfast-io/holdfast/operator/internal/controller/zookeeperconfig"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
	"github.com/holdfast-io/holdfast/operator/internal/secrets"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/shared"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// components is everything that this binary can run. A new kind is one entry here.
func components(c config.OperatorConfig) []component.Component {
	zk := shared.New(zooKeeperPool(c.ZooKeeper))
	return []component.Component{
		secrets.Component(),
		leaseservice.Component(leaseServiceOptions(c)),
		zk.Component(),
		zookeeperconfig.Component(zooKeeperOptions(zk, c.ZooKeeper)),
	}
}

func leaseServiceOptions(c config.OperatorConfig) leaseservice.Options {
	out := leaseservice.Options{
		Settings: desired.Settings{
			DefaultImage: c.LeaseService.Image, OperatorNamespace: c.LeaderElection.Namespace, IssueCertificates: c.LeaseService.TLS.Enabled,
		},
		Seed:                types.NamespacedName{Namespace: c.LeaderElection.Namespace, Name: crds.SeedSecret},
		CertificateLifetime: c.LeaseService.TLS.CertificateLifetime.Duration,
		Namespaces:          c.WatchedNamespaces(),
		MaxConcurrent:       c.LeaseService.MaxConcurrentReconciles,
	}
	if c.LeaseService.ProvisionEtcd {
		out.EtcdAdmin = types.NamespacedName{Namespace: c.LeaderElection.Namespace, Name: crds.EtcdAdminAccess}
	}
	return out
}

func zooKeeperPool(c config.ZooKeeper) zookeeper.Options {
	return zookeeper.Options{
		SessionTimeout: c.SessionTimeout.Duration, RequestTimeout: c.RequestTimeout.Duration,
		BreakerFailures: uint32(c.BreakerFailures), AuditInterval: c.AuditInterval.Duration,
	}
}

func zooKeeperOptions(pool *shared.Pool, c config.ZooKeeper) zookeeperconfig.Options {
	out := zookeeperconfig.Options{
		Pool:          pool,
		Settings:      zookeeperconfig.Settings{Grants: c.PlanGrants(), DeletionDeadline: c.DeletionDeadline.Duration},
		MaxConcurrent: c.MaxConcurrentReconciles,
	}
	if c.ConnectString != "" {
		out.Settings.Default = func(string) (zookeeper.Target, error) { return ownTarget(c) }
	}
	return out
}

// ownTarget is the ensemble of an object that names none, with the credential as it is now.
func ownTarget(c config.ZooKeeper) (zookeeper.Target, error) {
	connect, err := zktypes.ParseConnectString(c.ConnectString)
	if err != nil {
		return zookeeper.Target{}, err
	}
	user, password, err := c.Credential()
	if err != nil {
		return zookeeper.Target{}, err
	}
	return zookeeper.Target{Connect: connect, Credential: zookeeper.Credential{User: user, Password: password}}, nil
}
