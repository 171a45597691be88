package platform

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/stacks/internal/configschema"
	"github.com/holdfast-io/holdfast/stacks/internal/handover"
)

// Run is the Pulumi program: [Deploy], once it is certain that the update changes no object's owner. That takes several
// updates with a proof between them, which the handover command makes; a single one would delete what the stack drops.
func Run(ctx *pulumi.Context, config *Config) error {
	state, err := stateOutputs(ctx)
	if err != nil {
		return fmt.Errorf("read what the stack holds, to see who owns it: %w", err)
	}
	if err := checkOwners(config, ctx.Stack(), ctx.Project(), state); err != nil {
		return err
	}
	return Deploy(ctx, config)
}

// stateOutputs are the resources in the stack's state, as the last update left it: by URN, each with its "outputs".
func stateOutputs(ctx *pulumi.Context) (map[string]any, error) {
	var result struct {
		Outputs map[string]any `pulumi:"outputs"`
	}
	args := struct {
		StackName string `pulumi:"stackName"`
	}{strings.Join([]string{ctx.Organization(), ctx.Project(), ctx.Stack()}, "/")}
	if err := ctx.Invoke("pulumi:pulumi:readStackResourceOutputs", &args, &result); err != nil {
		return nil, err
	}
	return result.Outputs, nil
}

// checkOwners compares the owners that the configuration names with those by the state.
func checkOwners(config *Config, stack, project string, state map[string]any) error {
	kept, err := keptByGitOps(state)
	if err != nil {
		return err
	}
	if config.GitOps != nil {
		for _, flavour := range []components.GitOpsFlavour{components.GitOpsArgoCD, components.GitOpsFlux} {
			if kept.flavours[flavour] && flavour != config.GitOps.Flavour {
				return fmt.Errorf("%sgitops.flavour: is %s, but the stack still holds what makes %s keep objects, and this update "+
					"would delete it: set it back to %s, run %s, and change it then",
					configschema.KeyPrefix, config.GitOps.Flavour, flavour, flavour, handoverCommand(stack, PlatformUnit, OwnershipPulumi))
			}
		}
	}
	for _, unit := range config.Units() {
		if config.Owner(unit) != OwnershipGitOps {
			err = kept.checkPulumis(config, unit, stack)
		} else {
			err = checkGitOps(unit, stack, project, state)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkGitOps refuses to drop from the stack what is GitOps' by the configuration.
func checkGitOps(unit Unit, stack, project string, state map[string]any) error {
	names, types := []string{platformName, devEtcdName}, []string{"holdfast:index:Platform", "holdfast:index:DevEtcd"}
	if tenant := unit.Tenant(); tenant != "" {
		names, types = []string{tenant, tenant}, []string{"holdfast:index:TenantSpace", "holdfast:index:LeaseTenant"}
	}
	for i := range names {
		if _, holds := state[fmt.Sprintf("urn:pulumi:%s::%s::%s::%s", stack, project, types[i], names[i])]; holds {
			return fmt.Errorf("%sownership: %s is GitOps' by the configuration, but its objects are still in the stack, "+
				"and this update would delete them: run %s, which moves them, or set the owner back to %s",
				configschema.KeyPrefix, unit, handoverCommand(stack, unit, OwnershipGitOps), OwnershipPulumi)
		}
	}
	return nil
}

// defaultStack is the one that the targets of make take when none is named.
const defaultStack = "dev"

func handoverCommand(stack string, unit Unit, to string) string {
	command := "make handover TO=" + to
	if stack != defaultStack {
		command += " ENV=" + stack
	}
	if tenant := unit.Tenant(); tenant != "" {
		command += " TENANT=" + tenant
	}
	return command
}

// kept is what the state has for Argo CD or Flux.
type kept struct {
	flavours map[components.GitOpsFlavour]bool
	folders  map[string]bool
}

// checkPulumis refuses to drop what keeps a folder of a unit that is Pulumi's by the configuration: with a cascade the unit's
// objects, which the update would just have taken, would go with it.
func (k *kept) checkPulumis(config *Config, unit Unit, stack string) error {
	for _, folder := range config.Folders(unit) {
		if k.folders[folder] {
			return fmt.Errorf("%sownership: %s is Pulumi's by the configuration, but the stack still has GitOps keep its folder %s, "+
				"and this update would delete what keeps it: run %s, which takes it back, or set the owner back to %s",
				configschema.KeyPrefix, unit, folder, handoverCommand(stack, unit, OwnershipPulumi), OwnershipGitOps)
		}
	}
	return nil
}

func keptByGitOps(state map[string]any) (*kept, error) {
	k := &kept{flavours: map[components.GitOpsFlavour]bool{}, folders: map[string]bool{}}
	for urn, resource := range state {
		if !handover.IsKeeper(urn) {
			continue
		}
		switch {
		case strings.Contains(urn, "$kubernetes:argoproj.io/"):
			k.flavours[components.GitOpsArgoCD] = true
		case strings.Contains(urn, ".toolkit.fluxcd.io/"):
			k.flavours[components.GitOpsFlux] = true
		}
		name := urn[strings.LastIndex(urn, "::")+len("::"):]
		for _, prefix := range []string{"-application-", "-kustomization-"} {
			if folder, ok := strings.CutPrefix(name, gitOpsName+prefix); ok {
				k.folders[folder] = true
			}
		}
		if name != gitOpsName+"-applicationset-tenants" {
			continue
		}
		folders, err := generatedFolders(resource)
		if err != nil {
			return nil, fmt.Errorf("%s in the stack's state: %w", name, err)
		}
		for _, folder := range folders {
			k.folders[folder] = true
		}
	}
	return k, nil
}

// generatedFolders are those that an ApplicationSet in the state makes Applications for.
func generatedFolders(resource any) ([]string, error) {
	object, _ := resource.(map[string]any)
	field, _, err := unstructured.NestedFieldNoCopy(object, "outputs", "spec", "generators")
	if err != nil {
		return nil, err
	}
	generators, _ := field.([]any)
	var folders []string
	for _, generator := range generators {
		fields, _ := generator.(map[string]any)
		field, _, err := unstructured.NestedFieldNoCopy(fields, "git", "directories")
		if err != nil {
			return nil, err
		}
		directories, _ := field.([]any)
		for _, directory := range directories {
			fields, _ := directory.(map[string]any)
			name, _ := fields["path"].(string)
			folders = append(folders, path.Base(name))
		}
	}
	if len(folders) == 0 {
		return nil, errors.New("spec.generators names no folders, so it is not known which tenants it keeps: run pulumi refresh")
	}
	return folders, nil
}
