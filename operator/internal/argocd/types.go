// Package argocd is the part of Argo CD's Application that the operator reads. What is not here is dropped when the cache
// decodes an Application, so these types are for reading only. Argo CD's own module is not used: it would bring more than a
// thousand packages for these fields.
//
// +kubebuilder:object:generate=true
// +groupName=argoproj.io
package argocd

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of Applications.
var GroupVersion = schema.GroupVersion{Group: "argoproj.io", Version: "v1alpha1"}

// AddToScheme adds Applications to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Application{}, &ApplicationList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Application is something that Argo CD keeps in sync with Git. It has no status subresource.
//
// +kubebuilder:object:root=true
type Application struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec ApplicationSpec `json:"spec"`
	// Operation is a sync that was asked for and has not begun, or that runs.
	Operation *Operation        `json:"operation,omitempty"`
	Status    ApplicationStatus `json:"status,omitzero"`
}

// ApplicationSpec says what is synced, and where to.
type ApplicationSpec struct {
	Source      *Source     `json:"source,omitempty"`
	Destination Destination `json:"destination"`
	// Sources take precedence over Source.
	Sources []Source `json:"sources,omitempty"`
	// SourceHydrator takes precedence over both.
	SourceHydrator *Hydrator   `json:"sourceHydrator,omitempty"`
	SyncPolicy     *SyncPolicy `json:"syncPolicy,omitempty"`
}

// SyncPolicy is how Argo CD syncs by itself.
type SyncPolicy struct {
	Automated   *Automated `json:"automated,omitempty"`
	SyncOptions []string   `json:"syncOptions,omitempty"`
}

// Automated is there when it does.
type Automated struct {
	Prune bool `json:"prune,omitempty"`
}

// Source is a place in a repository.
type Source struct {
	RepoURL        string `json:"repoURL"`
	TargetRevision string `json:"targetRevision,omitempty"`
}

// Hydrator is only looked at for being there.
type Hydrator struct{}

// Destination is a cluster, by its URL or by its name.
type Destination struct {
	Server string `json:"server,omitempty"`
	Name   string `json:"name,omitempty"`
}

// Operation is a request to do something.
type Operation struct {
	Sync *SyncOperation `json:"sync,omitempty"`
}

// SyncOperation is a request to sync.
type SyncOperation struct {
	// Source is what is synced. Argo CD's own syncs have it; one that a person asked for may not.
	Source *Source `json:"source,omitempty"`
}

// ApplicationStatus is what Argo CD found.
type ApplicationStatus struct {
	Resources      []Resource      `json:"resources,omitempty"`
	Sync           SyncStatus      `json:"sync,omitzero"`
	Health         HealthStatus    `json:"health,omitzero"`
	Conditions     []Condition     `json:"conditions,omitempty"`
	ReconciledAt   *metav1.Time    `json:"reconciledAt,omitempty"`
	OperationState *OperationState `json:"operationState,omitempty"`
}

// Resource is one synced object.
type Resource struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// SyncStatus is the outcome of the last comparison with Git.
type SyncStatus struct {
	Status     string     `json:"status"`
	ComparedTo ComparedTo `json:"comparedTo,omitzero"`
	Revision   string     `json:"revision,omitempty"`
}

// ComparedTo is what was compared with.
type ComparedTo struct {
	Source Source `json:"source,omitzero"`
}

// HealthStatus is the health of the objects together.
type HealthStatus struct {
	Status string `json:"status,omitempty"`
}

// Condition is something that is wrong with the Application itself.
type Condition struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// OperationState is the last operation.
type OperationState struct {
	Operation  Operation    `json:"operation"`
	Phase      string       `json:"phase"`
	Message    string       `json:"message,omitempty"`
	SyncResult *SyncResult  `json:"syncResult,omitempty"`
	StartedAt  metav1.Time  `json:"startedAt"`
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
}

// SyncResult is what came of a sync.
type SyncResult struct {
	Source   Source `json:"source,omitzero"`
	Revision string `json:"revision"`
}

// ApplicationList is a list of Applications.
//
// +kubebuilder:object:root=true
type ApplicationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Application `json:"items"`
}
