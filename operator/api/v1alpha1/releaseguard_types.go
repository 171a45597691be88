package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Defaults of a ReleaseGuard, for specs that were made without the API server's.
const (
	// DefaultSyncTimeoutSeconds is how long an application may take to be in effect.
	DefaultSyncTimeoutSeconds = 180
	// DefaultHealthFailureThreshold is how many failures in a row are too many.
	DefaultHealthFailureThreshold = 3
	// DefaultHealthIntervalSeconds is the least time between two failures that count.
	DefaultHealthIntervalSeconds = 10
	// DefaultSoakSeconds is how long a ring must stay in effect.
	DefaultSoakSeconds = 60
	// DefaultCheckIntervalSeconds is the time between two runs of a query.
	DefaultCheckIntervalSeconds = 30
	// DefaultCheckFailureThreshold is how many crossings in a row are too many.
	DefaultCheckFailureThreshold = 1
)

// Reasons of a ReleaseGuard's conditions and events.
const (
	// ReasonRolledBack says that the revision was taken back and is not tried again.
	ReasonRolledBack = "RolledBack"
	// ReasonRingsInvalid says that a ring names what is not there, or what the guard cannot move.
	ReasonRingsInvalid = "RingsInvalid"
	// ReasonCheckUnknown says that a query gives no answer, so the next ring cannot go.
	ReasonCheckUnknown = "CheckUnknown"
	// ReasonAwaitingApproval says that the next ring goes when somebody approves.
	ReasonAwaitingApproval = "AwaitingApproval"
	// ReasonReleaseStarted is the event of a revision that was not wanted before.
	ReasonReleaseStarted = "ReleaseStarted"
	// ReasonRingStarted is the event of a ring that is given the revision.
	ReasonRingStarted = "RingStarted"
	// ReasonRingProved is the event of a ring that stayed in effect for its soak time.
	ReasonRingProved = "RingProved"
	// ReasonReleaseComplete is the event of the last ring being proved.
	ReasonReleaseComplete = "ReleaseComplete"
	// ReasonReleaseSuperseded is the event of another revision being wanted before the last ring was proved.
	ReasonReleaseSuperseded = "ReleaseSuperseded"
	// ReasonPutBack is the event of a target revision that somebody else changed.
	ReasonPutBack = "PutBack"
)

