// Command consumer is a Pulumi program outside of Holdfast's module: a development etcd, and a tenant on it in a namespace
// that a platform has prepared.
package main

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/config"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

func main() {
	pulumi.Run(func(ctx *pulumi.Context) error {
		settings := config.New(ctx, "")
		namespace := settings.Require("namespace")
		etcd, err := components.NewDevEtcd(ctx, "etcd", &components.DevEtcdArgs{
			Namespace:        "consumer-go-etcd",
			Image:            settings.Require("etcdImage"),
			ClientNamespaces: []string{namespace},
		})
		if err != nil {
			return err
		}
		tenant, err := components.NewLeaseTenant(ctx, "from-go", &components.LeaseTenantArgs{
			Tenant:    "from-go",
			Namespace: namespace,
			Service: v1alpha1.LeaseServiceSpec{
				Replicas:      1,
				EtcdEndpoints: []string{components.DevEtcdEndpoint("consumer-go-etcd")},
			},
		}, pulumi.DependsOn(etcd.Objects()))
		if err != nil {
			return err
		}
		ctx.Export("endpoint", tenant.Endpoint)
		return nil
	})
}
