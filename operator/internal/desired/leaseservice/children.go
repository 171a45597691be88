package leaseservice

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// Object is an API object of any kind.
type Object interface {
	metav1.Object
	runtime.Object
}

// Children returns every child that the spec wants, in the order in which they are to be applied. What a pod refers to
// comes before the StatefulSet, so that no pod starts without its policy, its account or its name in the DNS. The budget
// comes after it: an operator that was stopped for a while, and wakes up with an old number of replicas, is refused by
// the StatefulSet, which has changed since, before it makes a budget that nobody wants any more.
// The certificates are those of mode Managed, and are not looked at in another; login may be nil. The error is ErrNoImage or ErrNoIssuer.
func Children(ls *v1alpha1.LeaseService, settings Settings, certificates Certificates, login *Login) ([]Object, error) {
	mode, err := TLSMode(ls, settings)
	if err != nil {
		return nil, err
	}
	set, err := StatefulSet(ls, settings, login)
	if err != nil {
		return nil, err
	}
	children := []Object{ServiceAccount(ls), PeersService(ls), ClientService(ls, mode)}
	if mode == v1alpha1.TLSManaged {
		children = append(children, secret(ls, ServerSecretName(ls), certificates.Server), secret(ls, ClientSecretName(ls), certificates.Client))
	}
	if login != nil {
		children = append(children, loginSecret(ls, login))
	}
	if policy := NetworkPolicy(ls, settings); policy != nil {
		children = append(children, policy)
	}
	children = append(children, set)
	if budget := PodDisruptionBudget(ls); budget != nil {
		children = append(children, budget)
	}
	return children, nil
}
