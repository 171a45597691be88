// Package v1alpha1 holds the first version of the kinds of the API group dist.system.
//
// +kubebuilder:object:generate=true
// +groupName=dist.system
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version that every kind of this package is served under.
var GroupVersion = schema.GroupVersion{Group: "dist.system", Version: "v1alpha1"}

// AddToScheme adds the kinds of this package to a scheme. It fails only for a scheme that has other types under
// the same names.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&LeaseService{}, &LeaseServiceList{},
		&ZooKeeperConfig{}, &ZooKeeperConfigList{},
		&ReleaseGuard{}, &ReleaseGuardList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
