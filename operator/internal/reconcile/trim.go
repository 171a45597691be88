package reconcile

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Trim returns the transform of a cache that keeps what a Reconciler needs of children and no more. It is meant for all
// types whose component asks for nothing else:
//
//   - An object of one of the group's own kinds is kept, without managedFields.
//   - A child (one of the group's kinds controls it, or this operator applied it) is kept with the managedFields of this
//     operator, by which drift is told.
//   - Of everything else only the metadata is kept that says whose it is. It must be there at all, because a
//     foreign object that has a child's name must be seen; a selector would hide it.
func Trim(scheme *runtime.Scheme, group string) toolscache.TransformFunc {
	return func(in any) (any, error) {
		obj, ok := in.(client.Object)
		if !ok {
			return in, nil
		}
		gvk, err := apiutil.GVKForObject(obj, scheme)
		if err != nil || gvk.Group == group {
			obj.SetManagedFields(nil)
			return obj, nil
		}
		own := slices.DeleteFunc(slices.Clone(obj.GetManagedFields()), func(e metav1.ManagedFieldsEntry) bool { return e.Manager != FieldManager })
		if len(own) == 0 && !controlledBy(obj, group) {
			return identityOf(obj, gvk, scheme), nil
		}
		obj.SetManagedFields(own)
		return obj, nil
	}
}

func controlledBy(obj client.Object, group string) bool {
	controller := metav1.GetControllerOfNoCopy(obj)
	return controller != nil && groupKindOf(controller).Group == group
}

// identityOf returns an object of the same type with nothing but what claimOf looks at.
func identityOf(obj client.Object, gvk schema.GroupVersionKind, scheme *runtime.Scheme) client.Object {
	raw, err := scheme.New(gvk)
	if err != nil {
		return obj
	}
	identity, ok := raw.(client.Object)
	if !ok {
		return obj
	}
	identity.SetName(obj.GetName())
	identity.SetNamespace(obj.GetNamespace())
	identity.SetUID(obj.GetUID())
	identity.SetResourceVersion(obj.GetResourceVersion())
	identity.SetDeletionTimestamp(obj.GetDeletionTimestamp())
	identity.SetOwnerReferences(obj.GetOwnerReferences())
	return identity
}
