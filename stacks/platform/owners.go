package platform

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/holdfast-io/holdfast/stacks/internal/configschema"
)

// Run is the Pulumi program: [Deploy], once it is certain that the update changes no object's owner. That takes several
// updates with a proof between them, which the handover command makes; a single one would delete what the stack drops.
func Run(ctx *pulumi.Context, config *Config) error {
	urns, err := stateURNs(ctx)
	if err != nil {
		return fmt.Errorf("read what the stack holds, to see who owns it: %w", err)
	}
	if err := checkOwners(config, ctx.Stack(), ctx.Project(), urns); err != nil {
		return err
	}
	return Deploy(ctx, config)
}

// stateURNs lists the resources in the stack's state, as the last update left it.
func stateURNs(ctx *pulumi.Context) ([]string, error) {
	var result struct {
		Outputs map[string]any `pulumi:"outputs"`
	}
	args := struct {
		StackName string `pulumi:"stackName"`
	}{strings.Join([]string{ctx.Organization(), ctx.Project(), ctx.Stack()}, "/")}
	if err := ctx.Invoke("pulumi:pulumi:readStackResourceOutputs", &args, &result); err != nil {
		return nil, err
	}
	urns := make([]string, 0, len(result.Outputs))
	for urn := range result.Outputs {
		urns = append(urns, urn)
	}
	return urns, nil
}

// checkOwners compares the owners that the configuration names with those by the state.
func checkOwners(config *Config, stack, project string, urns []string) error {
	holds := func(typeToken, name string) bool {
		return slices.Contains(urns, fmt.Sprintf("urn:pulumi:%s::%s::%s::%s", stack, project, typeToken, name))
	}
	gitOps := false
	for _, unit := range config.Units() {
		if config.Owner(unit) != OwnershipGitOps {
			continue
		}
		gitOps = true
		names, types := []string{platformName, devEtcdName}, []string{"holdfast:index:Platform", "holdfast:index:DevEtcd"}
		if tenant := unit.Tenant(); tenant != "" {
			names, types = []string{tenant, tenant}, []string{"holdfast:index:TenantSpace", "holdfast:index:LeaseTenant"}
		}
		for i := range names {
			if holds(types[i], names[i]) {
				return fmt.Errorf("%sownership: %s is GitOps' by the configuration, but its objects are still in the stack, "+
					"and this update would delete them: run make handover TO=%s, which moves them, or set the owner back to %s",
					configschema.KeyPrefix, unit, OwnershipGitOps, OwnershipPulumi)
			}
		}
	}
	if !gitOps && holds("holdfast:index:GitOpsHandover", gitOpsName) {
		return fmt.Errorf("%sownership: everything is Pulumi's by the configuration, but the stack still has GitOps keep "+
			"some of it: run make handover TO=%s, which takes it back, or set the owner back to %s",
			configschema.KeyPrefix, OwnershipPulumi, OwnershipGitOps)
	}
	return nil
}
