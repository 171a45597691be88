package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of a LeaseService's conditions and events.
const (
	// ReasonPodsNotReady says that fewer pods serve than spec.replicas asks for. It is a reason of Stalled too,
	// once a pod that runs has not become ready by the deadline.
	ReasonPodsNotReady = "PodsNotReady"
	// ReasonRollingOut says that pods of an older revision are being replaced.
	ReasonRollingOut = "RollingOut"
	// ReasonNoLeader says that pods serve, but none of them has been elected leader.
	ReasonNoLeader = "NoLeader"
	// ReasonRolloutStarted is the reason of the event that a new revision of the pods begins to roll out.
	ReasonRolloutStarted = "RolloutStarted"
	// ReasonRolloutFinished is the reason of the event that every pod is of the newest revision and ready.
	ReasonRolloutFinished = "RolloutFinished"
	// ReasonLeaderChanged is the reason of the event that names the old and the new leader.
	ReasonLeaderChanged = "LeaderChanged"
	// ReasonOperatorChanged is the reason of the condition PendingRollout, and of the event that a rollout is pending.
	ReasonOperatorChanged = "OperatorChanged"
	// ReasonEtcdAccountFailed says that the operator cannot make the user of etcd that the pods are to log in with.
	ReasonEtcdAccountFailed = "EtcdAccountFailed"
	// ReasonRolloutStuck says that a pod cannot start (image, crash loop, scheduling): the message names it.
	ReasonRolloutStuck = "RolloutStuck"
)

// Defaults of a LeaseServiceSpec that code needs beside the schema.
const (
	// DefaultReplicas is the number of pods when the spec names none.
	DefaultReplicas = 1
	// DefaultStorageSize is the size of the embedded etcd's volume when the spec names none.
	DefaultStorageSize = "1Gi"
	// DefaultLeaseTTLSeconds is the TTL of a lease whose Acquire names none.
	DefaultLeaseTTLSeconds = 60
	// DefaultProgressDeadlineSeconds is how long a pod may fail to become ready when the spec names no time.
	DefaultProgressDeadlineSeconds = 120
	// DefaultWindowMinutes is the length of a maintenance window that names none.
	DefaultWindowMinutes = 60
	// LeaseServiceAccountSuffix follows the name of a LeaseService in that of the ServiceAccount of its pods.
	LeaseServiceAccountSuffix = "-lease-service"
	// LeaseServicePort is the port that lease service pods and their Services serve gRPC on.
	LeaseServicePort = 7400
	// LeaseServiceMetricsPort is the port that lease service pods serve Prometheus metrics on.
	LeaseServiceMetricsPort = 7401
	// LeaseServiceHealthPort is the port on which lease service pods answer the kubelet's probes, and nothing else.
	LeaseServiceHealthPort = 7402
)

// NetworkPolicyMode says whether the operator keeps a NetworkPolicy around the pods.
//
// +kubebuilder:validation:Enum=Managed;None
type NetworkPolicyMode string

const (
	// NetworkPolicyManaged keeps a NetworkPolicy that admits the pods' declared peers alone. It is the default.
	NetworkPolicyManaged NetworkPolicyMode = "Managed"
	// NetworkPolicyNone keeps none: whoever administers the namespace takes care of its network.
	NetworkPolicyNone NetworkPolicyMode = "None"
)

