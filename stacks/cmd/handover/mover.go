package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/components/render"
	"github.com/holdfast-io/holdfast/stacks/internal/gitsource"
	"github.com/holdfast-io/holdfast/stacks/internal/handover"
	"github.com/holdfast-io/holdfast/stacks/internal/live"
	"github.com/holdfast-io/holdfast/stacks/platform"
)

// mover is one handover: what moves, and the connections to what it is observed and changed by.
type mover struct {
	options options
	out     io.Writer
	saying  sync.Mutex // two say something while what kept the objects is deleted
	stack   *stack
	cluster *live.Cluster

	units     []platform.Unit
	manifests []map[string]any // of what moves
	what      handover.Move
	// files are the rendered manifests of what moves, as Git should hold them.
	files gitsource.Files
	// commit that Git's revision stands for; known when the target is GitOps.
	commit string
}

var errNoGitOps = errors.New("has no holdfast:gitops")

func begin(ctx context.Context, o options, out io.Writer) (*mover, error) {
	m := &mover{options: o, out: out}
	file, config, err := m.read()
	if err != nil {
		return nil, err
	}
	if config.GitOps == nil {
		return nil, fmt.Errorf("%s %w: say there which repository keeps the objects (docs/handover.md)", o.file, errNoGitOps)
	}
	if m.units, err = chooseUnits(config, o); err != nil {
		return nil, err
	}
	if err := m.record(file, config); err != nil {
		return nil, err
	}
	if o.to == handover.GitOps {
		if err := m.checkGit(ctx, config.GitOps); err != nil {
			return nil, err
		}
	}
	if m.cluster, err = connect(file); err != nil {
		return nil, err
	}
	if m.stack, err = openStack(ctx, o); err == nil && o.destroy {
		// Fields that somebody else has changed are taken, to be deleted.
		m.stack.stack.Workspace().SetEnvVar("PULUMI_K8S_ENABLE_PATCH_FORCE", "true")
	}
	return m, err
}

func (m *mover) close() error { return m.stack.close() }

// read reads the stack's file as it is now.
func (m *mover) read() ([]byte, *platform.Config, error) {
	file, err := os.ReadFile(m.options.file)
	if err != nil {
		return nil, nil, fmt.Errorf("stack %q: %w", m.options.stack, err)
	}
	config, err := parse(file)
	return file, config, err
}

func parse(file []byte) (*platform.Config, error) {
	values, err := platform.StackFile(file)
	if err != nil {
		return nil, err
	}
	return platform.ParseConfig(values, nil)
}

// connect connects to the cluster that Pulumi's provider uses.
func connect(file []byte) (*live.Cluster, error) {
	kubeconfig, kubeContext, err := platform.ClusterOf(file)
	if err != nil {
		return nil, err
	}
	return live.Connect(kubeconfig, kubeContext)
}

// chooseUnits says what moves.
func chooseUnits(config *platform.Config, o options) ([]platform.Unit, error) {
	if o.tenant == "" {
		return slices.DeleteFunc(config.Units(), func(unit platform.Unit) bool {
			return config.Pinned(unit) && !o.destroy
		}), nil
	}
	unit := platform.TenantUnit(o.tenant)
	if config.Owner(unit) == "" {
		var names []string
		for _, known := range config.Units()[1:] {
			names = append(names, known.Tenant())
		}
		return nil, fmt.Errorf("-tenant is %q; allowed: %s", o.tenant, strings.Join(names, ", "))
	}
	return []platform.Unit{unit}, nil
}

// declare is the stack's file with the new owner in it.
func (m *mover) declare(file []byte, config *platform.Config) ([]byte, error) {
	var err error
	for _, unit := range m.units {
		// A tenant that names no owner follows the platform.
		if unit != platform.PlatformUnit && m.options.tenant == "" && !config.Pinned(unit) {
			continue
		}
		if file, err = handover.DeclareOwner(file, unit.Tenant(), m.options.to); err != nil {
			return nil, err
		}
	}
	return file, nil
}

