// Command program is the Pulumi program of a team's stack: it reads the stack's configuration and deploys the tenants.
package main

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/holdfast-io/holdfast/stacks/tenants"
)

func main() {
	var values map[string]string
	var secretKeys []string
	pulumi.Run(func(ctx *pulumi.Context) error {
		config, err := tenants.ParseConfig(ctx.Project(), values, secretKeys)
		if err != nil {
			return err
		}
		return tenants.Deploy(ctx, config)
	}, tenants.WithConfig(func(v map[string]string, s []string) { values, secretKeys = v, s }))
}