// ReleaseGuardSpec is a revision, the order in which applications get it, and what takes it back.
type ReleaseGuardSpec struct {
	// Revision is the tag or commit that every application of the rings should be at. It must not move: a tag that
	// names another commit in a later ring is taken back. Another value starts another release.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._/+@-]*$`
	// +kubebuilder:validation:XValidation:rule="self != 'HEAD'",message="spec.revision is a tag or a commit: HEAD moves, and what was proved in one ring would not be what the next one gets"
	Revision string `json:"revision"`

	// Attempt tries a revision again that was rolled back: any other number than before does.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempt int32 `json:"attempt,omitempty"`

	// Rings get the revision one after the other. An application that several of them select is in the first.
	//
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Rings []ReleaseRing `json:"rings"`

	// Approvals let rings go that need one.
	//
	// +optional
	// +listType=map
	// +listMapKey=ring
	// +kubebuilder:validation:MaxItems=16
	Approvals []ReleaseApproval `json:"approvals,omitempty"`

	// SyncTimeoutSeconds is how long an application may take from the change of its target revision until it is in
	// effect: synced, and healthy. After that the ring is rolled back. Default 180.
	//
	// +optional
	// +kubebuilder:default=180
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	SyncTimeoutSeconds int32 `json:"syncTimeoutSeconds,omitempty"`

	// HealthFailureThreshold is the number of observations in a row of an application at the revision that failed
	// (Degraded or Missing, or a failed sync) after which the ring is rolled back. Default 3.
	//
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	HealthFailureThreshold int32 `json:"healthFailureThreshold,omitempty"`

	// HealthIntervalSeconds is the least time between two observations that count as failures in a row. Default 10.
	//
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	HealthIntervalSeconds int32 `json:"healthIntervalSeconds,omitempty"`

	// Checks are queries whose values must stay within bounds, from the time that a ring is first in effect until the
	// release is over.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Checks []ReleaseCheck `json:"checks,omitempty"`

	// Prometheus answers the checks. Left out, it is the first one that the operator's configuration lists.
	//
	// +optional
	Prometheus *ReleasePrometheus `json:"prometheus,omitempty"`

	// Paused stops the guard from changing anything, a rollback included. All its clocks start anew afterwards.
	//
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// ReleaseRing is a set of applications that get a revision together.
//
// +kubebuilder:validation:XValidation:rule="has(self.applications) || has(self.selector)",message="set applications (names), selector (labels), or both"
type ReleaseRing struct {
	// Name of the ring.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Applications are names of Argo CD Applications in the namespace of this object. Each must exist.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Applications []string `json:"applications,omitempty"`

	// Selector selects Applications in the namespace of this object by their labels. An empty one selects them all.
	//
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// SoakSeconds is how long all applications of the ring must stay in effect without a break before the next ring
	// goes. Default 60.
	//
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1209600
	SoakSeconds *int32 `json:"soakSeconds,omitempty"`

	// NeedsApproval keeps a revision from the ring, when all else is as it should be, until spec.approvals has the ring with
	// this revision.
	//
	// +optional
	NeedsApproval bool `json:"needsApproval,omitempty"`
}

// ReleaseApproval lets a ring have a revision, and no other one.
type ReleaseApproval struct {
	// Ring that may go.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Ring string `json:"ring"`

	// Revision that it may have.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Revision string `json:"revision"`
}

// ReleaseCheck is a query with bounds.
//
// +kubebuilder:validation:XValidation:rule="has(self.min) || has(self.max)",message="set min, max, or both"
type ReleaseCheck struct {
	// Name of the check.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Query in PromQL, whose value is a number or an instant vector. Every series of a vector is held to the bounds.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`

	// Min is the least value that is good: a whole number, or a quoted fraction such as "0.9".
	//
	// +optional
	Min *resource.Quantity `json:"min,omitempty"`

	// Max is the greatest value that is good.
	//
	// +optional
	Max *resource.Quantity `json:"max,omitempty"`

	// Rings that the check speaks of: it is made while one of them has the revision, and takes back that ring. Left
	// out, it speaks of all.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	Rings []string `json:"rings,omitempty"`

	// IntervalSeconds is the time between two runs of the query. Default 30.
	//
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	IntervalSeconds int32 `json:"intervalSeconds,omitempty"`

	// FailureThreshold is the number of runs in a row out of bounds after which the ring is rolled back. Default 1.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
}

// ReleasePrometheus says who answers queries.
type ReleasePrometheus struct {
	// URL of Prometheus, or of anything that has its HTTP API. It must be one that the operator's configuration lists.
	//
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[^\s]+$`
	URL string `json:"url"`
}

// ReleaseGuard brings a revision to Argo CD Applications ring by ring, and takes it back from a ring that fails.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=rg,categories=holdfast
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=".spec.revision"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="Ring",type=string,JSONPath=".status.ring"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].message",priority=1
type ReleaseGuard struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the release as it should be.
	//
	// +required
	Spec ReleaseGuardSpec `json:"spec"`
	// Status is what the operator observed and decided.
	//
	// +optional
	// +kubebuilder:default:={observedGeneration:-1}
	Status ReleaseGuardStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions of the status.
func (g *ReleaseGuard) GetConditions() []metav1.Condition { return g.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (g *ReleaseGuard) SetConditions(conditions []metav1.Condition) {
	g.Status.Conditions = conditions
}

// GetObservedGeneration returns status.observedGeneration.
func (g *ReleaseGuard) GetObservedGeneration() int64 { return g.Status.ObservedGeneration }

// SetObservedGeneration sets status.observedGeneration.
func (g *ReleaseGuard) SetObservedGeneration(generation int64) {
	g.Status.ObservedGeneration = generation
}

// ReleaseGuardList is a list of ReleaseGuards.
//
// +kubebuilder:object:root=true
type ReleaseGuardList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ReleaseGuard `json:"items"`
}
