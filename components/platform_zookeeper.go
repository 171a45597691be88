package components

import corev1 "k8s.io/api/core/v1"

// zooKeeperCredentialDir is beside the folder of the configuration: nothing can be mounted into a ConfigMap's volume.
const zooKeeperCredentialDir = "/etc/holdfast-zookeeper"

// ZooKeeperArgs configures how the operator uses ZooKeeper.
type ZooKeeperArgs struct {
	// ConnectString of the ensemble of every ZooKeeperConfig that names none: "zk-0:2181,zk-1:2181/chroot". Empty: each
	// names its own.
	ConnectString string
	// CredentialSecret is a Secret in the operator's namespace with username and password, for that ensemble alone. It
	// may come later than the operator, and change. Empty: the operator shows no credential.
	CredentialSecret string
	// Grants say which namespaces may write below which paths. None: every namespace may write everywhere.
	Grants []ZooKeeperGrant
}

// ZooKeeperGrant lets namespaces write below paths.
type ZooKeeperGrant struct {
	// Namespaces that it speaks of; "*" is every one.
	Namespaces []string `json:"namespaces"`
	// Ensembles are connect strings without a chroot. Empty: every ensemble.
	Ensembles []string `json:"ensembles,omitempty"`
	// Paths as the ensemble sees them, each with all below it; "{namespace}" stands for the object's namespace.
	Paths []string `json:"paths"`
}

// operatorZooKeeper is a section of the operator's file; what it leaves out has the operator's defaults.
type operatorZooKeeper struct {
	ConnectString    string           `json:"connectString,omitempty"`
	CredentialFolder string           `json:"credentialFolder,omitempty"`
	Grants           []ZooKeeperGrant `json:"grants,omitempty"`
}

// section is nil for nil, so that the file has none.
func (a *ZooKeeperArgs) section() *operatorZooKeeper {
	if a == nil {
		return nil
	}
	section := &operatorZooKeeper{ConnectString: a.ConnectString, Grants: a.Grants}
	if a.CredentialSecret != "" {
		section.CredentialFolder = zooKeeperCredentialDir
	}
	return section
}

// mountCredential shows the credential to the pod's one container. The Secret is optional, as it cannot be there before
// the namespace is.
func (a *ZooKeeperArgs) mountCredential(pod *corev1.PodSpec) {
	if a == nil || a.CredentialSecret == "" {
		return
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "zookeeper", VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: a.CredentialSecret, Optional: new(true)},
	}})
	container := &pod.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts,
		corev1.VolumeMount{Name: "zookeeper", MountPath: zooKeeperCredentialDir, ReadOnly: true})
}
