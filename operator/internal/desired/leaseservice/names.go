// Package leaseservice builds the children of a LeaseService: what the API server should hold for it, as plain
// values. Nothing here reads a clock, a cluster or a configuration; a builder returns nil for a child that the
// spec does not want.
package leaseservice

import (
	"errors"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// Settings are what the operator's configuration adds to a LeaseService.
type Settings struct {
	// DefaultImage is used by a LeaseService that names none. Empty: such a LeaseService is an error.
	DefaultImage string
	// OperatorNamespace is where the operator runs. Its pods may connect to read the status of every replica.
	// Empty: only pods of the LeaseService's own namespace may.
	OperatorNamespace string
	// IssueCertificates tells that the operator issues certificates. Without it, a LeaseService that says nothing of TLS
	// has none, and one that wants them is an error.
	IssueCertificates bool
	// RollOperatorChanges is for a LeaseService that does not say when changes of the operator's take effect: at once,
	// instead of with an approval.
	RollOperatorChanges bool
}

// ContainerName is the name of the one container of a lease service pod.
const ContainerName = "lease-service"

// The labels of the children. The three that select pods never change, since a StatefulSet's selector cannot.
const (
	labelName      = "app.kubernetes.io/name"
	labelInstance  = "app.kubernetes.io/instance"
	labelManagedBy = "app.kubernetes.io/managed-by"
	labelComponent = "app.kubernetes.io/component"
	labelPartOf    = "app.kubernetes.io/part-of"

	appName   = "lease-service"
	managedBy = "holdfast-operator"
)

// ErrNoImage says that neither the LeaseService nor the operator names an image.
var ErrNoImage = errors.New("spec.image is empty and the operator has no default image (leaseService.image of its configuration): set one of them")

// Image returns the image that the pods run, or ErrNoImage.
func Image(ls *v1alpha1.LeaseService, settings Settings) (string, error) {
	switch {
	case ls.Spec.Image != "":
		return ls.Spec.Image, nil
	case settings.DefaultImage != "":
		return settings.DefaultImage, nil
	}
	return "", ErrNoImage
}

// Labels are the labels of every child.
func Labels(ls *v1alpha1.LeaseService) map[string]string {
	labels := map[string]string{labelComponent: "server", labelPartOf: "holdfast"}
	maps.Copy(labels, SelectorLabels(ls.Name))
	return labels
}

// SelectorLabels select the pods of the LeaseService of that name, in its namespace.
func SelectorLabels(name string) map[string]string {
	return map[string]string{labelName: appName, labelInstance: name, labelManagedBy: managedBy}
}

// PodOwner returns the name of the LeaseService whose selector matches these labels of a pod, and false for a pod
// that is none of ours.
func PodOwner(labels map[string]string) (string, bool) {
	if labels[labelName] != appName || labels[labelManagedBy] != managedBy || labels[labelInstance] == "" {
		return "", false
	}
	return labels[labelInstance], true
}

// Selector is SelectorLabels in the form that the scale subresource publishes.
func Selector(name string) string {
	return metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: SelectorLabels(name)})
}

// Endpoint is the address that clients in the cluster connect to.
func Endpoint(ls *v1alpha1.LeaseService) string {
	return fmt.Sprintf("%s.%s.svc:%d", ServiceName(ls), ls.Namespace, v1alpha1.LeaseServicePort)
}

// ServiceName is the name of the client Service: the LeaseService's own, since clients type it.
func ServiceName(ls *v1alpha1.LeaseService) string { return ls.Name }

// StatefulSetName is the name of the StatefulSet, from which the pods have theirs.
func StatefulSetName(ls *v1alpha1.LeaseService) string { return ls.Name }

// PeersName is the name of the headless Service that gives every pod a name in the DNS.
func PeersName(ls *v1alpha1.LeaseService) string { return ls.Name + "-peers" }

// ServiceAccountName is the name of the ServiceAccount that the pods run as. It has a suffix, since a LeaseService that
// is called "default" must not take over the namespace's default account.
func ServiceAccountName(ls *v1alpha1.LeaseService) string {
	return ls.Name + v1alpha1.LeaseServiceAccountSuffix
}

// Replicas is the number of pods that the spec asks for.
func Replicas(ls *v1alpha1.LeaseService) int32 {
	return max(ls.Spec.Replicas, v1alpha1.DefaultReplicas)
}

// Embedded tells whether the one replica runs an etcd of its own.
func Embedded(ls *v1alpha1.LeaseService) bool { return len(ls.Spec.EtcdEndpoints) == 0 }

// ServerSecretName is the name of the Secret with the certificate that the pods show.
func ServerSecretName(ls *v1alpha1.LeaseService) string { return ls.Name + "-server-tls" }

// ClientSecretName is the name of the Secret with the certificate for the tenant's clients.
func ClientSecretName(ls *v1alpha1.LeaseService) string { return ls.Name + "-client-tls" }

func meta(ls *v1alpha1.LeaseService, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ls.Namespace, Name: name, Labels: Labels(ls)}
}

// ManagedLabels are on every pod that the operator makes, of any kind.
func ManagedLabels() map[string]string { return map[string]string{labelManagedBy: managedBy} }
