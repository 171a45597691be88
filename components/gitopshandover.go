package components

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

const gitOpsHandoverType = "holdfast:index:GitOpsHandover"

// GitOpsFlavour is the controller that keeps a cluster as Git says.
type GitOpsFlavour string

// The flavours that there are.
const (
	GitOpsArgoCD GitOpsFlavour = "argocd"
	GitOpsFlux   GitOpsFlavour = "flux"
)

// Defaults of [GitOpsHandoverArgs].
const (
	defaultGitOpsName     = "holdfast"
	defaultGitOpsRevision = "main"
	defaultGitOpsInterval = time.Minute
)

// Labels of the objects that a [GitOpsHandover] makes, by which rings of tenants are selected.
const (
	// LabelGitOpsStage is "crds", "platform" or "tenants".
	LabelGitOpsStage = "dist.system/gitops-stage"
	// LabelGitOpsFolder is the folder that is kept.
	LabelGitOpsFolder = "dist.system/gitops-folder"
)

// Stages, in the order in which they are applied.
const (
	stageCRDs     = "crds"
	stagePlatform = "platform"
	stageTenants  = "tenants"
)

// GitOpsHandoverArgs configures a [GitOpsHandover]. A folder is one below Path, and is named after the namespace that its
// objects are in, as the renderer writes them.
type GitOpsHandoverArgs struct {
	// Flavour is who keeps the objects; required.
	Flavour GitOpsFlavour
	// Name begins the names of all objects of the component. Empty means "holdfast".
	Name string
	// Namespace that the controllers run in, where the objects of the component go. Empty means "argocd" or "flux-system".
	Namespace string
	// RepoURL of the Git repository; required.
	RepoURL string
	// Path in the repository of the environment's manifests, such as "stacks/gitops/dev"; required.
	Path string
	// Revision is a branch, a full reference such as "refs/tags/v1.2.0", or a commit. Empty means "main".
	Revision string
	// SecretName is the Secret that Flux reads the repository's credentials from. Empty: it needs none. Argo CD finds the
	// credentials of a repository by itself, by its URL.
	SecretName string
	// Interval at which Git is asked. Zero means a minute. Argo CD has one interval for all of its Applications, in its own
	// configuration; there it is how often folders of new tenants are looked for.
	Interval time.Duration
	// CRDs is the folder of the CRDs. Empty: they are not handed over.
	CRDs string
	// Platform are the folders that come before the tenants' own: that of the operator, that of the development etcd.
	Platform []string
	// Tenants are the folders of the tenants that are handed over.
	Tenants []string
	// DiscoverTenants makes every folder below Path a tenant's that is not named in CRDs, Platform or Exclude: then a commit
	// alone adds a tenant, and Tenants has to be empty. It is for environments where no tenant is Pulumi's.
	DiscoverTenants bool
	// Exclude are folders that DiscoverTenants passes over.
	Exclude []string
	// Cascade lets objects go from the cluster with what keeps them: with the component, and with a tenant's folder in Git.
	// A tenant's custom resources go first, then the rest. Without it they stay, so it has to be off before ownership goes
	// back. CRDs always stay.
	Cascade bool
	// RevisionManagedByGuard leaves the revision of Applications that exist to a ReleaseGuard. Argo CD only.
	RevisionManagedByGuard bool
	// Await lets the update wait for every stage to be in effect before the next one, and before it ends.
	Await bool
	// InstallHealth teaches Argo CD the health of this project's kinds, by its ConfigMap argocd-cm.
	InstallHealth bool
}

// GitOpsHandover is what Argo CD or Flux need to keep an environment as Git says: the project and the Applications, or the
// repository and the Kustomizations. It holds none of the objects that they keep.
type GitOpsHandover struct {
	pulumi.ResourceState

	// Revision is what Git is followed at.
	Revision pulumi.StringOutput `pulumi:"revision"`

	objects []pulumi.Resource
}

// Objects are the objects that there is to wait for. What comes after the GitOpsHandover should depend on them and not on
// the component: the SDK takes a component for the objects that have been registered in it by the time it looks, and it
// looks before all of them are.
func (h *GitOpsHandover) Objects() []pulumi.Resource { return h.objects }