// LeaseServiceSpec is what a tenant asks for.
//
// The rules that compare with the old object sit here and not on the fields themselves: a rule on an optional
// field is not evaluated when that field is added or taken away, and both are changes that would lose leases.
//
// +kubebuilder:validation:XValidation:rule="self.replicas <= 1 || (has(self.etcdEndpoints) && size(self.etcdEndpoints) > 0)",message="spec.replicas is more than 1, which needs spec.etcdEndpoints: the embedded etcd, used without them, serves a single replica for development",fieldPath=".etcdEndpoints"
// +kubebuilder:validation:XValidation:rule="!has(self.storage) || !has(self.etcdEndpoints) || size(self.etcdEndpoints) == 0",message="spec.storage is the volume of the embedded etcd: leave it out when spec.etcdEndpoints is set",fieldPath=".storage"
// +kubebuilder:validation:XValidation:rule="!has(self.etcd) || (has(self.etcdEndpoints) && size(self.etcdEndpoints) > 0)",message="spec.etcd says how an external etcd is used: leave it out, or set spec.etcdEndpoints",fieldPath=".etcd"
// +kubebuilder:validation:XValidation:rule="(has(oldSelf.etcdEndpoints) && size(oldSelf.etcdEndpoints) > 0) == (has(self.etcdEndpoints) && size(self.etcdEndpoints) > 0)",message="spec.etcdEndpoints cannot be added or emptied later, since the leases stay in the etcd that was used first: create a new LeaseService instead",fieldPath=".etcdEndpoints"
// +kubebuilder:validation:XValidation:rule="(has(oldSelf.etcd) && has(oldSelf.etcd.prefix) ? oldSelf.etcd.prefix : \"\") == (has(self.etcd) && has(self.etcd.prefix) ? self.etcd.prefix : \"\")",message="spec.etcd.prefix cannot be changed, added or removed, since the leases stay under the first one: create a new LeaseService instead",fieldPath=".etcd"
// +kubebuilder:validation:XValidation:rule="(has(oldSelf.storage) ? string(oldSelf.storage.size) : '1Gi') == (has(self.storage) ? string(self.storage.size) : '1Gi')",message="spec.storage.size cannot be changed (1Gi when not given): a StatefulSet's volumes keep their size",fieldPath=".storage"
// +kubebuilder:validation:XValidation:rule="(has(oldSelf.storage) && has(oldSelf.storage.storageClassName) ? oldSelf.storage.storageClassName : \"\") == (has(self.storage) && has(self.storage.storageClassName) ? self.storage.storageClassName : \"\")",message="spec.storage.storageClassName cannot be changed, added or removed: a volume keeps its class",fieldPath=".storage"
//
// +kubebuilder:validation:XValidation:rule="!has(self.etcd) || !has(self.etcd.tlsSecretRef) || !has(self.etcdEndpoints) || self.etcdEndpoints.all(e, e.startsWith('https://'))",message="spec.etcd.tlsSecretRef needs https: begin every URL of spec.etcdEndpoints with https://",fieldPath=".etcdEndpoints"
// +kubebuilder:validation:XValidation:rule="!has(self.auth) || !has(self.tls) || !has(self.tls.mode) || self.tls.mode != 'Disabled'",message="spec.auth needs TLS, by which the replicas know one another: leave it out, or set spec.tls.mode to Managed or Provided",fieldPath=".auth"
// +kubebuilder:validation:XValidation:rule="!has(self.auth) || !has(self.tls) || !has(self.tls.mode) || self.tls.mode != 'Provided' || has(self.auth.allowedIdentities)",message="spec.auth.allowedIdentities is required when spec.tls.mode is Provided: the operator does not know whom the certificates are for",fieldPath=".auth"
// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !has(self.limits.minTTLSeconds) || self.leaseTTLSeconds >= self.limits.minTTLSeconds",message="spec.leaseTTLSeconds (60 when not given) is less than spec.limits.minTTLSeconds",fieldPath=".leaseTTLSeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !has(self.limits.maxTTLSeconds) || self.leaseTTLSeconds <= self.limits.maxTTLSeconds",message="spec.leaseTTLSeconds (60 when not given) is more than spec.limits.maxTTLSeconds",fieldPath=".leaseTTLSeconds"
type LeaseServiceSpec struct {
	// Replicas is the number of lease service pods. Replicas share the work, and every one answers every call.
	// Zero, or leaving it out, means one.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Replicas int32 `json:"replicas,omitempty"`

	// EtcdEndpoints are the client URLs of the etcd that keeps the leases, such as "http://etcd-cluster:2379".
	// The server of an https URL is verified against the CA certificates of etcd.tlsSecretRef, or else of the image.
	// Without any, the one replica runs an etcd of its own on a volume: for development only.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^https?://([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|[[][0-9A-Fa-f:.]+[]]):[0-9]{1,5}$')",message="an etcd endpoint in spec.etcdEndpoints is a client URL with a port and nothing after it: http://host:2379 or https://host:2379"
	EtcdEndpoints []string `json:"etcdEndpoints,omitempty"`

	// Etcd says how the external etcd is used.
	//
	// +optional
	Etcd *LeaseServiceEtcd `json:"etcd,omitempty"`

	// TLS says how clients and replicas are authenticated. Left out: mutual TLS with certificates of the operator,
	// unless its configuration says otherwise.
	//
	// +optional
	TLS *LeaseServiceTLS `json:"tls,omitempty"`

	// Auth says who may call, of those whom TLS lets in. Left out: everybody with a certificate.
	//
	// +optional
	Auth *LeaseServiceAuth `json:"auth,omitempty"`

	// LeaseTTLSeconds is the time to live, in seconds, of a lease whose Acquire names none.
	// Zero, or leaving it out, means 60.
	//
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	LeaseTTLSeconds int32 `json:"leaseTTLSeconds,omitempty"`

	// Limits are the quotas of the service, all of its replicas together: each enforces its share, rounded up and at
	// least 1. Left out: those that each of its fields names.
	//
	// +optional
	Limits *LeaseServiceLimits `json:"limits,omitempty"`

	// Image is the lease service image. Empty takes the image that the operator was configured with.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:space:]]')",message="spec.image is an image reference such as registry.example/lease-service:v1, without blanks"
	Image string `json:"image,omitempty"`

	// ImagePullSecrets name Secrets of the same namespace that the kubelet pulls the image with.
	// The operator itself never reads them.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []LeaseServiceSecretReference `json:"imagePullSecrets,omitempty"`

	// Resources are the compute resources of each pod.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.claims)",message="spec.resources.claims is not supported: a lease service uses no devices"
	Resources corev1.ResourceRequirements `json:"resources,omitempty,omitzero"`

	// Storage is the volume of the embedded etcd.
	//
	// +optional
	Storage *LeaseServiceStorage `json:"storage,omitempty"`

	// Scheduling says where the pods may run. Pods of one LeaseService prefer different nodes in any case.
	//
	// +optional
	Scheduling *LeaseServiceScheduling `json:"scheduling,omitempty"`

	// NetworkPolicy is Managed (the operator keeps a NetworkPolicy around the pods, the default) or None.
	//
	// +optional
	// +kubebuilder:default=Managed
	NetworkPolicy NetworkPolicyMode `json:"networkPolicy,omitempty"`

	// AllowedClients lists who may open connections to the pods, beside pods of the same namespace and the
	// operator. It becomes an ingress rule of the managed NetworkPolicy.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	AllowedClients []LeaseServiceClient `json:"allowedClients,omitempty"`

	// ProgressDeadlineSeconds is how long a pod may fail to become ready before the LeaseService is Stalled, which
	// tells whoever waits for it to give up. The operator goes on all the same. Zero, or leaving it out, means 120.
	//
	// +optional
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	ProgressDeadlineSeconds int32 `json:"progressDeadlineSeconds,omitempty"`

	// Rollouts says when a change of the pods takes effect that is not of this spec.
	//
	// +optional
	Rollouts *LeaseServiceRollouts `json:"rollouts,omitempty"`

	// Paused stops the operator from changing anything for this object, deletion excepted.
	//
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// LeaseServiceEtcd says how an external etcd is used.
type LeaseServiceEtcd struct {
	// Prefix is the start of every key that this LeaseService writes, and begins and ends in "/".
	// Empty takes "/holdfast/<namespace>/<name>/".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[A-Za-z0-9][A-Za-z0-9_.-]*)+/$')",message="spec.etcd.prefix is a path of letters, digits, '_', '.' and '-' that begins and ends in '/', such as /holdfast/team-a/locks/"
	Prefix string `json:"prefix,omitempty"`

	// TLSSecretRef names a Secret with ca.crt, by which the server of an https URL is verified, and with tls.crt and
	// tls.key, if etcd asks for a client certificate. It is mounted, and read again when it changes.
	//
	// +optional
	TLSSecretRef *LeaseServiceSecretReference `json:"tlsSecretRef,omitempty"`

	// AuthSecretRef names a Secret with username and password to log in to etcd. It is mounted, and read again when
	// it changes.
	//
	// +optional
	AuthSecretRef *LeaseServiceSecretReference `json:"authSecretRef,omitempty"`
}

// LeaseServiceSecretReference names a Secret of the LeaseService's namespace.
type LeaseServiceSecretReference struct {
	// Name of the Secret.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// LeaseServiceStorage is the volume of the embedded etcd. Its PersistentVolumeClaim outlives the LeaseService:
// a LeaseService of the same name finds its leases and, above all, keeps its fencing tokens rising.
type LeaseServiceStorage struct {
	// Size of the volume.
	//
	// +optional
	// +kubebuilder:default="1Gi"
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="spec.storage.size is more than zero, such as 1Gi"
	Size resource.Quantity `json:"size,omitempty,omitzero"`

	// StorageClassName of the volume; empty takes the cluster's default.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClassName string `json:"storageClassName,omitempty"`
}

// LeaseServiceScheduling says where pods may run; the fields are those of a PodSpec.
type LeaseServiceScheduling struct {
	// NodeSelector of the pods.
	//
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations of the pods.
	//
	// +optional
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// PriorityClassName of the pods.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// LeaseServiceClient selects pods that may connect.
//
// +kubebuilder:validation:XValidation:rule="has(self.namespaceSelector) || has(self.podSelector)",message="an entry of spec.allowedClients needs namespaceSelector, podSelector or both: an empty one would admit nobody"
type LeaseServiceClient struct {
	// NamespaceSelector selects namespaces by label; together with podSelector, pods in those namespaces.
	//
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// PodSelector selects pods by label; without namespaceSelector, in the LeaseService's own namespace.
	//
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
}

// LeaseService is a highly available lease and lock service of one tenant.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=holdfast
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=".spec.replicas"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Leader",type=string,JSONPath=".status.leader"
// +kubebuilder:printcolumn:name="Leases",type=integer,JSONPath=".status.activeLeases"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=".status.endpoint",priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].reason",priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 52",message="metadata.name has at most 52 characters: the names of the pods' revisions are derived from it"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a DNS label that starts with a letter: Services are named after it"
type LeaseService struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the tenant asks for.
	//
	// +required
	Spec LeaseServiceSpec `json:"spec"`
	// Status is what the operator observed.
	//
	// +optional
	// +kubebuilder:default:={observedGeneration:-1}
	Status LeaseServiceStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions of the status.
func (l *LeaseService) GetConditions() []metav1.Condition { return l.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (l *LeaseService) SetConditions(conditions []metav1.Condition) { l.Status.Conditions = conditions }

// GetObservedGeneration returns the generation that the status was computed from.
func (l *LeaseService) GetObservedGeneration() int64 { return l.Status.ObservedGeneration }

// SetObservedGeneration sets the generation that the status was computed from.
func (l *LeaseService) SetObservedGeneration(generation int64) {
	l.Status.ObservedGeneration = generation
}

// LeaseServiceList is a list of LeaseServices.
//
// +kubebuilder:object:root=true
type LeaseServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LeaseService `json:"items"`
}