// record runs the program without an engine, as it is in each phase.
func (m *mover) record(file []byte, config *platform.Config) error {
	declared, err := m.declare(file, config)
	if err != nil {
		return err
	}
	settled, err := parse(declared)
	if err != nil {
		return fmt.Errorf("with the new owner %s, %w", m.options.to, err)
	}
	resources, err := render.Record(deploy(config.OwnedByPulumi(), platform.Transit{}))
	if err != nil {
		return err
	}
	// Before the manifests are made, which leave out what only Pulumi's provider reads.
	retained := map[string]bool{}
	for _, res := range resources {
		retained[res.URN] = res.RetainOnDelete
	}
	all, err := render.Manifests(resources)
	if err != nil {
		return err
	}
	folders := m.folders(config)
	m.files = gitsource.Files{}
	for _, manifest := range all {
		if !slices.Contains(folders, manifest.Folder()) {
			continue
		}
		m.files[manifest.Path] = manifest.Content
		m.manifests = append(m.manifests, manifest.Object)
		m.what.Objects = append(m.what.Objects, handover.Resource{URN: manifest.URN, Retained: retained[manifest.URN]})
	}
	if config.GitOps.RevisionManagedByGuard {
		m.what.Others = []string{"spec", "source", "targetRevision"}
	}
	if m.what.Shared, err = recordKeepers(config, m.transit()); err != nil {
		return err
	}
	m.what.Settled, err = recordKeepers(settled, m.settled())
	return err
}

func (m *mover) folders(config *platform.Config) []string {
	var folders []string
	for _, unit := range m.units {
		folders = append(folders, config.Folders(unit)...)
	}
	return folders
}

func (m *mover) transit() platform.Transit {
	return platform.Transit{Units: m.units, Shared: true, Destroy: m.options.destroy}
}

// settled is the phase of an ordinary update.
func (m *mover) settled() platform.Transit { return platform.Transit{Destroy: m.options.destroy} }

func deploy(config *platform.Config, transit platform.Transit) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error { return platform.DeployInTransit(ctx, config, transit) }
}

func recordKeepers(config *platform.Config, transit platform.Transit) ([]handover.Resource, error) {
	resources, err := render.Record(deploy(config, transit))
	if err != nil {
		return nil, err
	}
	var keepers []handover.Resource
	for _, res := range resources {
		if res.Fields != nil && handover.IsKeeper(res.URN) {
			keepers = append(keepers, handover.Resource{URN: res.URN, Fields: res.Fields})
		}
	}
	return keepers, nil
}

// checkGit proves that Git holds what is rendered, and notes the commit.
func (m *mover) checkGit(ctx context.Context, config *platform.GitOps) error {
	url := m.options.gitURL
	if url == "" {
		url = config.RepoURL
	}
	files, commit, err := gitsource.Remote(ctx, url, config.Revision, config.Path)
	if err != nil {
		return err
	}
	wrong := m.wrong(files)
	if len(wrong) > 0 {
		return fmt.Errorf("%s at %s does not hold in %s what is rendered: run %s, commit and push\n  %s",
			url, config.Revision, config.Path, m.options.renderCommand(config), strings.Join(wrong, "\n  "))
	}
	m.commit = commit
	m.say("Git: %s at %s is commit %s, and holds the %d manifests that are rendered", url, config.Revision, commit, len(m.files))
	return nil
}

// wrong says where the files in Git are not those that are rendered. Besides, there may be none in the folders that move: it
// would be applied too.
func (m *mover) wrong(files gitsource.Files) []string {
	var wrong []string
	for name, content := range m.files {
		if held, ok := files[name]; !ok {
			wrong = append(wrong, name+" is missing")
		} else if string(held) != string(content) {
			wrong = append(wrong, name+" differs")
		}
	}
	for name := range files {
		if _, rendered := m.files[name]; !rendered && m.holds(name) {
			wrong = append(wrong, name+" is not rendered")
		}
	}
	slices.Sort(wrong)
	return wrong
}

// holds reports whether a file is in a folder of those that move, however deep.
func (m *mover) holds(file string) bool {
	folder, _, _ := strings.Cut(file, "/")
	for name := range m.files {
		if path.Dir(name) == folder {
			return true
		}
	}
	return false
}

