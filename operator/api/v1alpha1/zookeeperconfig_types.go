package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of a ZooKeeperConfig's conditions and events.
const (
	// ReasonCreated is the reason of the event of a znode that was created.
	ReasonCreated = "Created"
	// ReasonUpdated is the reason of the event of a znode that was changed because the object was.
	ReasonUpdated = "Updated"
	// ReasonAdopted is the reason of the event of a znode that was taken over.
	ReasonAdopted = "Adopted"
	// ReasonDeleted is the reason of the event of a znode that was deleted.
	ReasonDeleted = "Deleted"
	// ReasonOrphaned is the reason of the event of a znode that was left behind, and says why.
	ReasonOrphaned = "Orphaned"
	// ReasonDriftCorrected is the reason of the event of a znode that somebody changed and that was put right.
	ReasonDriftCorrected = "DriftCorrected"
	// ReasonDrifted says that the znode differs from the object, and that driftPolicy is Report.
	ReasonDrifted = "Drifted"
	// ReasonPathConflict says that another ZooKeeperConfig has the znode.
	ReasonPathConflict = "PathConflict"
	// ReasonAlreadyExists says that the znode exists, was not created by this object, and may not be adopted.
	ReasonAlreadyExists = "AlreadyExists"
	// ReasonWouldLockOut says that the access control list would keep the operator from reading, correcting or
	// administering the znode.
	ReasonWouldLockOut = "WouldLockOut"
	// ReasonAccessDenied says that ZooKeeper refuses what is needed to the operator's credential.
	ReasonAccessDenied = "AccessDenied"
	// ReasonNotGranted says that the platform owner does not let this namespace write to that path.
	ReasonNotGranted = "NotGranted"
	// ReasonSourceMissing says that a ConfigMap or Secret that the spec refers to, or the key in it, is missing.
	ReasonSourceMissing = "SourceMissing"
	// ReasonOperatorCredential says that the operator's own credential, which the object relies on, cannot be read.
	ReasonOperatorCredential = "OperatorCredentialUnreadable"
	// ReasonOperatorTLS says that the files of the operator's own TLS, which the object relies on, cannot be read.
	ReasonOperatorTLS = "OperatorTLSUnreadable"
	// ReasonEnsembleUnavailable says that ZooKeeper cannot be reached.
	ReasonEnsembleUnavailable = "EnsembleUnavailable"
)

// ConditionSynced is True when the znode is as declared, False when it is not, and Unknown when it cannot be seen.
const ConditionSynced = "Synced"

// Names in the metadata of a ZooKeeperConfig.
const (
	// FinalizerZnode keeps the object until its znode is deleted or left behind.
	FinalizerZnode = "dist.system/znode"
	// AnnotationZnodeClaim says which znode the operator was about to create for the object. It is the operator's.
	AnnotationZnodeClaim = "dist.system/znode-claim"
)

// ZnodeEncoding says what a znode's data is.
//
// +kubebuilder:validation:Enum=utf-8;binary
type ZnodeEncoding string

const (
	// EncodingUTF8 is text: data that is not valid UTF-8 is refused. It is the default.
	EncodingUTF8 ZnodeEncoding = "utf-8"
	// EncodingBinary is anything.
	EncodingBinary ZnodeEncoding = "binary"
)

// ZnodeSyncPolicy says what happens to a znode that exists.
//
// +kubebuilder:validation:Enum=createOrUpdate;createOnly
type ZnodeSyncPolicy string

const (
	// SyncCreateOrUpdate keeps the znode equal to the object. It is the default.
	SyncCreateOrUpdate ZnodeSyncPolicy = "createOrUpdate"
	// SyncCreateOnly creates the znode when it does not exist, and never changes one that does.
	SyncCreateOnly ZnodeSyncPolicy = "createOnly"
)

// ZnodeDriftPolicy says what happens when somebody else changes the znode.
//
// +kubebuilder:validation:Enum=Correct;Report
type ZnodeDriftPolicy string

const (
	// DriftCorrect puts it right at once. It is the default.
	DriftCorrect ZnodeDriftPolicy = "Correct"
	// DriftReport leaves it and reports it: the object is OutOfSync.
	DriftReport ZnodeDriftPolicy = "Report"
)

// ZnodeDeletionPolicy says what happens to the znode when the object goes, or moves to another path.
//
// +kubebuilder:validation:Enum=Delete;Orphan
type ZnodeDeletionPolicy string

const (
	// DeletionDelete deletes the znode, if the object is recorded as having created or adopted it. It is the default.
	DeletionDelete ZnodeDeletionPolicy = "Delete"
	// DeletionOrphan leaves the znode.
	DeletionOrphan ZnodeDeletionPolicy = "Orphan"
)

// ZnodeAdoption says what happens to a znode that exists and that the object did not create.
//
// +kubebuilder:validation:Enum=Never;IfEqual;Force
type ZnodeAdoption string

