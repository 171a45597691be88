package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/stacks/internal/handover"
	"github.com/holdfast-io/holdfast/stacks/platform"
)

// foretell says what would be done, in the order in which it would be.
func (m *mover) foretell(ctx context.Context, view handover.View) error {
	_, config, err := m.read()
	if err != nil {
		return err
	}
	steps, err := handover.Forecast(m.options.to, view)
	if err != nil {
		return err
	}
	m.say("dry run: %s, %d objects, to %s. Nothing is changed now.", m.unitNames(), len(m.manifests), m.options.to)
	if len(steps) == 0 {
		m.say("nothing is left to do")
		return nil
	}
	for i, step := range steps {
		m.say("%d. %s: %s", i+1, step, m.describe(step, config))
	}
	if steps[0] == handover.StepShare {
		return m.compare(ctx, config)
	}
	return nil
}

func (m *mover) unitNames() string {
	names := make([]string, 0, len(m.units))
	for _, unit := range m.units {
		names = append(names, string(unit))
	}
	return strings.Join(names, ", ")
}

// describe says in a sentence what a step does.
func (m *mover) describe(step handover.Step, config *platform.Config) string {
	former, next := m.owners(config.GitOps)
	where := fmt.Sprintf("%s of %s at %s", config.GitOps.Path, config.GitOps.RepoURL, config.GitOps.Revision)
	switch step {
	case handover.StepShare:
		if m.options.to == handover.GitOps {
			return fmt.Sprintf("pulumi up: marks %d objects as retained in the stack's state, and makes the %d objects by which %s keeps the same ones as in %s",
				len(m.manifests), len(m.what.Shared), next.Name, where)
		}
		return fmt.Sprintf("pulumi up: takes %d objects into the stack's state as they are, marked as retained, while %s still keeps them",
			len(m.manifests), former.Name)
	case handover.StepAdopt:
		return fmt.Sprintf("waits until %s keeps every object, Healthy, from commit %s", next.Name, m.commit)
	case handover.StepDeclare:
		return fmt.Sprintf("writes ownership: %s for %s into %s", m.options.to, m.unitNames(), m.options.file)
	case handover.StepSettle:
		if m.options.to == handover.GitOps {
			return fmt.Sprintf("pulumi up: the %d objects leave the stack's state; each is retained, so none is deleted", len(m.manifests))
		}
		return fmt.Sprintf("pulumi up: deletes what made %s keep the objects, and nothing of what was kept; takes the marks off", former.Name)
	case handover.StepWithdraw:
		return "waits until nothing in the cluster keeps the objects from " + where
	case handover.StepRelease:
		return fmt.Sprintf("%s lets go of the fields of %d objects, so that one that %s drops later goes from the cluster", former.Name, len(m.manifests), next.Name)
	default:
		return ""
	}
}

// renderCommand is how the manifests that are compared with Git get there.
func (o *options) renderCommand(config *platform.GitOps) string {
	command := "make render ENV=" + o.stack
	if !o.inCheckout() {
		command += " LIVE=1"
	} else if config.Path == "stacks/gitops/"+o.stack {
		return command
	}
	return fmt.Sprintf("%s OUT=CLONE/%s with a clone of %s for CLONE", command, config.Path, config.RepoURL)
}

// keepOwner says what is left to do for the new owner in the stack's file to stay there.
func (o *options) keepOwner() string {
	if o.inCheckout() {
		return "Commit it"
	}
	return fmt.Sprintf("It is made from %s: change ownership there as well, and commit that", o.committed())
}
