package components

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/holdfast-io/holdfast/components/kube"
)

// nonRoot is the user and group that all images of the project run as.
const nonRoot int64 = 65532

const dnsPort = 53

// restrictedNamespace is a namespace whose pods have to meet the Pod Security Standard "restricted".
func restrictedNamespace(name string, labels map[string]string) *corev1.Namespace {
	all := map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted",
		"pod-security.kubernetes.io/audit":   "restricted",
		"pod-security.kubernetes.io/warn":    "restricted",
	}
	for key, value := range labels {
		all[key] = value
	}
	return &corev1.Namespace{
		TypeMeta:   kube.Type(corev1.SchemeGroupVersion, "Namespace"),
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all},
	}
}

func restrictedPod() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsNonRoot:   new(true),
		RunAsUser:      new(nonRoot),
		RunAsGroup:     new(nonRoot),
		FSGroup:        new(nonRoot),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

func restrictedContainer() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

func httpProbe(path, port string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:   corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(port)}},
		PeriodSeconds:  5,
		TimeoutSeconds: 3,
	}
}

// networkPolicy is a policy of the given types; a type without rules denies everything.
func networkPolicy(meta metav1.ObjectMeta, spec networkingv1.NetworkPolicySpec) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta:   kube.Type(networkingv1.SchemeGroupVersion, "NetworkPolicy"),
		ObjectMeta: meta,
		Spec:       spec,
	}
}

func policyPort(protocol corev1.Protocol, port int32) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: new(protocol), Port: new(intstr.FromInt32(port))}
}

// namespacesNamed selects all pods of the given namespaces, by the label that the API server puts on each of them.
func namespacesNamed(names ...string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: names,
		}},
	}}
}