// move makes one step after the other, each decided by what is observed.
func (m *mover) move(ctx context.Context) error {
	if m.options.unlock {
		if err := m.stack.unlock(ctx); err != nil {
			return err
		}
	}
	var last handover.View
	var lastStep handover.Step
	for {
		view, err := m.observe(ctx)
		if err != nil {
			return err
		}
		step, err := m.next(view)
		if err != nil {
			return err
		}
		if m.options.dryRun {
			return m.foretell(ctx, view)
		}
		if step == handover.StepDone {
			return m.finish(ctx)
		}
		if step == lastStep && view == last {
			return fmt.Errorf("step %q was made, but what is observed did not change: %+v", step, view)
		}
		if err := m.make(ctx, step); err != nil {
			return fmt.Errorf("step %q: %w\nrun the same command again when that is put right; it goes on where it stopped", step, err)
		}
		last, lastStep = view, step
	}
}

func (m *mover) next(view handover.View) (handover.Step, error) {
	if m.options.destroy {
		return handover.NextToDestroy(view), nil
	}
	return handover.Next(m.options.to, view)
}

// owners are the former owner and the new one.
func (m *mover) owners(config *platform.GitOps) (former, next live.Owner) {
	keeper := live.ArgoCD()
	if config.Flavour == components.GitOpsFlux {
		keeper = live.Flux()
	}
	if m.options.to == handover.GitOps {
		return live.Pulumi(), keeper
	}
	return keeper, live.Pulumi()
}

func (m *mover) say(format string, args ...any) {
	m.saying.Lock()
	defer m.saying.Unlock()
	fmt.Fprintf(m.out, format+"\n", args...)
}

// finish proves that an ordinary update would change nothing; or it destroys, and then it does not matter.
func (m *mover) finish(ctx context.Context) error {
	if m.options.destroy {
		m.say("destroy: deletes the stack's objects, custom resources first")
		return m.stack.destroy(ctx)
	}
	rest, err := m.remaining(ctx)
	if err != nil {
		return err
	}
	if len(rest) > 0 && !slices.ContainsFunc(rest, func(op handover.Op) bool { return op.Custom }) {
		m.say("%d components without objects are left as an update that was killed had them: another update puts them right", len(rest))
		if err := m.settleComponents(ctx); err != nil {
			return err
		}
		if rest, err = m.remaining(ctx); err != nil {
			return err
		}
	}
	if len(rest) > 0 {
		return fmt.Errorf("pulumi preview would still %s %s", rest[0].Kind, rest[0].URN)
	}
	m.say("done: %s is the owner of %d objects; pulumi preview shows no changes", m.options.to, len(m.manifests))
	return nil
}

// remaining is what an ordinary update would do.
func (m *mover) remaining(ctx context.Context) ([]handover.Op, error) {
	_, config, err := m.read()
	if err != nil {
		return nil, err
	}
	ops, err := m.stack.preview(ctx, m.options.file, deploy(config, platform.Transit{}))
	return slices.DeleteFunc(ops, func(op handover.Op) bool {
		return op.Kind == "same" || op.Kind == "read" || op.Kind == "refresh"
	}), err
}

func (m *mover) settleComponents(ctx context.Context) error {
	_, config, err := m.read()
	if err != nil {
		return err
	}
	return m.stack.up(ctx, m.options.file, deploy(config, platform.Transit{}))
}

var errWaiting = errors.New("not yet")

// await polls until check returns nothing to wait for. What it waits for is shown when it changes.
func (m *mover) await(ctx context.Context, timeout time.Duration, check func(context.Context) (waiting []string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last string
	for {
		waiting, err := check(ctx)
		if err != nil {
			return err
		}
		if len(waiting) == 0 {
			return nil
		}
		if now := strings.Join(waiting, "\n    "); now != last {
			m.say("  waiting: %s", now)
			last = now
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w within %s:\n    %s", ctx.Err(), errWaiting, timeout, last)
		case <-tick.C:
		}
	}
}
