package main

import (
	"github.com/holdfast-io/holdfast/operator/internal/component"
	"github.com/holdfast-io/holdfast/operator/internal/config"
	"github.com/holdfast-io/holdfast/operator/internal/controller/leaseservice"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
)

// components is everything that this binary can run. A new kind is one entry here.
func components(c config.OperatorConfig) []component.Component {
	return []component.Component{
		leaseservice.Component(leaseservice.Options{
			Settings:      desired.Settings{DefaultImage: c.LeaseService.Image, OperatorNamespace: c.LeaderElection.Namespace},
			MaxConcurrent: c.LeaseService.MaxConcurrentReconciles,
		}),
	}
}
