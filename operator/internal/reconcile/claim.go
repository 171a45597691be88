package reconcile

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// claim says whose an object is that has the name of a desired child. It decides whether we write to it at all.
type claim string

const (
	// claimAbsent: there is none. It is created, by a request that is refused if there is one after all.
	claimAbsent claim = "absent"
	// claimOurs: the owner controls it.
	claimOurs claim = "ours"
	// claimOrphan: nobody controls it, and it was applied by this operator. Its owner was deleted with
	// --cascade=orphan and made again, or restored from a backup: it is adopted.
	claimOrphan claim = "orphan"
	// claimPredecessor: an earlier object of the owner's name controls it, and garbage collection will remove
	// it. It must not be adopted: it would be collected all the same.
	claimPredecessor claim = "predecessor"
	// claimLeaving: it is ours, and is being deleted. It is made anew once it is gone.
	claimLeaving claim = "leaving"
	// claimForeign: it is somebody else's. It is never touched.
	claimForeign claim = "foreign"
)

// claimOf decides whose live is. Nil is claimAbsent.
func claimOf(owner client.Object, kind schema.GroupKind, live client.Object) claim {
	if live == nil {
		return claimAbsent
	}
	controller := metav1.GetControllerOfNoCopy(live)
	switch {
	case controller == nil && ownEntry(live.GetManagedFields()) == nil:
		return claimForeign
	case controller == nil:
		return leavingOr(live, claimOrphan)
	case controller.UID == owner.GetUID():
		return leavingOr(live, claimOurs)
	case controller.Name == owner.GetName() && groupKindOf(controller) == kind:
		return claimPredecessor
	}
	return claimForeign
}

func leavingOr(live client.Object, other claim) claim {
	if live.GetDeletionTimestamp() != nil {
		return claimLeaving
	}
	return other
}

func groupKindOf(ref *metav1.OwnerReference) schema.GroupKind {
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
}

// ownerInWords says who owns a foreign object.
func ownerInWords(live client.Object) string {
	if controller := metav1.GetControllerOfNoCopy(live); controller != nil {
		return fmt.Sprintf("is controlled by %s %s", controller.Kind, controller.Name)
	}
	return "was not made by this operator"
}
