package components

import (
	"encoding/json"
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/components/kube"
)

const (
	// argoFinalizer has Argo CD delete what an Application keeps before the Application is gone.
	argoFinalizer = "resources-finalizer.argocd.argoproj.io"
	// inCluster is Argo CD's name for the cluster that it runs in.
	inCluster = "https://kubernetes.default.svc"
	// targetRevisionPointer is the field that a ReleaseGuard moves.
	targetRevisionPointer = "/spec/source/targetRevision"
)

var argoVersion = schema.GroupVersion{Group: "argoproj.io", Version: "v1alpha1"}

// ArgoCDArgs configures the Argo CD Application of a [Platform]. What it syncs must not be what the stack owns itself:
// two owners of one object take turns at undoing each other. To hand the stack's own objects over there is
// [GitOpsHandover].
type ArgoCDArgs struct {
	// Name of the Application. Empty means "holdfast".
	Name string
	// Namespace that Argo CD runs in. Empty means "argocd".
	Namespace string
	// Project of Argo CD. Empty means "default".
	Project string
	// RepoURL of the Git repository; required.
	RepoURL string
	// Path in the repository; required.
	Path string
	// TargetRevision is a branch, tag or commit. Empty means "HEAD".
	TargetRevision string
	// DestinationNamespace is the namespace of objects that name none; it is made when it is missing. Empty takes the
	// operator's.
	DestinationNamespace string
}

// argoApplication is the Application of a Platform.
func argoApplication(args *ArgoCDArgs, operatorNamespace string) *application {
	spec := argoSpec(orDefault(args.Project, "default"), applicationSource{
		RepoURL: args.RepoURL, Path: args.Path, TargetRevision: orDefault(args.TargetRevision, "HEAD"),
	}, orDefault(args.DestinationNamespace, operatorNamespace))
	spec.SyncPolicy.SyncOptions = append([]string{"CreateNamespace=true"}, spec.SyncPolicy.SyncOptions...)
	meta := objectMeta(orDefault(args.Namespace, "argocd"), orDefault(args.Name, "holdfast"), map[string]string{labelPartOf: partOf})
	meta.Annotations = argoAnnotations()
	return &application{TypeMeta: kube.Type(argoVersion, "Application"), ObjectMeta: meta, Spec: spec}
}

// argoSpec is how every Application of this project syncs: by itself, by server-side apply, put right when the cluster was
// changed by hand, and removing what left Git, after all else is healthy. A failed sync is tried again on the newest
// revision for some minutes, and then not before the next commit: an endless retry would hold up a deletion.
func argoSpec(project string, source applicationSource, namespace string) applicationSpec {
	return applicationSpec{
		Project:     project,
		Source:      source,
		Destination: applicationDestination{Server: inCluster, Namespace: namespace},
		SyncPolicy: applicationSyncPolicy{
			Automated:   applicationAutomated{Prune: true, SelfHeal: true},
			SyncOptions: []string{"ServerSideApply=true", "PruneLast=true", "FailOnSharedResource=true"},
			Retry: applicationRetry{
				Limit: 10, Refresh: true, Backoff: applicationBackoff{Duration: "5s", Factor: 2, MaxDuration: "1m"},
			},
		},
		RevisionHistoryLimit: 10,
	}
}

// argoAnnotations make Argo CD compare by a dry run of the API server: what the server fills in or writes otherwise is no
// difference then, and nothing has to be ignored.
func argoAnnotations() map[string]string {
	return map[string]string{"argocd.argoproj.io/compare-options": "ServerSideDiff=true"}
}

// argoStages are the objects of the flavour Argo CD: the projects, then an Application for the CRDs, one for each folder of
// the platform, and an ApplicationSet for the tenants. All but the first may be empty.
func argoStages(args *GitOpsHandoverArgs) [][]child {
	stages := [][]child{argoProjects(args)}
	if args.CRDs != "" {
		app := args.application(stageCRDs, args.CRDs, "")
		// Argo CD never prunes a CRD, for it puts no mark of its own on one. This says so, and keeps it from ever trying.
		app.Spec.SyncPolicy.Automated.Prune = false
		app.Finalizers = nil
		stages = append(stages, []child{{"application-" + args.CRDs, app}})
	}
	var platform []child
	for _, folder := range args.Platform {
		platform = append(platform, child{"application-" + folder, args.application(stagePlatform, folder, folder)})
	}
	stages = append(stages, platform)
	if args.DiscoverTenants || len(args.Tenants) > 0 {
		stages = append(stages, []child{{"applicationset-tenants", argoTenants(args)}})
	}
	return stages
}

