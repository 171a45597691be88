package components

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// These are beside the folder of the configuration: nothing can be mounted into a ConfigMap's volume.
const (
	zooKeeperCredentialDir = "/etc/holdfast-zookeeper"
	zooKeeperTLSDir        = "/etc/holdfast-zookeeper-tls"
)

// ZooKeeperArgs configures how the operator uses ZooKeeper.
type ZooKeeperArgs struct {
	// ConnectString of the ensemble of every ZooKeeperConfig that names none: "zk-0:2181,zk-1:2181/chroot". Empty: each
	// names its own.
	ConnectString string
	// CredentialSecret is a Secret in the operator's namespace with username and password, for that ensemble alone. It
	// may come later than the operator, and change. Empty: the operator shows no credential.
	CredentialSecret string
	// TLS of the connections to that ensemble alone.
	TLS ZooKeeperOperatorTLS
	// Grants say which namespaces may write below which paths. None: every namespace may write everywhere.
	Grants []ZooKeeperGrant
}

// ZooKeeperOperatorTLS says whether and how the operator speaks TLS to ZooKeeper.
type ZooKeeperOperatorTLS struct {
	// Enabled: it speaks TLS. Default false, which is plain TCP.
	Enabled bool `json:"enabled,omitempty"`
	// Secret in the operator's namespace with ca.crt (what the servers' certificates are verified against; the system's if missing),
	// and tls.crt and tls.key (what the operator shows; nothing if missing). It may come later than the operator, and change.
	// Empty: the servers are verified against the system's certificates.
	Secret string `json:"secret,omitempty"`
	// ServerName is what the servers' certificates are verified for. Empty: the host of the connect string.
	ServerName string `json:"serverName,omitempty"`
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
	ConnectString    string                `json:"connectString,omitempty"`
	CredentialFolder string                `json:"credentialFolder,omitempty"`
	TLS              *operatorZooKeeperTLS `json:"tls,omitempty"`
	Grants           []ZooKeeperGrant      `json:"grants,omitempty"`
}

type operatorZooKeeperTLS struct {
	Enabled    bool   `json:"enabled"`
	Folder     string `json:"folder,omitempty"`
	ServerName string `json:"serverName,omitempty"`
}

// check refuses what would be by plain TCP although it looks like TLS, and what would be TLS with nobody.
func (a *ZooKeeperArgs) check() error {
	switch {
	case a == nil:
		return nil
	case a.TLS.Enabled && a.ConnectString == "":
		return errors.New("operator.zooKeeper.tls.enabled is true, which needs operator.zooKeeper.connectString")
	case !a.TLS.Enabled && a.TLS.Secret != "":
		return fmt.Errorf("operator.zooKeeper.tls.secret is %q, which needs operator.zooKeeper.tls.enabled", a.TLS.Secret)
	case !a.TLS.Enabled && a.TLS.ServerName != "":
		return fmt.Errorf("operator.zooKeeper.tls.serverName is %q, which needs operator.zooKeeper.tls.enabled", a.TLS.ServerName)
	}
	return nil
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
	if a.TLS.Enabled {
		section.TLS = &operatorZooKeeperTLS{Enabled: true, ServerName: a.TLS.ServerName}
		if a.TLS.Secret != "" {
			section.TLS.Folder = zooKeeperTLSDir
		}
	}
	return section
}

// mountSecrets shows the credential and the files of TLS to the pod's one container.
func (a *ZooKeeperArgs) mountSecrets(pod *corev1.PodSpec) {
	if a == nil {
		return
	}
	mountSecret(pod, "zookeeper", a.CredentialSecret, zooKeeperCredentialDir)
	mountSecret(pod, "zookeeper-tls", a.TLS.Secret, zooKeeperTLSDir)
}

// mountSecret mounts nothing for no Secret. A Secret is optional, as it cannot be there before the namespace is.
func mountSecret(pod *corev1.PodSpec, volume, secret, dir string) {
	if secret == "" {
		return
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secret, Optional: new(true)},
	}})
	container := &pod.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: dir, ReadOnly: true})
}
