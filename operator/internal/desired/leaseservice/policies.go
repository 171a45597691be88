package leaseservice

import (
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// PodDisruptionBudget builds the budget of voluntary evictions: one pod at a time.
//
// A single replica gets none. A budget that forbade its eviction would block the drain of its node for ever, and one
// that allowed it would say nothing. Pods that are not ready may always be evicted: they serve nobody, and a budget
// spent on a broken pod would block the drain of a node that has nothing to do with it.
func PodDisruptionBudget(ls *v1alpha1.LeaseService) *policyv1.PodDisruptionBudget {
	if Replicas(ls) < 2 {
		return nil
	}
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: meta(ls, ls.Name),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable:             new(intstr.FromInt32(1)),
			Selector:                   &metav1.LabelSelector{MatchLabels: SelectorLabels(ls.Name)},
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
}

// NetworkPolicy builds the policy that turns every other connection of the pods away, or nil when the spec wants none.
//
// In: pods of the same namespace, the replicas among them; the operator, which reads the status of each pod; and
// spec.allowedClients. Probes need no rule: a NetworkPolicy never cuts a pod off from the node that it runs on, and
// the kubelet probes from there. A rule for them would have to name node addresses, which no selector can.
//
// Out: the DNS, the ports of the etcd endpoints, those of API servers when tokens are reviewed, and the other replicas. The ports are open to any address, because an
// etcd may be outside of the cluster and a DNS cache may be on the node. A policy is enforced behind the translation
// of Service addresses, so an etcd Service must have the port of its pods.
func NetworkPolicy(ls *v1alpha1.LeaseService, settings Settings) *networkingv1.NetworkPolicy {
	if ls.Spec.NetworkPolicy == v1alpha1.NetworkPolicyNone {
		return nil
	}
	served := []networkingv1.NetworkPolicyPort{tcp(v1alpha1.LeaseServicePort), tcp(v1alpha1.LeaseServiceMetricsPort)}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: meta(ls, ls.Name),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: SelectorLabels(ls.Name)},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: clients(ls, settings), Ports: served}},
			Egress:      egress(ls),
		},
	}
}

func clients(ls *v1alpha1.LeaseService, settings Settings) []networkingv1.NetworkPolicyPeer {
	peers := []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}
	if settings.OperatorNamespace != "" && settings.OperatorNamespace != ls.Namespace {
		peers = append(peers, networkingv1.NetworkPolicyPeer{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: settings.OperatorNamespace}},
		})
	}
	for _, client := range ls.Spec.AllowedClients {
		peers = append(peers, networkingv1.NetworkPolicyPeer{
			NamespaceSelector: client.NamespaceSelector.DeepCopy(),
			PodSelector:       client.PodSelector.DeepCopy(),
		})
	}
	return peers
}

func egress(ls *v1alpha1.LeaseService) []networkingv1.NetworkPolicyEgressRule {
	rules := []networkingv1.NetworkPolicyEgressRule{
		{Ports: []networkingv1.NetworkPolicyPort{udp(53), tcp(53)}},
		{
			To:    []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: SelectorLabels(ls.Name)}}},
			Ports: []networkingv1.NetworkPolicyPort{tcp(v1alpha1.LeaseServicePort)},
		},
	}
	if ports := etcdPorts(ls.Spec.EtcdEndpoints); len(ports) > 0 {
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{Ports: ports})
	}
	if reviewsTokens(ls) {
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{Ports: apiServerPorts()})
	}
	return rules
}

// etcdPorts returns the distinct ports of the endpoints, ascending. The schema lets no other endpoint through than
// one with a port; an endpoint without a valid one opens nothing.
func etcdPorts(endpoints []string) []networkingv1.NetworkPolicyPort {
	var numbers []int32
	for _, endpoint := range endpoints {
		parsed, err := url.Parse(endpoint)
		if err != nil {
			continue
		}
		number, err := strconv.ParseInt(parsed.Port(), 10, 32)
		if err != nil || number < 1 || number > 65535 {
			continue
		}
		numbers = append(numbers, int32(number))
	}
	slices.Sort(numbers)
	var ports []networkingv1.NetworkPolicyPort
	for _, number := range slices.Compact(numbers) {
		ports = append(ports, tcp(number))
	}
	return ports
}

func tcp(port int32) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(port))}
}

func udp(port int32) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: new(corev1.ProtocolUDP), Port: new(intstr.FromInt32(port))}
}
