package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/stacks/internal/handover"
	"github.com/holdfast-io/holdfast/stacks/internal/live"
	"github.com/holdfast-io/holdfast/stacks/platform"
)

// Bounds of what is waited for beside updates, which have their own.
const (
	adoptTimeout    = 5 * time.Minute
	withdrawTimeout = 2 * time.Minute
)

// observe looks at the state, the stack's file and the cluster.
func (m *mover) observe(ctx context.Context) (handover.View, error) {
	_, config, err := m.read()
	if err != nil {
		return handover.View{}, err
	}
	state, err := m.stack.state(ctx)
	if err != nil {
		return handover.View{}, err
	}
	view := m.what.ViewState(state)
	view.Declared = !slices.ContainsFunc(m.units, func(unit platform.Unit) bool {
		return config.Owner(unit) != string(m.options.to)
	})
	keepers, err := m.keepers(ctx, config)
	if err != nil {
		return view, err
	}
	view.Keeping = len(keepers)
	if m.options.to == handover.GitOps {
		waiting, err := m.notAdopted(ctx, config)
		if err != nil {
			return view, err
		}
		view.Adopted = len(waiting) == 0
	}
	former, _ := m.owners(config.GitOps)
	for _, manifest := range m.manifests {
		object, err := m.cluster.Get(ctx, manifest)
		if err != nil {
			return view, err
		}
		if former.Touches(object) {
			view.Stale++
		}
	}
	return view, nil
}

// keepers reads the Applications or Kustomizations of the folders that move.
func (m *mover) keepers(ctx context.Context, config *platform.Config) ([]live.Keeper, error) {
	read := m.cluster.ArgoKeepers
	if config.GitOps.Flavour == components.GitOpsFlux {
		read = m.cluster.FluxKeepers
	}
	keepers, err := read(ctx, config.GitOps.Namespace, m.commit)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(keepers, func(keeper live.Keeper) bool {
		return !slices.Contains(m.paths(config), keeper.Folder)
	}), nil
}

// paths are the folders that move, as paths in the repository.
func (m *mover) paths(config *platform.Config) []string {
	folders := m.folders(config)
	for i, folder := range folders {
		folders[i] = path.Join(config.GitOps.Path, folder)
	}
	return folders
}

// notAdopted says what is not in the hands of Argo CD or Flux yet.
func (m *mover) notAdopted(ctx context.Context, config *platform.Config) ([]string, error) {
	keepers, err := m.keepers(ctx, config)
	if err != nil {
		return nil, err
	}
	var waiting []string
	for _, folder := range m.paths(config) {
		i := slices.IndexFunc(keepers, func(keeper live.Keeper) bool { return keeper.Folder == folder })
		switch {
		case i < 0:
			waiting = append(waiting, "nothing keeps "+folder)
		case keepers[i].Waiting != "":
			waiting = append(waiting, keepers[i].Name+": "+keepers[i].Waiting)
		}
	}
	if len(waiting) > 0 {
		return waiting, nil
	}
	_, keeper := m.owners(config.GitOps)
	for _, manifest := range m.manifests {
		object, err := m.cluster.Get(ctx, manifest)
		if err != nil {
			return nil, err
		}
		if !keeper.Holds(object) {
			waiting = append(waiting, live.Name(manifest)+" has no field of "+keeper.Name)
		}
	}
	return waiting, nil
}

// make makes a step, and shows its proof.
func (m *mover) make(ctx context.Context, step handover.Step) error {
	file, config, err := m.read()
	if err != nil {
		return err
	}
	m.say("%s: %s", step, m.describe(step, config))
	switch step {
	case handover.StepShare:
		return m.share(ctx, config)
	case handover.StepAdopt:
		return m.adopt(ctx, config)
	case handover.StepDeclare:
		return m.writeOwner(file, config)
	case handover.StepSettle:
		return m.settle(ctx, config)
	case handover.StepWithdraw:
		return m.await(ctx, withdrawTimeout, func(ctx context.Context) ([]string, error) {
			keepers, err := m.keepers(ctx, config)
			return keeperNames(keepers), err
		})
	case handover.StepRelease:
		return m.release(ctx, config)
	default:
		return fmt.Errorf("no such step: %s", step)
	}
}

func keeperNames(keepers []live.Keeper) []string {
	names := make([]string, 0, len(keepers))
	for _, keeper := range keepers {
		names = append(names, keeper.Name+" is still there")
	}
	return names
}

// share begins with the proof that what is rendered is what runs.
func (m *mover) share(ctx context.Context, config *platform.Config) error {
	for _, keeper := range m.what.Shared {
		apiVersion, kind := fmt.Sprint(keeper.Fields["apiVersion"]), fmt.Sprint(keeper.Fields["kind"])
		if served, err := m.cluster.Serves(apiVersion, kind); err != nil {
			return err
		} else if !served {
			_, next := m.owners(config.GitOps)
			return fmt.Errorf("the cluster has no kind %s of %s: install %s first", kind, apiVersion, next.Name)
		}
	}
	if err := m.compare(ctx, config); err != nil {
		return err
	}
	return m.update(ctx, handover.StepShare, config, m.transit())
}

