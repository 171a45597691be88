package v1alpha1

// TLSMode says where the certificates of a LeaseService come from.
//
// +kubebuilder:validation:Enum=Managed;Provided;Disabled
type TLSMode string

const (
	// TLSManaged is mutual TLS with certificates that the operator issues and rotates.
	TLSManaged TLSMode = "Managed"
	// TLSProvided is mutual TLS with the certificate of a Secret that somebody else keeps.
	TLSProvided TLSMode = "Provided"
	// TLSDisabled is plain text: whoever reaches the service may use it.
	TLSDisabled TLSMode = "Disabled"
)

// LeaseServiceTLS says how clients and replicas are authenticated.
//
// +kubebuilder:validation:XValidation:rule="(has(self.mode) && self.mode == 'Provided') == has(self.secretRef)",message="spec.tls.secretRef is set if, and only if, spec.tls.mode is Provided"
// +kubebuilder:validation:XValidation:rule="!has(self.serverNames) || !has(self.mode) || self.mode == 'Managed'",message="spec.tls.serverNames are of a certificate that the operator issues: leave them out, or set spec.tls.mode to Managed"
type LeaseServiceTLS struct {
	// Mode is Managed (the operator issues and rotates certificates), Provided (they are in the Secret of secretRef)
	// or Disabled (plain text, nobody is authenticated). Left out: as the operator's configuration says, which is
	// Managed by default.
	//
	// +optional
	Mode TLSMode `json:"mode,omitempty"`

	// SecretRef names a Secret with tls.crt and tls.key, which replicas show to clients and to each other, and with
	// ca.crt, which client certificates must come from. For mode Provided.
	//
	// +optional
	SecretRef *LeaseServiceSecretReference `json:"secretRef,omitempty"`

	// ServerNames are further DNS names and IP addresses that the server certificate is valid for, such as that of a
	// load balancer. For mode Managed: a certificate of your own has the names that you gave it.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || self.matches('^([*][.])?([a-z0-9]([-a-z0-9]*[a-z0-9])?)([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="an entry of spec.tls.serverNames is a DNS name in lower case, perhaps with '*.' before it, or an IP address"
	ServerNames []string `json:"serverNames,omitempty"`
}

// LeaseServiceAuth says who may call.
//
// +kubebuilder:validation:XValidation:rule="has(self.tokenReview) && self.tokenReview || has(self.allowedIdentities)",message="spec.auth says nothing: set tokenReview, allowedIdentities or both"
type LeaseServiceAuth struct {
	// TokenReview lets clients show a Kubernetes ServiceAccount token for the audience lease.dist.system instead of a
	// certificate. The pods then ask the API server whose it is: somebody who may bind ClusterRoles has to bind
	// system:auth-delegator to their ServiceAccount, <name>-lease-service. The operator cannot, and must not.
	//
	// +optional
	TokenReview bool `json:"tokenReview,omitempty"`

	// AllowedIdentities are those that may call, by certificate or token, each exact or up to a '*' at its end:
	// "system:serviceaccount:team-a:*", "holdfast://team-a/locks/client". Left out: the certificates of this LeaseService
	// and, with tokenReview, the ServiceAccounts of its namespace.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[^ ,*]+[*]?$')",message="an entry of spec.auth.allowedIdentities is an identity without blanks and commas, perhaps with one '*' at its end"
	AllowedIdentities []string `json:"allowedIdentities,omitempty"`
}
