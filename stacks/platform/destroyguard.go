package platform

import (
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/holdfast-io/holdfast/stacks/internal/configschema"
)

const (
	destroyGuardType = "holdfast:index:DestroyGuard"
	destroyGuardName = "destroy-guard"
	// destroyHook is the name of a hook, and what Pulumi prints when it refuses a destroy because of it: the program does not
	// run then, and can say nothing else.
	destroyHook = "GitOps owns objects of this stack, and they would stay behind without an owner: " +
		"run `make destroy`, which takes them back first and then destroys everything"
)

// destroyGuard stands in the stack's state for as long as a destroy by Pulumi alone would delete what makes Argo CD or Flux
// keep objects and leave these behind, without an owner and out of every state. The engine refuses to destroy a stack that
// has a delete hook without its program, before it deletes anything. With the program the hook refuses by itself; the guard
// depends on everything else, so it is what would be deleted first.
//
// Marking the keepers as protected was the other way. It cannot say what to do instead, and with --skip-preview other
// objects would be deleted before the engine comes to the first protected one.
type destroyGuard struct{ pulumi.ResourceState }

// guarded reports whether the stack gets the guard. With a cascade the objects go with what keeps them, so a destroy leaves
// nothing behind; but nothing cascades, and objects are retained, while units change their owner.
func (d *deployment) guarded() bool {
	config := d.config.GitOps
	if config == nil || config.Cascade && len(d.transit.Units) == 0 {
		return false
	}
	return slices.ContainsFunc(d.config.Units(), d.kept)
}

// guardDestroy registers the hook also when there is no guard any more: an update that removes the guard calls it.
func (d *deployment) guardDestroy() error {
	if d.config.GitOps == nil {
		return nil
	}
	guarded := d.guarded()
	hook, err := d.ctx.RegisterResourceHook(destroyHook, func(*pulumi.ResourceHookArgs) error {
		if !guarded {
			return nil
		}
		return fmt.Errorf("destroying this stack now would delete what makes %s keep the objects, and not the objects (%sgitops.cascade: %t)",
			d.config.GitOps.Flavour, configschema.KeyPrefix, d.config.GitOps.Cascade)
	}, &pulumi.ResourceHookOptions{OnDryRun: true})
	if err != nil || !guarded {
		return err
	}
	return d.ctx.RegisterComponentResource(destroyGuardType, destroyGuardName, &destroyGuard{}, pulumi.DependsOn(d.objects),
		pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeDelete: []*pulumi.ResourceHook{hook}}))
}
