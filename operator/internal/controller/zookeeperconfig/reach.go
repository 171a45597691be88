package zookeeperconfig

import (
	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/plan/znode"
)

// reachOf is how the ensemble of the spec is reached.
func reachOf(obj *v1alpha1.ZooKeeperConfig) (out znode.Reach) {
	connection := obj.Spec.Connection
	if connection == nil {
		return out
	}
	if connection.AuthSecretRef != nil {
		out.Auth = connection.AuthSecretRef.Name
	}
	if connection.TLS != nil {
		out.TLS, out.ServerName = true, connection.TLS.ServerName
		if connection.TLS.SecretRef != nil {
			out.TLSSecret = connection.TLS.SecretRef.Name
		}
	}
	return out
}

// recordedReach is how a znode on record was reached. A Secret for TLS says that it was by TLS, too: not every record says so.
func recordedReach(record v1alpha1.ZnodeRecord) znode.Reach {
	return znode.Reach{
		Auth: record.AuthSecretName, TLS: record.TLS || record.TLSSecretName != "",
		TLSSecret: record.TLSSecretName, ServerName: record.TLSServerName,
	}
}

func setReach(record *v1alpha1.ZnodeRecord, reach znode.Reach) {
	record.AuthSecretName = reach.Auth
	record.TLS, record.TLSSecretName, record.TLSServerName = reach.TLS, reach.TLSSecret, reach.ServerName
}

// recordOfClaim is where a claim is to, and how that was to be reached.
func recordOfClaim(claim znode.Claim) v1alpha1.ZnodeRecord {
	record := v1alpha1.ZnodeRecord{ConnectString: claim.Connect, Path: claim.Path}
	setReach(&record, claim.Reach)
	return record
}
