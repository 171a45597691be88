package components

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/components/kube"
)

// ArgoCDArgs configures the Argo CD Application of a [Platform]. What it syncs must not be what the stack owns itself:
// two owners of one object take turns at undoing each other.
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

// application is the part of Argo CD's Application that is used here.
type application struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              applicationSpec `json:"spec"`
}

type applicationSpec struct {
	Project     string                 `json:"project"`
	Source      applicationSource      `json:"source"`
	Destination applicationDestination `json:"destination"`
	SyncPolicy  applicationSyncPolicy  `json:"syncPolicy"`
}

type applicationSource struct {
	RepoURL        string `json:"repoURL"`
	Path           string `json:"path"`
	TargetRevision string `json:"targetRevision"`
}

type applicationDestination struct {
	Server    string `json:"server"`
	Namespace string `json:"namespace"`
}

type applicationSyncPolicy struct {
	Automated   applicationAutomated `json:"automated"`
	SyncOptions []string             `json:"syncOptions"`
}

type applicationAutomated struct {
	Prune    bool `json:"prune"`
	SelfHeal bool `json:"selfHeal"`
}

// argoApplication has no finalizer: deleting the Application leaves what it synced.
func argoApplication(args *ArgoCDArgs, operatorNamespace string) *application {
	return &application{
		TypeMeta: kube.Type(schema.GroupVersion{Group: "argoproj.io", Version: "v1alpha1"}, "Application"),
		ObjectMeta: objectMeta(orDefault(args.Namespace, "argocd"), orDefault(args.Name, "holdfast"),
			map[string]string{labelPartOf: partOf}),
		Spec: applicationSpec{
			Project: orDefault(args.Project, "default"),
			Source: applicationSource{
				RepoURL: args.RepoURL, Path: args.Path, TargetRevision: orDefault(args.TargetRevision, "HEAD"),
			},
			Destination: applicationDestination{
				Server:    "https://kubernetes.default.svc",
				Namespace: orDefault(args.DestinationNamespace, operatorNamespace),
			},
			SyncPolicy: applicationSyncPolicy{
				Automated:   applicationAutomated{Prune: true, SelfHeal: true},
				SyncOptions: []string{"CreateNamespace=true", "ServerSideApply=true"},
			},
		},
	}
}
