package leaseservice

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/certs"
)

// Keys of the Secrets with certificates; those of the type kubernetes.io/tls, and the one that is customary beside them.
const (
	KeyCA   = "ca.crt"
	KeyCert = corev1.TLSCertKey
	KeyKey  = corev1.TLSPrivateKeyKey
)

const (
	// labelTLS is on the pods that speak TLS. While the mode changes there are both.
	labelTLS = "dist.system/tls"
	tlsOn    = "enabled"

	scheme = "holdfast"
)

// ErrNoIssuer says that the operator is to issue certificates, and does not.
var ErrNoIssuer = errors.New("spec.tls.mode is Managed and the operator issues no certificates (leaseService.tls.enabled of its configuration is false): use Provided or Disabled")

// ErrAuthWithoutTLS says that callers are to be told apart, and that nobody shows who it is.
var ErrAuthWithoutTLS = errors.New("spec.auth is set, and without spec.tls there is no TLS, since the operator issues no certificates (leaseService.tls.enabled of its configuration is false): set spec.tls, or leave spec.auth out")

// Certificates are what the operator issues for one LeaseService.
type Certificates struct {
	Server, Client certs.Keys
}

// Login is how the pods log in to etcd, when the operator keeps a user there for them.
type Login struct {
	Username, Password string
	// CA is the authorities of etcd's servers. Empty: those that the spec names, or of the image.
	CA []byte
}

// LoginSecretName is the name of the Secret with the Login.
func LoginSecretName(ls *v1alpha1.LeaseService) string { return ls.Name + "-etcd-auth" }

func loginSecret(ls *v1alpha1.LeaseService, login *Login) *corev1.Secret {
	data := map[string][]byte{corev1.BasicAuthUsernameKey: []byte(login.Username), corev1.BasicAuthPasswordKey: []byte(login.Password)}
	if len(login.CA) > 0 {
		data[KeyCA] = login.CA
	}
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: meta(ls, LoginSecretName(ls)),
		Type:       corev1.SecretTypeBasicAuth,
		Data:       data,
	}
}

// LogsIn tells whether a set's pods log in to etcd with the operator's Login, for the prefix that the LeaseService has now.
func LogsIn(set *appsv1.StatefulSet, ls *v1alpha1.LeaseService) bool {
	pod := &set.Spec.Template.Spec
	return slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == LoginSecretName(ls) }) &&
		slices.ContainsFunc(pod.Containers, func(c corev1.Container) bool { return slices.Contains(c.Args, prefixFlag(ls)) })
}

// OwnPrefix is where everything of a LeaseService is that the operator keeps a user of etcd for. What it may be asked for
// is below it: that user is for nobody else's keys, and its keys go with it.
func OwnPrefix(ls *v1alpha1.LeaseService) string {
	return fmt.Sprintf("/holdfast/%s/%s/", ls.Namespace, ls.Name)
}

// TLSMode returns the mode in effect, ErrNoIssuer or ErrAuthWithoutTLS.
func TLSMode(ls *v1alpha1.LeaseService, settings Settings) (v1alpha1.TLSMode, error) {
	mode := v1alpha1.TLSDisabled
	if settings.IssueCertificates {
		mode = v1alpha1.TLSManaged
	}
	if ls.Spec.TLS != nil && ls.Spec.TLS.Mode != "" {
		mode = ls.Spec.TLS.Mode
	}
	switch {
	case mode == v1alpha1.TLSManaged && !settings.IssueCertificates:
		return "", ErrNoIssuer
	case mode == v1alpha1.TLSDisabled && ls.Spec.Auth != nil:
		return "", ErrAuthWithoutTLS
	}
	return mode, nil
}

// SpeaksTLS tells whether a pod with these labels does.
func SpeaksTLS(labels map[string]string) bool { return labels[labelTLS] == tlsOn }

// Identity is the name of one part ("server", "client", "operator") in a certificate. Namespace and name are in it, so that
// it reads well in logs and in holds; what keeps tenants apart is that each LeaseService trusts its own authority alone.
func Identity(ls *v1alpha1.LeaseService, part string) *url.URL {
	return &url.URL{Scheme: scheme, Host: ls.Namespace, Path: "/" + ls.Name + "/" + part}
}

