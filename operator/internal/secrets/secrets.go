// Package secrets says how the operator's cache holds Secrets, which more than one kind looks at.
package secrets

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/component"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

// Name is the component's name.
const Name = "secrets"

// Component is needed by every component that reads Secrets.
func Component() component.Component {
	return component.Component{
		Name:  Name,
		Cache: map[client.Object]cache.ByObject{&corev1.Secret{}: ByObject()},
		Setup: func(context.Context, ctrl.Manager) error { return nil },
	}
}

// ByObject leaves out the Secrets that no kind has a use for and that are large or many, and of the others what nobody
// looks at.
func ByObject() cache.ByObject {
	return cache.ByObject{
		Field: fields.AndSelectors(
			fields.OneTermNotEqualSelector("type", "helm.sh/release.v1"),
			fields.OneTermNotEqualSelector("type", string(corev1.SecretTypeServiceAccountToken)),
			fields.OneTermNotEqualSelector("type", string(corev1.SecretTypeDockerConfigJson)),
		),
		Transform: slim,
	}
}

// slim keeps the data of every Secret, and the metadata of those that are the operator's own: drift is told by it.
func slim(in any) (any, error) {
	obj, ok := in.(*corev1.Secret)
	if !ok {
		return in, nil
	}
	obj.ManagedFields = slices.DeleteFunc(slices.Clone(obj.ManagedFields), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager != reconcile.FieldManager
	})
	if len(obj.ManagedFields) == 0 && !controlledByUs(obj) {
		obj.Annotations, obj.Labels = nil, nil
	}
	return obj, nil
}

func controlledByUs(obj client.Object) bool {
	controller := metav1.GetControllerOfNoCopy(obj)
	return controller != nil && strings.HasPrefix(controller.APIVersion, v1alpha1.GroupVersion.Group+"/")
}
