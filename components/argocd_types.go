package components

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The parts of Argo CD's API that are used here. Its own module would bring several hundred others with it.

type application struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              applicationSpec `json:"spec"`
}

type applicationSpec struct {
	Project              string                 `json:"project"`
	Source               applicationSource      `json:"source"`
	Destination          applicationDestination `json:"destination"`
	SyncPolicy           applicationSyncPolicy  `json:"syncPolicy"`
	RevisionHistoryLimit int64                  `json:"revisionHistoryLimit"`
}

type applicationSource struct {
	RepoURL        string `json:"repoURL"`
	Path           string `json:"path"`
	TargetRevision string `json:"targetRevision"`
}

type applicationDestination struct {
	Server    string `json:"server"`
	Namespace string `json:"namespace,omitempty"`
}

type applicationSyncPolicy struct {
	Automated   applicationAutomated `json:"automated"`
	SyncOptions []string             `json:"syncOptions"`
	Retry       applicationRetry     `json:"retry"`
}

type applicationAutomated struct {
	// Argo CD leaves false out when it writes an Application, and a field that is gone would be a difference for Pulumi.
	Prune    bool `json:"prune,omitempty"`
	SelfHeal bool `json:"selfHeal"`
}

type applicationRetry struct {
	Limit   int64              `json:"limit"`
	Refresh bool               `json:"refresh"`
	Backoff applicationBackoff `json:"backoff"`
}

type applicationBackoff struct {
	Duration    string `json:"duration"`
	Factor      int64  `json:"factor"`
	MaxDuration string `json:"maxDuration"`
}

type appProject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              appProjectSpec `json:"spec"`
}

type appProjectSpec struct {
	Description                string                   `json:"description"`
	SourceRepos                []string                 `json:"sourceRepos"`
	Destinations               []applicationDestination `json:"destinations"`
	ClusterResourceWhitelist   []metav1.GroupKind       `json:"clusterResourceWhitelist"`
	NamespaceResourceWhitelist []metav1.GroupKind       `json:"namespaceResourceWhitelist"`
}

type applicationSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              applicationSetSpec `json:"spec"`
}

type applicationSetSpec struct {
	GoTemplate                   bool                      `json:"goTemplate"`
	GoTemplateOptions            []string                  `json:"goTemplateOptions"`
	Generators                   []applicationSetGenerator `json:"generators"`
	Template                     applicationTemplate       `json:"template"`
	SyncPolicy                   applicationSetSyncPolicy  `json:"syncPolicy"`
	IgnoreApplicationDifferences []applicationSetIgnore    `json:"ignoreApplicationDifferences,omitempty"`
}

type applicationSetGenerator struct {
	Git gitGenerator `json:"git"`
}

type gitGenerator struct {
	RepoURL             string         `json:"repoURL"`
	Revision            string         `json:"revision"`
	Directories         []gitDirectory `json:"directories"`
	RequeueAfterSeconds int64          `json:"requeueAfterSeconds"`
}

type gitDirectory struct {
	Path    string `json:"path"`
	Exclude bool   `json:"exclude,omitempty"`
}

type applicationTemplate struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              applicationSpec `json:"spec"`
}

type applicationSetSyncPolicy struct {
	PreserveResourcesOnDeletion bool `json:"preserveResourcesOnDeletion"`
}

type applicationSetIgnore struct {
	JSONPointers []string `json:"jsonPointers"`
}