// compare asks what would change if the manifests were applied by who has the objects now: so what he has and the
// manifests have not shows as well.
func (m *mover) compare(ctx context.Context, config *platform.Config) error {
	former, _ := m.owners(config.GitOps)
	differences, err := m.cluster.Compare(ctx, former, m.manifests)
	if err != nil {
		return err
	}
	if len(differences) > 0 && m.options.destroy {
		m.say("  %d objects differ from what is rendered, which does not matter: they are destroyed", len(differences))
		return nil
	}
	if len(differences) > 0 {
		lines := make([]string, 0, len(differences))
		for _, difference := range differences {
			lines = append(lines, difference.String())
		}
		return fmt.Errorf("what runs is not what is rendered, and a handover changes nothing: bring one in line with the other first\n  %s",
			strings.Join(lines, "\n  "))
	}
	m.say("  proof: applying the %d manifests would change nothing in the cluster (dry run by the API server)", len(m.manifests))
	return nil
}

// update previews an update, refuses it when it would do more than the step is for, and makes it.
func (m *mover) update(ctx context.Context, step handover.Step, config *platform.Config, transit platform.Transit) error {
	pending, err := m.stack.dropPending(ctx)
	if err != nil {
		return err
	}
	if pending > 0 {
		m.say("  an update that was killed had begun %d operations: they are made again", pending)
	}
	program := deploy(config, transit)
	ops, err := m.stack.preview(ctx, m.options.file, program)
	if err != nil {
		return err
	}
	if err := m.prove(ctx, config, ops); err != nil {
		return err
	}
	if problems := handover.Guard(m.options.to, step, ops); len(problems) > 0 {
		return fmt.Errorf("the update is refused, because of what it would do by its preview:\n  %s", strings.Join(problems, "\n  "))
	}
	m.say("  proof: pulumi preview: %s", counts(ops))
	return m.stack.up(ctx, m.options.file, program)
}

// prove looks at updates of objects that move. An update that was killed leaves some, whose inputs in the state are not those of
// the program: applied again they change nothing, if the manifests do not.
func (m *mover) prove(ctx context.Context, config *platform.Config, ops []handover.Op) error {
	moving := map[string]bool{}
	for _, object := range m.what.Objects {
		moving[handover.Key(object.URN)] = true
	}
	again := 0
	for i := range ops {
		if ops[i].Kind == "update" && moving[handover.Key(ops[i].URN)] {
			ops[i].Proven = true
			again++
		}
	}
	if again == 0 {
		return nil
	}
	m.say("  %d objects are applied again, since an update ended before it had recorded them", again)
	return m.compare(ctx, config)
}

// counts says how many objects an update handles in which way.
func counts(ops []handover.Op) string {
	number := map[string]int{}
	var kinds []string
	for _, op := range ops {
		if !op.Custom || strings.HasPrefix(op.Type, "pulumi:") {
			continue
		}
		kind := op.Kind
		if kind == "delete" && op.Retained {
			kind = "leave the stack, retained"
		}
		if number[kind]++; number[kind] == 1 {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%d %s", number[kind], kind)
	}
	return strings.Join(kinds, ", ")
}

func (m *mover) adopt(ctx context.Context, config *platform.Config) error {
	keepers, err := m.keepers(ctx, config)
	if err != nil {
		return err
	}
	for _, keeper := range keepers {
		if keeper.Waiting == "" {
			continue
		}
		if err := m.cluster.Hurry(ctx, keeper, time.Now()); err != nil {
			return err
		}
	}
	err = m.await(ctx, adoptTimeout, func(ctx context.Context) ([]string, error) { return m.notAdopted(ctx, config) })
	if err != nil {
		return err
	}
	_, keeper := m.owners(config.GitOps)
	m.say("  proof: all of it is in effect at commit %s, and %s has fields of all %d objects", m.commit, keeper.Name, len(m.manifests))
	return nil
}

func (m *mover) writeOwner(file []byte, config *platform.Config) error {
	declared, err := m.declare(file, config)
	if err != nil {
		return err
	}
	// The file is put in its place whole: an interrupted write must not leave half of it.
	part := m.options.file + ".part"
	if err := os.WriteFile(part, declared, 0o600); err != nil {
		return err
	}
	if info, err := os.Stat(m.options.file); err == nil {
		if err := os.Chmod(part, info.Mode()); err != nil {
			return err
		}
	}
	if err := os.Rename(part, m.options.file); err != nil {
		return err
	}
	m.say("  proof: %s says so; nothing else in it changed. %s", m.options.file, m.options.keepOwner())
	return nil
}

// settle makes certain that nothing goes with what keeps the objects.
func (m *mover) settle(ctx context.Context, config *platform.Config) error {
	if m.options.to == handover.Pulumi {
		if err := m.spare(ctx, config); err != nil {
			return err
		}
		defer m.letGo(ctx)()
	}
	return m.update(ctx, handover.StepSettle, config, m.settled())
}

func (m *mover) release(ctx context.Context, config *platform.Config) error {
	former, _ := m.owners(config.GitOps)
	for _, manifest := range m.manifests {
		if err := m.cluster.Release(ctx, former, manifest); err != nil {
			return err
		}
	}
	m.say("  proof: %s has no field of the %d objects any more", former.Name, len(m.manifests))
	return nil
}
