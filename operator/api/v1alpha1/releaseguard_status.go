package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MaxReleaseDecisions is how many decisions a status keeps: the last ones.
const MaxReleaseDecisions = 30

// ReleasePhase is the state of a release in one word.
//
// +kubebuilder:validation:Enum=Rolling;Complete;RolledBack
type ReleasePhase string

const (
	// ReleaseRolling says that rings are being given the revision.
	ReleaseRolling ReleasePhase = "Rolling"
	// ReleaseComplete says that every ring was proved.
	ReleaseComplete ReleasePhase = "Complete"
	// ReleaseRolledBack says that a ring failed: the revision is not given to anybody again.
	ReleaseRolledBack ReleasePhase = "RolledBack"
)

// RingPhase is the state of a ring in one word.
//
// +kubebuilder:validation:Enum=Waiting;Rolling;Soaking;Proved;RolledBack
type RingPhase string

const (
	// RingWaiting says that the ring does not have the revision: an earlier one is not proved.
	RingWaiting RingPhase = "Waiting"
	// RingRolling says that the ring has the revision, and some application is not in effect.
	RingRolling RingPhase = "Rolling"
	// RingSoaking says that all applications of the ring are in effect, and must stay so for a while.
	RingSoaking RingPhase = "Soaking"
	// RingProved says that the ring stayed in effect for its soak time.
	RingProved RingPhase = "Proved"
	// RingRolledBack says that the ring was returned to what it had before.
	RingRolledBack RingPhase = "RolledBack"
)

// CheckResult is the result of a check in one word.
//
// +kubebuilder:validation:Enum=Passed;Crossed;Unknown
type CheckResult string

const (
	// CheckPassed says that the last value was within the bounds.
	CheckPassed CheckResult = "Passed"
	// CheckCrossed says that the last value was out of bounds.
	CheckCrossed CheckResult = "Crossed"
	// CheckUnknown says that the query failed or gave no data. It is no crossing, and it lets no ring go.
	CheckUnknown CheckResult = "Unknown"
)

// ReleaseGuardStatus is what the operator observed and decided. It is also the guard's memory: what is decided is written
// here before it is done, so an operator that restarts goes on from it.
type ReleaseGuardStatus struct {
	// ObservedGeneration is the generation of the spec that this status was computed from.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Ready, Reconciling and Stalled, by the rules of kstatus.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Phase is Rolling, Complete or RolledBack.
	//
	// +optional
	Phase ReleasePhase `json:"phase,omitempty"`

	// Ring is the ring that is at work, or that was rolled back.
	//
	// +optional
	Ring string `json:"ring,omitempty"`

	// Release is the release that the rest speaks of.
	//
	// +optional
	Release *ReleaseRecord `json:"release,omitempty"`

	// RunningSince is since when the guard is not paused. What was not in effect before has the whole of
	// spec.syncTimeoutSeconds from then on. Empty: it is paused.
	//
	// +optional
	RunningSince *metav1.Time `json:"runningSince,omitempty"`

	// BadRevision is the revision that was rolled back, and why.
	//
	// +optional
	BadRevision *ReleaseFailure `json:"badRevision,omitempty"`

	// Rings are the rings in order.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Rings []ReleaseRingStatus `json:"rings,omitempty"`

	// Applications are the applications of the rings, ordered by name. One that leaves its ring while a release is not
	// complete stays, with a state that says so: if it comes back, it gets what its ring has then, or what it had before.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Applications []ReleaseApplicationStatus `json:"applications,omitempty"`

	// Checks are the checks that were made for this release.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Checks []ReleaseCheckStatus `json:"checks,omitempty"`

	// Decisions are the last decisions, the newest last.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=30
	Decisions []ReleaseDecision `json:"decisions,omitempty"`
}

// ReleaseRecord is one attempt to bring a revision to all rings.
type ReleaseRecord struct {
	// Revision that is wanted.
	//
	// +required
	Revision string `json:"revision"`

	// Attempt is spec.attempt as it was.
	//
	// +optional
	Attempt int32 `json:"attempt,omitempty"`

	// StartedTime is when the release began.
	//
	// +required
	StartedTime metav1.Time `json:"startedTime"`

	// Commits are what the revision was found to be, one for each repository. Later rings must find the same.
	//
	// +optional
	// +listType=map
	// +listMapKey=repository
	Commits []ReleaseCommit `json:"commits,omitempty"`
}

// ReleaseCommit is the commit that a revision names in a repository.
type ReleaseCommit struct {
	// Repository is the URL.
	//
	// +required
	Repository string `json:"repository"`

	// Commit as Argo CD resolved it; of a Helm chart it is the version.
	//
	// +required
	Commit string `json:"commit"`
}

// ReleaseFailure says why a revision was taken back.
type ReleaseFailure struct {
	// Revision that was taken back.
	//
	// +required
	Revision string `json:"revision"`

	// Ring that failed.
	//
	// +required
	Ring string `json:"ring"`

	// Reason is SyncTimeout, HealthFailed, CheckCrossed or RevisionMoved.
	//
	// +required
	Reason ReleaseFailureReason `json:"reason"`

	// Message has the numbers.
	//
	// +required
	Message string `json:"message"`

	// Time of the decision.
	//
	// +required
	Time metav1.Time `json:"time"`
}

