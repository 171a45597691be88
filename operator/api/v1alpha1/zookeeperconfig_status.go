package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ZnodeState is the state of a znode in one word.
//
// +kubebuilder:validation:Enum=Pending;Synced;Error;OutOfSync
type ZnodeState string

const (
	// ZnodePending says that the operator is at work, or has not looked yet.
	ZnodePending ZnodeState = "Pending"
	// ZnodeSynced says that the znode is as declared.
	ZnodeSynced ZnodeState = "Synced"
	// ZnodeError says that the znode cannot be made as declared, or cannot be seen; the message says why.
	ZnodeError ZnodeState = "Error"
	// ZnodeOutOfSync says that the znode differs from what is declared and is left so, by driftPolicy or a pause.
	ZnodeOutOfSync ZnodeState = "OutOfSync"
)

// ZnodeRecord is a znode that the object is recorded as having created or adopted. Nothing else is ever deleted.
type ZnodeRecord struct {
	// ConnectString of the ensemble, in normal form, with the chroot.
	//
	// +required
	ConnectString string `json:"connectString"`

	// Path below the chroot.
	//
	// +required
	Path string `json:"path"`

	// Czxid is the transaction that created the znode, in hexadecimal: a znode of that path that somebody creates
	// later has another.
	//
	// +required
	Czxid string `json:"czxid"`

	// Version of the data when it was last synced.
	//
	// +optional
	Version int32 `json:"version"`

	// ACLVersion is the version of the access control list when it was last synced.
	//
	// +optional
	ACLVersion int32 `json:"aclVersion"`

	// Size of the data in bytes.
	//
	// +optional
	Size int64 `json:"size"`

	// Hash is the beginning of the SHA-256 of the data.
	//
	// +optional
	Hash string `json:"hash,omitempty"`

	// AuthSecretName is the Secret whose credential the znode was last written with. Empty: the operator's own.
	//
	// +optional
	AuthSecretName string `json:"authSecretName,omitempty"`

	// TLS tells that it was last written by a TLS connection.
	//
	// +optional
	TLS bool `json:"tls,omitempty"`

	// TLSSecretName is the Secret of that connection. Empty: none.
	//
	// +optional
	TLSSecretName string `json:"tlsSecretName,omitempty"`

	// TLSServerName is what the server's certificate was verified for. Empty: the host that was dialled.
	//
	// +optional
	TLSServerName string `json:"tlsServerName,omitempty"`
}

// SupersededZnode is a znode that the object moved away from.
type SupersededZnode struct {
	// Znode as it was on record.
	//
	// +required
	Znode ZnodeRecord `json:"znode"`

	// Since is when the object moved.
	//
	// +required
	Since metav1.Time `json:"since"`
}

// ZooKeeperConfigStatus is what the operator observed.
type ZooKeeperConfigStatus struct {
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

	// State is Pending, Synced, Error or OutOfSync.
	//
	// +optional
	State ZnodeState `json:"state,omitempty"`

	// Message says more about the state.
	//
	// +optional
	Message string `json:"message,omitempty"`

	// LastSyncedTime is when the znode was last created, changed, adopted or put right. Finding it as declared does
	// not move it.
	//
	// +optional
	LastSyncedTime *metav1.Time `json:"lastSyncedTime,omitempty"`

	// Znode is the znode that the object has.
	//
	// +optional
	Znode *ZnodeRecord `json:"znode,omitempty"`

	// Superseded are znodes that the object had before it moved, and that could not be deleted yet.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Superseded []SupersededZnode `json:"superseded,omitempty"`

	// Drift says in what the znode differs from what is declared: sizes, hashes and access control lists, never
	// content.
	//
	// +optional
	Drift string `json:"drift,omitempty"`
}
