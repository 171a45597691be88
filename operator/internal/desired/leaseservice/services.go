package leaseservice

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// The names of the ports, which the Services refer to.
const (
	portGRPC    = "grpc"
	portMetrics = "metrics"
	portHealth  = "health"
)

// ServiceAccount builds the account that the pods run as. It has no permissions and no token, unless tokens are reviewed: a
// lease service talks to the API server for nothing else, and the namespace's default account might have been given some.
func ServiceAccount(ls *v1alpha1.LeaseService) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:                     metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta:                   meta(ls, ServiceAccountName(ls)),
		AutomountServiceAccountToken: new(false),
	}
}

// PeersService builds the headless Service by which replicas find each other and a scraper finds every replica.
// It publishes pods that are not ready: a replica has to reach the others before it can become ready itself.
// Metrics are here and not on the client Service, since a scrape through a load balancer reads a random replica.
func PeersService(ls *v1alpha1.LeaseService) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta(ls, PeersName(ls)),
		Spec: corev1.ServiceSpec{
			Type:                     corev1.ServiceTypeClusterIP,
			ClusterIP:                corev1.ClusterIPNone,
			PublishNotReadyAddresses: true,
			Selector:                 SelectorLabels(ls.Name),
			Ports:                    []corev1.ServicePort{grpcPort(), metricsPort()},
		},
	}
}

// ClientService builds the Service that clients connect to: ready pods only. Without TLS it says that the protocol is
// HTTP/2 in plain text, which proxies cannot guess; with TLS the two ends agree by themselves.
func ClientService(ls *v1alpha1.LeaseService, mode v1alpha1.TLSMode) *corev1.Service {
	port := grpcPort()
	if mode == v1alpha1.TLSDisabled {
		port.AppProtocol = new("kubernetes.io/h2c")
	}
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta(ls, ServiceName(ls)),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: SelectorLabels(ls.Name),
			Ports:    []corev1.ServicePort{port},
		},
	}
}

func grpcPort() corev1.ServicePort {
	return corev1.ServicePort{
		Name:       portGRPC,
		Port:       v1alpha1.LeaseServicePort,
		TargetPort: intstr.FromString(portGRPC),
		Protocol:   corev1.ProtocolTCP,
	}
}

func metricsPort() corev1.ServicePort {
	return corev1.ServicePort{
		Name:       portMetrics,
		Port:       v1alpha1.LeaseServiceMetricsPort,
		TargetPort: intstr.FromString(portMetrics),
		Protocol:   corev1.ProtocolTCP,
	}
}