const (
	// AdoptionNever leaves it alone: the object is Stalled. It is the default.
	AdoptionNever ZnodeAdoption = "Never"
	// AdoptionIfEqual takes it over when data and access control list are already as declared.
	AdoptionIfEqual ZnodeAdoption = "IfEqual"
	// AdoptionForce takes it over and makes it as declared.
	AdoptionForce ZnodeAdoption = "Force"
)

// ZooKeeperConfigSpec is one znode as it should be.
//
// +kubebuilder:validation:XValidation:rule="(has(self.data) ? 1 : 0) + (has(self.stringData) ? 1 : 0) + (has(self.dataFrom) ? 1 : 0) == 1",message="set exactly one of spec.data (base64), spec.stringData (plain text; may be empty) and spec.dataFrom (a key of a ConfigMap or Secret)"
type ZooKeeperConfigSpec struct {
	// Path of the znode, below the chroot of the connect string if that has one. Changing it moves the znode: the
	// new one is created first, then the old one goes by deletionPolicy.
	//
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="spec.path is absolute: it begins with /"
	// +kubebuilder:validation:XValidation:rule="!self.endsWith('/') && !self.contains('//')",message="spec.path has no empty part: no // and no / at the end"
	// +kubebuilder:validation:XValidation:rule="!self.matches('/[.][.]?(/|$)')",message="spec.path has no part '.' or '..'"
	// +kubebuilder:validation:XValidation:rule="self != '/zookeeper' && !self.startsWith('/zookeeper/')",message="spec.path is not /zookeeper or below, which ZooKeeper keeps for itself"
	Path string `json:"path"`

	// Data of the znode, in base64 (the standard alphabet, padded, without line breaks).
	// ---
	// The pattern stands in for the format "byte": a rule in CEL beside a field of that format fails on "+" and "/",
	// which CEL takes for the alphabet of URLs. What does not decode must not be stored, since one such object would
	// keep every client from decoding a list.
	//
	// +optional
	// +kubebuilder:validation:Format=""
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$`
	// +kubebuilder:validation:MaxLength=1400000
	Data []byte `json:"data,omitempty"`

	// StringData is the data of the znode as plain text.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1048576
	StringData *string `json:"stringData,omitempty"`

	// DataFrom takes the data from a ConfigMap or Secret of the same namespace. A change there is a change here.
	//
	// +optional
	DataFrom *ZnodeDataSource `json:"dataFrom,omitempty"`

	// Encoding is utf-8 (data must be valid UTF-8; the default) or binary.
	//
	// +optional
	// +kubebuilder:default=utf-8
	Encoding ZnodeEncoding `json:"encoding,omitempty"`

	// SyncPolicy is createOrUpdate (the znode is kept equal; the default) or createOnly (a znode that exists is
	// never changed).
	//
	// +optional
	// +kubebuilder:default=createOrUpdate
	SyncPolicy ZnodeSyncPolicy `json:"syncPolicy,omitempty"`

	// Connection says which ensemble, and as whom. Left out, it is the operator's default.
	//
	// +optional
	Connection *ZooKeeperConnection `json:"connection,omitempty"`

	// ACL is the access control list of the znode. Left out, it grants everything to the credential of the
	// connection and nothing to anybody else. It must leave the operator what it needs: read, write and admin.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	ACL []ZnodeACL `json:"acl,omitempty"`

	// DriftPolicy is Correct (the default) or Report.
	//
	// +optional
	// +kubebuilder:default=Correct
	DriftPolicy ZnodeDriftPolicy `json:"driftPolicy,omitempty"`

	// DeletionPolicy is Delete (the default) or Orphan.
	//
	// +optional
	// +kubebuilder:default=Delete
	DeletionPolicy ZnodeDeletionPolicy `json:"deletionPolicy,omitempty"`

	// Adoption is Never (the default), IfEqual or Force.
	//
	// +optional
	// +kubebuilder:default=Never
	Adoption ZnodeAdoption `json:"adoption,omitempty"`

	// Paused stops the operator from changing anything for this object, deletion excepted.
	//
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// ZnodeDataSource names a key. Exactly one field is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.configMapKeyRef) != has(self.secretKeyRef)",message="set exactly one of configMapKeyRef and secretKeyRef"
type ZnodeDataSource struct {
	// ConfigMapKeyRef is a key of a ConfigMap, of its data or its binaryData.
	//
	// +optional
	ConfigMapKeyRef *ObjectKeyReference `json:"configMapKeyRef,omitempty"`

	// SecretKeyRef is a key of a Secret.
	//
	// +optional
	SecretKeyRef *ObjectKeyReference `json:"secretKeyRef,omitempty"`
}

// ObjectKeyReference is a key of an object in the same namespace.
type ObjectKeyReference struct {
	// Name of the object.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key in the object.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// ObjectReference is an object in the same namespace.
type ObjectReference struct {
	// Name of the object.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ZooKeeperConnection says which ensemble, and as whom.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.connectString) && has(self.connectStringFrom))",message="set at most one of connectString and connectStringFrom"
type ZooKeeperConnection struct {
	// ConnectString lists the servers, with an optional chroot: "zk-0.zk:2181,zk-1.zk:2181/team-a". An IPv6 address
	// is in brackets. Changing it moves the znode, as changing the path does.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	ConnectString string `json:"connectString,omitempty"`

	// ConnectStringFrom takes the connect string from a key of a ConfigMap of the same namespace.
	//
	// +optional
	ConnectStringFrom *ObjectKeyReference `json:"connectStringFrom,omitempty"`

	// AuthSecretRef names a Secret of the same namespace with the keys username and password (type
	// kubernetes.io/basic-auth has them), which are used with ZooKeeper's digest scheme. A change of it takes
	// effect at once.
	//
	// +optional
	AuthSecretRef *ObjectReference `json:"authSecretRef,omitempty"`

	// TLS speaks TLS to the servers. Left out, it is the operator's setting on the operator's own ensemble, and plain TCP on any other.
	//
	// +optional
	TLS *ZooKeeperTLS `json:"tls,omitempty"`
}

// ZooKeeperTLS are the parameters of TLS.
type ZooKeeperTLS struct {
	// SecretRef names a Secret of the same namespace with the keys ca.crt (what the servers' certificates are
	// verified against; the system's if missing), and tls.crt and tls.key (what the operator shows; nothing if
	// missing). Left out, the servers are verified against the system's certificates.
	//
	// +optional
	SecretRef *ObjectReference `json:"secretRef,omitempty"`

	// ServerName is what the servers' certificates are verified for. Empty: the host of the connect string.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServerName string `json:"serverName,omitempty"`
}

// ZnodeACL is one entry of an access control list.
//
// +kubebuilder:validation:XValidation:rule="self.scheme != 'world' || (has(self.id) && self.id == 'anyone' && !has(self.secretRef))",message="scheme world has the id anyone, and no secretRef"
// +kubebuilder:validation:XValidation:rule="self.scheme == 'world' || has(self.id) != has(self.secretRef)",message="set exactly one of id and secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || self.scheme == 'digest'",message="secretRef goes with scheme digest"
// +kubebuilder:validation:XValidation:rule="self.scheme != 'digest' || !has(self.id) || self.id.matches('^[^:]+:[A-Za-z0-9+/]{27}=$')",message="the id of scheme digest is user:hash, the hash being base64(sha1(user:password)); or name a Secret by secretRef"
type ZnodeACL struct {
	// Scheme is world, digest, ip, x509 or sasl.
	//
	// +required
	// +kubebuilder:validation:Enum=world;digest;ip;x509;sasl
	Scheme string `json:"scheme"`

	// ID is the identity in the scheme: anyone, user:hash, an address or network, a distinguished name, a principal.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ID string `json:"id,omitempty"`

	// SecretRef names a Secret of the same namespace with the keys username and password, of which the identity of
	// scheme digest is computed.
	//
	// +optional
	SecretRef *ObjectReference `json:"secretRef,omitempty"`

	// Perms are letters as ZooKeeper's shell has them: c (create), d (delete), r (read), w (write), a (admin).
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^[cdrwa]+$`
	Perms string `json:"perms"`
}

