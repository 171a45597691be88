package tenants

import (
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/stacks/internal/configschema"
	"github.com/holdfast-io/holdfast/stacks/internal/selfservice"
)

// Deploy registers the team's stack: it reads the space from the platform's outputs, checks the tenants against it, and
// only then registers anything.
func Deploy(ctx *pulumi.Context, config *Config) error {
	space, err := readSpace(ctx, config)
	if err != nil {
		return err
	}
	specs, err := within(config, space)
	if err != nil {
		return err
	}
	tenants := pulumi.Map{}
	for i := range config.Tenants {
		name := config.Tenants[i].Name
		tenant, err := components.NewLeaseTenant(ctx, name, &components.LeaseTenantArgs{
			Tenant: name, Namespace: space.Namespace, Service: specs[i],
		})
		if err != nil {
			return err
		}
		tenants[name] = pulumi.Map{"name": tenant.Name, "namespace": tenant.Namespace, "endpoint": tenant.Endpoint}
	}
	ctx.Export("namespace", pulumi.String(space.Namespace))
	ctx.Export("tenants", tenants)
	return nil
}

func readSpace(ctx *pulumi.Context, config *Config) (*selfservice.Space, error) {
	platform, err := pulumi.NewStackReference(ctx, config.Platform, nil)
	if err != nil {
		return nil, fmt.Errorf("%splatform: read the stack %s: %w", configschema.KeyPrefix, config.Platform, err)
	}
	output, err := platform.GetOutputDetails(selfservice.Output)
	if err != nil {
		return nil, fmt.Errorf("%splatform: read the output %s of %s: %w", configschema.KeyPrefix, selfservice.Output, config.Platform, err)
	}
	space, err := selfservice.Decode(output.Value, config.Space)
	var unknown *selfservice.UnknownSpaceError
	if errors.As(err, &unknown) {
		return nil, &ConfigError{Problems: []configschema.Problem{{Path: "space", Message: unknown.Error()}}}
	}
	return space, err
}