// NewGitOpsHandover registers a GitOpsHandover.
func NewGitOpsHandover(
	ctx *pulumi.Context, name string, args *GitOpsHandoverArgs, opts ...pulumi.ResourceOption,
) (*GitOpsHandover, error) {
	args = args.withDefaults()
	if err := args.validate(); err != nil {
		return nil, fmt.Errorf("GitOpsHandover %s: %w", name, err)
	}
	handover := &GitOpsHandover{}
	if err := ctx.RegisterComponentResource(gitOpsHandoverType, name, handover, opts...); err != nil {
		return nil, fmt.Errorf("register GitOpsHandover %s: %w", name, err)
	}
	own := children{ctx: ctx, name: name, parent: handover}
	// Each stage depends on those before, which is the order of creation and, in reverse, that of deletion.
	var before []pulumi.Resource
	if args.InstallHealth {
		health, err := newArgoHealth(own, args.Namespace)
		if err != nil {
			return nil, err
		}
		before = append(before, health)
	}
	stages := fluxStages
	if args.Flavour == GitOpsArgoCD {
		stages = argoStages
	}
	for _, stage := range stages(args) {
		made, err := own.addAll(stage, append(args.options(), pulumi.DependsOn(before))...)
		if err != nil {
			return nil, err
		}
		before = append(before, made...)
	}
	handover.Revision = pulumi.String(args.Revision).ToStringOutput()
	handover.objects = before
	return handover, ctx.RegisterResourceOutputs(handover, pulumi.Map{"revision": handover.Revision})
}

func (a *GitOpsHandoverArgs) withDefaults() *GitOpsHandoverArgs {
	args := *a
	args.Name = orDefault(args.Name, defaultGitOpsName)
	args.Revision = orDefault(args.Revision, defaultGitOpsRevision)
	args.Path = strings.Trim(args.Path, "/")
	if args.Interval == 0 {
		args.Interval = defaultGitOpsInterval
	}
	switch args.Flavour {
	case GitOpsArgoCD:
		args.Namespace = orDefault(args.Namespace, "argocd")
	case GitOpsFlux:
		args.Namespace = orDefault(args.Namespace, "flux-system")
	}
	return &args
}

func (a *GitOpsHandoverArgs) validate() error {
	var errs []error
	fail := func(format string, values ...any) { errs = append(errs, fmt.Errorf(format, values...)) }
	if a.Flavour != GitOpsArgoCD && a.Flavour != GitOpsFlux {
		fail("flavour is %q: allowed are %q and %q", a.Flavour, GitOpsArgoCD, GitOpsFlux)
	}
	if a.RepoURL == "" || a.Path == "" {
		fail("repoURL %q and path %q must both be set", a.RepoURL, a.Path)
	}
	if a.Interval < time.Second {
		fail("interval is %s: allowed is a second or more", a.Interval)
	}
	if a.DiscoverTenants && len(a.Tenants) > 0 {
		fail("tenants %v and discoverTenants exclude each other", a.Tenants)
	}
	if !a.DiscoverTenants && len(a.Exclude) > 0 {
		fail("exclude %v has an effect only with discoverTenants", a.Exclude)
	}
	if a.Flavour == GitOpsFlux {
		if a.RevisionManagedByGuard {
			fail("revisionManagedByGuard is for flavour %q", GitOpsArgoCD)
		}
		if a.InstallHealth {
			fail("installHealth is for flavour %q: Flux reads the status contract by itself", GitOpsArgoCD)
		}
	}
	seen := map[string]bool{}
	for _, folder := range a.folders() {
		switch {
		case folder == "" || folder == "." || folder == ".." || strings.ContainsAny(folder, "/*?[]"):
			fail("folder is %q: allowed is the name of one folder below path", folder)
		case seen[folder]:
			fail("folder %q is named twice among crds, platform, tenants and exclude", folder)
		}
		seen[folder] = true
	}
	if a.CRDs == "" && len(a.Platform) == 0 && len(a.Tenants) == 0 && !a.DiscoverTenants {
		fail("nothing is handed over: name crds, platform or tenants, or set discoverTenants")
	}
	return errors.Join(errs...)
}

// folders are all that the arguments name.
func (a *GitOpsHandoverArgs) folders() []string {
	folders := slices.Concat(a.Platform, a.Tenants, a.Exclude)
	if a.CRDs != "" {
		folders = append(folders, a.CRDs)
	}
	return folders
}

func (a *GitOpsHandoverArgs) options() []pulumi.ResourceOption {
	// Deleting with Cascade waits for all that is kept to be gone.
	opts := []pulumi.ResourceOption{timeouts("10m", "10m", "10m")}
	if a.RevisionManagedByGuard {
		opts = append(opts, pulumi.IgnoreChanges([]string{"spec.source.targetRevision"}))
	}
	return opts
}

func (a *GitOpsHandoverArgs) labels(stage, folder string) map[string]string {
	labels := map[string]string{labelPartOf: partOf, LabelGitOpsStage: stage}
	if folder != "" {
		labels[LabelGitOpsFolder] = folder
	}
	return labels
}