// ZooKeeperConfig keeps one znode as it is declared.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=zkc,categories=holdfast
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Path",type=string,JSONPath=".spec.path"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=".status.state"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].reason",priority=1
// +kubebuilder:printcolumn:name="Synced",type=date,JSONPath=".status.lastSyncedTime",priority=1
type ZooKeeperConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the znode as it should be.
	//
	// +required
	Spec ZooKeeperConfigSpec `json:"spec"`
	// Status is what the operator observed.
	//
	// +optional
	// +kubebuilder:default:={observedGeneration:-1}
	Status ZooKeeperConfigStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions of the status.
func (z *ZooKeeperConfig) GetConditions() []metav1.Condition { return z.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (z *ZooKeeperConfig) SetConditions(conditions []metav1.Condition) {
	z.Status.Conditions = conditions
}

// GetObservedGeneration returns status.observedGeneration.
func (z *ZooKeeperConfig) GetObservedGeneration() int64 { return z.Status.ObservedGeneration }

// SetObservedGeneration sets status.observedGeneration.
func (z *ZooKeeperConfig) SetObservedGeneration(generation int64) {
	z.Status.ObservedGeneration = generation
}

// ZooKeeperConfigList is a list of ZooKeeperConfigs.
//
// +kubebuilder:object:root=true
type ZooKeeperConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ZooKeeperConfig `json:"items"`
}
