package v1alpha1

// The condition types that every kind of the group reports, by the rules of kstatus
// (sigs.k8s.io/cli-utils/pkg/kstatus): a missing condition means Unknown, Reconciling and
// Stalled are only present while true, and Ready summarises the others.
const (
	// ConditionReady is True when the object's desired state is fully in effect and serving.
	ConditionReady = "Ready"
	// ConditionReconciling is True while the controller is still moving the world towards the spec.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when no progress is possible until somebody changes something:
	// the spec, or what the spec refers to.
	ConditionStalled = "Stalled"
)

// Reasons that are shared by all kinds.
const (
	// ReasonReady says that nothing is left to do.
	ReasonReady = "Ready"
	// ReasonProgressing says that children were applied and have not settled yet.
	ReasonProgressing = "Progressing"
	// ReasonPaused says that spec.paused holds the controller back.
	ReasonPaused = "Paused"
	// ReasonDeleting says that the object is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonInvalidSpec says that the spec passed the schema but cannot work.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonConflict says that a child's name is taken by an object that somebody else owns.
	ReasonConflict = "Conflict"
	// ReasonAPIError says that the API server refused or failed a request; it is retried.
	ReasonAPIError = "APIError"
)

// NeverObserved is the observedGeneration of an object that the operator has not looked at yet. The CRDs set it, since
// kstatus, and so Flux, takes an object without a status for one that is done.
const NeverObserved int64 = -1