func (a *GitOpsHandoverArgs) application(stage, folder, namespace string) *application {
	meta := objectMeta(a.Namespace, kube.Name(kube.MaxNameLength, a.Name, folder), a.labels(stage, folder))
	meta.Annotations = argoAnnotations()
	if a.Await {
		meta.Annotations[annotationWaitFor] = waitForAll(
			"jsonpath={.status.sync.status}=Synced", "jsonpath={.status.health.status}=Healthy")
	} else {
		meta.Annotations[annotationSkipAwait] = "true"
	}
	if a.Cascade {
		meta.Finalizers = []string{argoFinalizer}
	}
	return &application{
		TypeMeta: kube.Type(argoVersion, "Application"), ObjectMeta: meta,
		Spec: argoSpec(a.platformProject(), a.source(folder), namespace),
	}
}

func (a *GitOpsHandoverArgs) source(folder string) applicationSource {
	return applicationSource{RepoURL: a.RepoURL, Path: path.Join(a.Path, folder), TargetRevision: a.Revision}
}

// argoTenants generates an Application for each tenant's folder that is in Git. When the folder goes the Application goes,
// and with Cascade what it keeps, in the order of the sync waves, the last first.
func argoTenants(args *GitOpsHandoverArgs) *applicationSet {
	const folder = "{{.path.basename}}"
	labels := args.labels(stageTenants, folder)
	spec := applicationSetSpec{
		GoTemplate: true, GoTemplateOptions: []string{"missingkey=error"},
		Generators: []applicationSetGenerator{{Git: gitGenerator{
			RepoURL: args.RepoURL, Revision: args.Revision, Directories: argoDirectories(args),
			RequeueAfterSeconds: int64(args.Interval.Seconds()),
		}}},
		Template: applicationTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: args.Name + "-" + folder, Labels: labels, Annotations: argoAnnotations()},
			Spec: argoSpec(args.tenantProject(), applicationSource{
				RepoURL: args.RepoURL, Path: "{{.path.path}}", TargetRevision: args.Revision,
			}, folder),
		},
		// Without this the controller adds the finalizer to every Application by itself.
		SyncPolicy: applicationSetSyncPolicy{PreserveResourcesOnDeletion: !args.Cascade},
	}
	if args.RevisionManagedByGuard {
		spec.IgnoreApplicationDifferences = []applicationSetIgnore{{JSONPointers: []string{targetRevisionPointer}}}
	}
	meta := objectMeta(args.Namespace, kube.Name(kube.MaxNameLength, args.Name, stageTenants), args.labels(stageTenants, ""))
	// Its controller writes the whole object when it takes off the mark that asks for a refresh, with fields of its own in each generator, and so
	// becomes an owner of spec.generators. Without force a tenant could not be added or removed any more.
	meta.Annotations = map[string]string{annotationPatchForce: "true"}
	if args.Await {
		meta.Annotations[annotationWaitFor] = "condition=ResourcesUpToDate"
	} else {
		meta.Annotations[annotationSkipAwait] = "true"
	}
	return &applicationSet{TypeMeta: kube.Type(argoVersion, "ApplicationSet"), ObjectMeta: meta, Spec: spec}
}

func argoDirectories(args *GitOpsHandoverArgs) []gitDirectory {
	var directories []gitDirectory
	for _, folder := range args.Tenants {
		directories = append(directories, gitDirectory{Path: path.Join(args.Path, folder)})
	}
	if !args.DiscoverTenants {
		return directories
	}
	directories = append(directories, gitDirectory{Path: path.Join(args.Path, "*")})
	for _, folder := range args.folders() {
		directories = append(directories, gitDirectory{Path: path.Join(args.Path, folder), Exclude: true})
	}
	return directories
}

func waitForAll(expressions ...string) string {
	// A list of strings always encodes.
	encoded, _ := json.Marshal(expressions)
	return string(encoded)
}
