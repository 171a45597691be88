package components

import (
	"encoding/hex"
	"path"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/components/kube"
)

var (
	fluxSourceVersion    = schema.GroupVersion{Group: "source.toolkit.fluxcd.io", Version: "v1"}
	fluxKustomizeVersion = schema.GroupVersion{Group: "kustomize.toolkit.fluxcd.io", Version: "v1"}
)

const (
	// fluxTimeout bounds the wait for everything of a Kustomization to be ready; the next attempt begins a new wait.
	fluxTimeout = 5 * time.Minute
	// fluxRetry is the time until a failed Kustomization is tried again.
	fluxRetry = 15 * time.Second

	gitHashLength = 40
)

// The parts of Flux's API that are used here.

type gitRepository struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              gitRepositorySpec `json:"spec"`
}

type gitRepositorySpec struct {
	URL       string           `json:"url"`
	Interval  metav1.Duration  `json:"interval"`
	Ref       gitRepositoryRef `json:"ref"`
	SecretRef *nameRef         `json:"secretRef,omitempty"`
	Ignore    string           `json:"ignore,omitempty"`
}

type gitRepositoryRef struct {
	Branch string `json:"branch,omitempty"`
	Name   string `json:"name,omitempty"`
	Commit string `json:"commit,omitempty"`
}

type nameRef struct {
	Name string `json:"name"`
}

type kustomization struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              kustomizationSpec `json:"spec"`
}

type kustomizationSpec struct {
	SourceRef      sourceRef       `json:"sourceRef"`
	Path           string          `json:"path"`
	Interval       metav1.Duration `json:"interval"`
	RetryInterval  metav1.Duration `json:"retryInterval"`
	Timeout        metav1.Duration `json:"timeout"`
	Prune          bool            `json:"prune"`
	Wait           bool            `json:"wait"`
	DeletionPolicy string          `json:"deletionPolicy"`
	DependsOn      []nameRef       `json:"dependsOn,omitempty"`
}

type sourceRef struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// fluxStages are the objects of the flavour Flux: the repository, then a Kustomization for the CRDs, one for each folder of
// the platform, and one for each tenant, or one for all tenants that are discovered. All but the first may be empty.
func fluxStages(args *GitOpsHandoverArgs) [][]child {
	stages := [][]child{{{"gitrepository", args.gitRepository(args.Name, "")}}}
	var before []nameRef
	add := func(stage string, folders ...string) {
		var list []child
		var names []nameRef
		for _, folder := range folders {
			object := args.kustomization(stage, folder, args.Name, path.Join(args.Path, folder), before)
			list = append(list, child{"kustomization-" + folder, object})
			names = append(names, nameRef{object.Name})
		}
		stages, before = append(stages, list), append(before, names...)
	}
	if args.CRDs != "" {
		add(stageCRDs, args.CRDs)
	}
	add(stagePlatform, args.Platform...)
	add(stageTenants, args.Tenants...)
	if args.DiscoverTenants {
		stages = append(stages, fluxDiscovered(args, before))
	}
	return stages
}

// fluxDiscovered keeps all folders but the named ones by one Kustomization, from a copy of the repository that lacks them:
// Flux has no generator of Kustomizations.
func fluxDiscovered(args *GitOpsHandoverArgs, before []nameRef) []child {
	name := kube.Name(kube.MaxNameLength, args.Name, stageTenants)
	var ignore strings.Builder
	for _, folder := range args.folders() {
		ignore.WriteString("/" + path.Join(args.Path, folder) + "/\n")
	}
	return []child{
		{"gitrepository-tenants", args.gitRepository(name, ignore.String())},
		{"kustomization-tenants", args.kustomization(stageTenants, "", name, args.Path, before)},
	}
}

func (a *GitOpsHandoverArgs) gitRepository(name, ignore string) *gitRepository {
	spec := gitRepositorySpec{
		URL: a.RepoURL, Interval: metav1.Duration{Duration: a.Interval}, Ref: fluxRef(a.Revision), Ignore: ignore,
	}
	if a.SecretName != "" {
		spec.SecretRef = &nameRef{a.SecretName}
	}
	meta := objectMeta(a.Namespace, name, map[string]string{labelPartOf: partOf})
	meta.Annotations = a.fluxAwait()
	return &gitRepository{TypeMeta: kube.Type(fluxSourceVersion, "GitRepository"), ObjectMeta: meta, Spec: spec}
}

func fluxRef(revision string) gitRepositoryRef {
	_, err := hex.DecodeString(revision)
	switch {
	case err == nil && len(revision) == gitHashLength:
		return gitRepositoryRef{Commit: revision}
	case strings.HasPrefix(revision, "refs/"):
		return gitRepositoryRef{Name: revision}
	default:
		return gitRepositoryRef{Branch: revision}
	}
}

func (a *GitOpsHandoverArgs) kustomization(stage, folder, source, path string, before []nameRef) *kustomization {
	name := kube.Name(kube.MaxNameLength, a.Name, orDefault(folder, stage))
	meta := objectMeta(a.Namespace, name, a.labels(stage, folder))
	meta.Annotations = a.fluxAwait()
	spec := kustomizationSpec{
		SourceRef: sourceRef{Kind: "GitRepository", Name: source},
		Path:      "./" + path,
		Interval:  metav1.Duration{Duration: a.Interval}, RetryInterval: metav1.Duration{Duration: fluxRetry},
		Timeout: metav1.Duration{Duration: fluxTimeout},
		Prune:   true, Wait: true, DeletionPolicy: "Orphan",
		DependsOn: append([]nameRef(nil), before...),
	}
	if a.Cascade {
		spec.DeletionPolicy = "WaitForTermination"
	}
	if stage == stageCRDs { // a CRD takes every object of its kind with it
		spec.Prune, spec.DeletionPolicy = false, "Orphan"
	}
	return &kustomization{TypeMeta: kube.Type(fluxKustomizeVersion, "Kustomization"), ObjectMeta: meta, Spec: spec}
}

func (a *GitOpsHandoverArgs) fluxAwait() map[string]string {
	if a.Await {
		return map[string]string{annotationWaitFor: "condition=Ready"}
	}
	return map[string]string{annotationSkipAwait: "true"}
}
