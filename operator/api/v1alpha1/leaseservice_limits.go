package v1alpha1

// LeaseServiceLimits are the quotas of a lease service, all of its replicas together: each replica enforces the share that
// fits the shards it serves, rounded up and at least 1, so together they may let in a little more. What goes beyond a
// limit is refused with the reason and, where waiting helps, the time to wait; what is held stays when a limit is lowered.
// The limits in effect are a part of what GetStatus answers.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minTTLSeconds) || !has(self.maxTTLSeconds) || self.minTTLSeconds <= self.maxTTLSeconds",message="spec.limits.maxTTLSeconds is less than spec.limits.minTTLSeconds",fieldPath=".maxTTLSeconds"
type LeaseServiceLimits struct {
	// Leases that may be held at once, each permit and each shared holder counted. Left out: no limit.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	Leases int32 `json:"leases,omitempty"`

	// Waiters are the requests that may wait for leases at once. Left out: no limit.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	Waiters int32 `json:"waiters,omitempty"`

	// WaitersPerName are the requests that may wait for one lease at once. Left out: 10000.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	WaitersPerName int32 `json:"waitersPerName,omitempty"`

	// AcquiresPerSecond that are let in, on average. Left out: no limit.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	AcquiresPerSecond int32 `json:"acquiresPerSecond,omitempty"`

	// MinTTLSeconds is the shortest time to live, in seconds, that an Acquire may ask for. Left out: 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	MinTTLSeconds int32 `json:"minTTLSeconds,omitempty"`

	// MaxTTLSeconds is the longest time to live, in seconds, that an Acquire may ask for. Left out: 86400, a day.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	MaxTTLSeconds int32 `json:"maxTTLSeconds,omitempty"`

	// ValueBytes is the size of the value that a holder may attach to a lease. Left out: 65536.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	ValueBytes int32 `json:"valueBytes,omitempty"`
}
