package leaseservice

import (
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// reviewsTokens tells whether the pods ask the API server whose tokens are.
func reviewsTokens(ls *v1alpha1.LeaseService) bool {
	return ls.Spec.Auth != nil && ls.Spec.Auth.TokenReview
}

// authArgs are the flags that say who may call.
//
// The operator, which reads the status of the pods, is always let in. (With certificates of somebody else it shows the
// replicas' own.) A ServiceAccount token is good for any service of the cluster that takes its audience, so without a list the
// accounts of other namespaces are not let in.
func authArgs(ls *v1alpha1.LeaseService, mode v1alpha1.TLSMode) []string {
	auth := ls.Spec.Auth
	if auth == nil {
		return nil
	}
	var out []string
	if auth.TokenReview {
		out = append(out, "--token-review")
	}
	allowed := slices.Clone(auth.AllowedIdentities)
	if len(allowed) == 0 {
		allowed = append(allowed, Identity(ls, "client").String())
		if auth.TokenReview {
			allowed = append(allowed, "system:serviceaccount:"+ls.Namespace+":*")
		}
	}
	if mode == v1alpha1.TLSManaged {
		allowed = append(allowed, Identity(ls, "operator").String())
	}
	slices.Sort(allowed)
	return append(out, "--allowed-identities="+strings.Join(slices.Compact(allowed), ","))
}

// apiServerPorts are what API servers listen on, behind the translation of Service addresses.
func apiServerPorts() []networkingv1.NetworkPolicyPort {
	return []networkingv1.NetworkPolicyPort{tcp(443), tcp(6443)}
}
