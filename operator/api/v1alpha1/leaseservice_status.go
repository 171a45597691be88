package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LeaseServiceStatus is what the operator observed.
type LeaseServiceStatus struct {
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

	// Leader is the name of the pod that leads: it assigns the work to the replicas. Empty while none is elected.
	//
	// +optional
	Leader string `json:"leader,omitempty"`

	// PreviousLeader is the pod that led last before the present leader, or before there was none.
	//
	// +optional
	PreviousLeader string `json:"previousLeader,omitempty"`

	// ActiveLeases is the number of leases held now, over all replicas.
	//
	// +optional
	ActiveLeases int64 `json:"activeLeases"`

	// Replicas is the number of pods that exist.
	//
	// +optional
	Replicas int32 `json:"replicas"`

	// ReadyReplicas is the number of pods that are ready.
	//
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// UpdatedReplicas is the number of pods of the newest revision.
	//
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`

	// CurrentRevision is the revision of the pods that the last finished rollout left.
	//
	// +optional
	CurrentRevision string `json:"currentRevision,omitempty"`

	// UpdateRevision is the newest revision of the pods. While it is not CurrentRevision, a rollout goes on.
	//
	// +optional
	UpdateRevision string `json:"updateRevision,omitempty"`

	// PendingRollout is a change of the pods that the operator, and not the spec, asks for, and that waits for an approval
	// or the maintenance window.
	//
	// +optional
	PendingRollout *LeaseServicePendingRollout `json:"pendingRollout,omitempty"`

	// Selector selects the pods, in the form that the scale subresource wants.
	//
	// +optional
	Selector string `json:"selector,omitempty"`

	// Endpoint is the address clients in the cluster connect to, as "host:port".
	//
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// ClientSecret is the name of the Secret that clients in the namespace mount to connect: ca.crt, tls.crt and
	// tls.key. Empty without certificates of the operator.
	//
	// +optional
	ClientSecret string `json:"clientSecret,omitempty"`

	// Pods has a row a pod, ordered by name.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Pods []LeaseServicePod `json:"pods,omitempty"`
}

// LeaseServicePendingRollout is a change of the pods that waits.
type LeaseServicePendingRollout struct {
	// ID names exactly this change. The annotation dist.system/approve-rollout with it approves the change.
	ID string `json:"id"`

	// Message says what would change.
	Message string `json:"message"`
}

// LeaseServicePod is what one pod reported.
type LeaseServicePod struct {
	// Name of the pod.
	Name string `json:"name"`

	// Ready is the pod's own readiness.
	Ready bool `json:"ready"`

	// Leader tells whether this pod says that it leads.
	//
	// +optional
	Leader bool `json:"leader,omitempty"`

	// ActiveLeases is the number of leases that this pod owns.
	ActiveLeases int64 `json:"activeLeases"`

	// Version of the lease service that the pod runs.
	//
	// +optional
	Version string `json:"version,omitempty"`

	// Message says why the pod's own report is missing, or why it is not ready.
	//
	// +optional
	Message string `json:"message,omitempty"`
}