// ServerLeaf says what the pods' certificate is for. All replicas share it, as the lease service asks for: the headless
// Service's names are covered by a wildcard. The loopback is for port forwarding.
func ServerLeaf(ls *v1alpha1.LeaseService) certs.Leaf {
	service := fmt.Sprintf("%s.%s", ServiceName(ls), ls.Namespace)
	peers := fmt.Sprintf("*.%s.%s.svc", PeersName(ls), ls.Namespace)
	leaf := certs.Leaf{
		Identity: Identity(ls, "server"),
		DNSNames: []string{
			ServerName(ls), ServiceName(ls), service, service + ".svc.cluster.local", peers, peers + ".cluster.local", "localhost",
		},
		IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if ls.Spec.TLS == nil {
		return leaf
	}
	for _, name := range ls.Spec.TLS.ServerNames {
		if ip := net.ParseIP(name); ip != nil {
			leaf.IPs = append(leaf.IPs, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, name)
		}
	}
	return leaf
}

// ClientLeaf says what the certificate of the tenant's clients is for.
func ClientLeaf(ls *v1alpha1.LeaseService) certs.Leaf {
	return certs.Leaf{Identity: Identity(ls, "client")}
}

// OperatorLeaf says what the certificate is for by which the operator reads the status of the pods.
func OperatorLeaf(ls *v1alpha1.LeaseService) certs.Leaf {
	return certs.Leaf{Identity: Identity(ls, "operator")}
}

// ServerName is the name that a server's certificate must be valid for.
func ServerName(ls *v1alpha1.LeaseService) string {
	return fmt.Sprintf("%s.%s.svc", ServiceName(ls), ls.Namespace)
}

// KeysOf reads what a Secret holds.
func KeysOf(data map[string][]byte) certs.Keys {
	return certs.Keys{CA: data[KeyCA], Cert: data[KeyCert], Key: data[KeyKey]}
}

func secret(ls *v1alpha1.LeaseService, name string, keys certs.Keys) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: meta(ls, name),
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{KeyCA: keys.CA, KeyCert: keys.Cert, KeyKey: keys.Key},
	}
}

// Reference is a Secret that the spec names, and what it must hold.
type Reference struct {
	// Field of the spec.
	Field string
	// Name of the Secret.
	Name string
	// Keys that it must have.
	Keys []string
}

// References are the Secrets that the spec names, but for those that the kubelet pulls images with.
func References(ls *v1alpha1.LeaseService) []Reference {
	var out []Reference
	if tls := ls.Spec.TLS; tls != nil && tls.SecretRef != nil {
		out = append(out, Reference{"spec.tls.secretRef", tls.SecretRef.Name, []string{KeyCA, KeyCert, KeyKey}})
	}
	if etcd := ls.Spec.Etcd; etcd != nil && etcd.TLSSecretRef != nil {
		out = append(out, Reference{"spec.etcd.tlsSecretRef", etcd.TLSSecretRef.Name, []string{KeyCA}})
	}
	if etcd := ls.Spec.Etcd; etcd != nil && etcd.AuthSecretRef != nil {
		out = append(out, Reference{
			"spec.etcd.authSecretRef", etcd.AuthSecretRef.Name, []string{corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey},
		})
	}
	return out
}

// secretMount is a Secret in the pods, and the flags that name its files. The kubelet keeps the files current.
type secretMount struct {
	name, secret string
	args         []string
}

func (m secretMount) dir() string { return "/etc/holdfast/" + m.name }

func (m secretMount) volume() corev1.Volume {
	// The group is the pod's; nobody else in the container reads the key.
	return corev1.Volume{Name: m.name, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: m.secret, DefaultMode: new(int32(0o440))},
	}}
}

func secretMounts(ls *v1alpha1.LeaseService, mode v1alpha1.TLSMode, login *Login) []secretMount {
	var mounts []secretMount
	add := func(name, secret string, flags ...string) {
		mount := secretMount{name: name, secret: secret}
		for i := 0; i < len(flags); i += 2 {
			mount.args = append(mount.args, flags[i]+"="+mount.dir()+"/"+flags[i+1])
		}
		mounts = append(mounts, mount)
	}
	if mode != v1alpha1.TLSDisabled {
		name := ServerSecretName(ls)
		if mode == v1alpha1.TLSProvided {
			name = ls.Spec.TLS.SecretRef.Name
		}
		add("tls", name, "--tls-cert", KeyCert, "--tls-key", KeyKey, "--tls-client-ca", KeyCA)
	}
	etcd := ls.Spec.Etcd
	if etcd != nil && etcd.TLSSecretRef != nil {
		add("etcd-tls", etcd.TLSSecretRef.Name, "--etcd-cert", KeyCert, "--etcd-key", KeyKey, "--etcd-ca", KeyCA)
	}
	if etcd != nil && etcd.AuthSecretRef != nil {
		add("etcd-auth", etcd.AuthSecretRef.Name, "--etcd-user-file", corev1.BasicAuthUsernameKey, "--etcd-password-file", corev1.BasicAuthPasswordKey)
	}
	if login != nil {
		flags := []string{"--etcd-user-file", corev1.BasicAuthUsernameKey, "--etcd-password-file", corev1.BasicAuthPasswordKey}
		if len(login.CA) > 0 && (etcd == nil || etcd.TLSSecretRef == nil) {
			flags = append(flags, "--etcd-ca", KeyCA)
		}
		add("etcd-auth", LoginSecretName(ls), flags...)
	}
	return mounts
}