// ReleaseFailureReason is why a revision was taken back, in one word.
//
// +kubebuilder:validation:Enum=SyncTimeout;HealthFailed;CheckCrossed;RevisionMoved
type ReleaseFailureReason string

const (
	// FailureSyncTimeout says that an application was not in effect in time.
	FailureSyncTimeout ReleaseFailureReason = "SyncTimeout"
	// FailureHealth says that an application failed too many times in a row.
	FailureHealth ReleaseFailureReason = "HealthFailed"
	// FailureCheck says that a query crossed its bound.
	FailureCheck ReleaseFailureReason = "CheckCrossed"
	// FailureMoved says that the revision was another commit than in an earlier ring.
	FailureMoved ReleaseFailureReason = "RevisionMoved"
)

// ReleaseRingStatus is one ring.
type ReleaseRingStatus struct {
	// Name of the ring.
	//
	// +required
	Name string `json:"name"`

	// Phase is Waiting, Rolling, Soaking, Proved or RolledBack.
	//
	// +required
	Phase RingPhase `json:"phase"`

	// Applications in the ring.
	//
	// +optional
	Applications int32 `json:"applications"`

	// InEffect is how many of them are in effect at the revision.
	//
	// +optional
	InEffect int32 `json:"inEffect"`

	// StartedTime is when the ring was given the revision.
	//
	// +optional
	StartedTime *metav1.Time `json:"startedTime,omitempty"`

	// SettledTime is when all its applications were in effect for the first time. Checks begin then.
	//
	// +optional
	SettledTime *metav1.Time `json:"settledTime,omitempty"`

	// GoodSince is since when they all are, without a break.
	//
	// +optional
	GoodSince *metav1.Time `json:"goodSince,omitempty"`
}

// HasRevision tells whether the ring was given the revision of the release and was not rolled back.
func (r *ReleaseRingStatus) HasRevision() bool {
	return r.Phase == RingRolling || r.Phase == RingSoaking || r.Phase == RingProved
}

// ReleaseApplicationStatus is one application.
type ReleaseApplicationStatus struct {
	// Name of the Application.
	//
	// +required
	Name string `json:"name"`

	// Ring that it is in.
	//
	// +required
	Ring string `json:"ring"`

	// TargetRevision is what the guard keeps the application's targetRevision at.
	//
	// +required
	TargetRevision string `json:"targetRevision"`

	// LastGoodRevision is what a rollback returns it to: the revision of the last release that this ring proved. Before
	// there was one, it is the commit that the application was found at, or its targetRevision if no commit is known.
	//
	// +required
	LastGoodRevision string `json:"lastGoodRevision"`

	// State is how the application stands to its target revision, in a few words: "in effect", or what is missing.
	//
	// +optional
	State string `json:"state,omitempty"`

	// Commit that Argo CD last compared the application with.
	//
	// +optional
	Commit string `json:"commit,omitempty"`

	// Sync is Argo CD's sync status.
	//
	// +optional
	Sync string `json:"sync,omitempty"`

	// Health is Argo CD's health status.
	//
	// +optional
	Health string `json:"health,omitempty"`

	// PendingSince is since when the application, at the revision of the release, is not in effect. A sync that failed
	// before is of an earlier attempt.
	//
	// +optional
	PendingSince *metav1.Time `json:"pendingSince,omitempty"`

	// Failures in a row.
	//
	// +optional
	Failures int32 `json:"failures,omitempty"`

	// LastFailureTime is when the last of them was counted.
	//
	// +optional
	LastFailureTime *metav1.Time `json:"lastFailureTime,omitempty"`
}

// ReleaseCheckStatus is one check.
type ReleaseCheckStatus struct {
	// Name of the check.
	//
	// +required
	Name string `json:"name"`

	// Result is Passed, Crossed or Unknown. It and the message are as of the last change of the result.
	//
	// +required
	Result CheckResult `json:"result"`

	// Message has the value and the bound, or what went wrong.
	//
	// +optional
	Message string `json:"message,omitempty"`

	// Failures in a row.
	//
	// +optional
	Failures int32 `json:"failures,omitempty"`

	// LastFailureTime is when the last of them was counted.
	//
	// +optional
	LastFailureTime *metav1.Time `json:"lastFailureTime,omitempty"`
}

// ReleaseDecision is one decision.
type ReleaseDecision struct {
	// Time of the decision.
	//
	// +required
	Time metav1.Time `json:"time"`

	// Ring that it is about. Empty: the whole release.
	//
	// +optional
	Ring string `json:"ring,omitempty"`

	// Application that it is about. Empty: all of the ring.
	//
	// +optional
	Application string `json:"application,omitempty"`

	// Decision is also the reason of the event: ReleaseStarted, RingStarted, RingProved, ReleaseComplete, RolledBack,
	// ReleaseSuperseded or PutBack.
	//
	// +required
	Decision string `json:"decision"`

	// Message says why, with the numbers.
	//
	// +required
	Message string `json:"message"`
}
