// Command infra is the Pulumi program of Holdfast: it reads the stack's configuration and deploys the platform stack.
package main

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/holdfast-io/holdfast/stacks/platform"
)

func main() {
	var values map[string]string
	var secretKeys []string
	pulumi.Run(func(ctx *pulumi.Context) error {
		config, err := platform.ParseConfig(values, secretKeys)
		if err != nil {
			return err
		}
		return platform.Run(ctx, config)
	}, platform.WithConfig(func(v map[string]string, s []string) { values, secretKeys = v, s }))
}
