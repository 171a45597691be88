// Package handover decides how objects change their owner between Pulumi and GitOps (Argo CD or Flux) without being
// deleted, restarted or left alone. It is pure: it takes what was observed and says what comes next, so that a handover
// that was interrupted anywhere goes on by being run again, or turns back by being run the other way.
//
// The way is the same in both directions. Objects are shared first: they are in the stack's state, retained on delete,
// and Argo CD or Flux keep the same content beside it. Once the new owner has proved to hold them, the old one lets go:
//
//	to GitOps:  share, adopt, declare, settle (the objects leave the state), release
//	to Pulumi:  share, declare, settle (what keeps them is deleted), withdrawn, release
//
// At every moment each object is in the stack's state, or kept from Git, or both.
package handover

import "errors"

// Target is who shall own the objects.
type Target string

// The owners.
const (
	Pulumi Target = "pulumi"
	GitOps Target = "gitops"
)

// Step is what is to be done next.
type Step string

// The steps. Each may be repeated.
const (
	// StepShare is an update after which the stack has all objects that move, retained on delete, and all objects that
	// make Argo CD or Flux keep them, without cascade.
	StepShare Step = "share"
	// StepAdopt waits until Argo CD or Flux keep the objects, from the very commit that was compared.
	StepAdopt Step = "adopt"
	// StepDeclare writes the new owner into the stack's file.
	StepDeclare Step = "declare"
	// StepSettle is an ordinary update with the new owner: what is no longer the stack's leaves it.
	StepSettle Step = "settle"
	// StepWithdraw waits until nothing in the cluster keeps the objects from Git.
	StepWithdraw Step = "withdraw"
	// StepRelease makes the former owner's field managers let go of the objects.
	StepRelease Step = "release"
	// StepDone says that nothing is left.
	StepDone Step = "done"
)

// View is what was observed of the objects that move.
type View struct {
	// Objects that move, those among them that are in the stack's state, and of these the ones retained on delete.
	Objects, InState, Retained int
	// Unsettled are objects in the state whose mark differs from the one that an ordinary update gives them.
	Unsettled int
	// Begun are objects that are not in the state, and that an update which was killed may have created all the same.
	Begun int
	// Declared says that the stack's file names the new owner.
	Declared bool
	// KeeperShared and KeeperSettled say that the objects of Argo CD or Flux in the state are exactly those that
	// [StepShare] and [StepSettle] leave there; Keeper, that there are any that keep what moves.
	Keeper, KeeperShared, KeeperSettled bool
	// Adopted says that Argo CD or Flux keep every object, from the commit that was compared.
	Adopted bool
	// Keeping counts what keeps objects in the cluster, whether in the state or not: Applications, Kustomizations.
	Keeping int
	// Stale are objects of which the former owner still holds fields.
	Stale int
}

// ErrNothing says that there is nothing to hand over.
var ErrNothing = errors.New("none of the objects is in the stack's state, and nothing keeps them from Git: deploy the stack by pulumi up first")

// Next is the step that comes next.
func Next(target Target, v View) (Step, error) {
	if v.InState == 0 && !v.Keeper {
		return "", ErrNothing
	}
	if target == GitOps {
		return toGitOps(v), nil
	}
	return toPulumi(v), nil
}

func toGitOps(v View) Step {
	droppable := v.Retained == v.InState && (v.KeeperShared || v.KeeperSettled)
	switch {
	case v.InState > 0 && !droppable:
		return StepShare
	// Before anything leaves the state, and again when an update was interrupted while it left.
	case !v.Adopted:
		return StepAdopt
	case !v.Declared:
		return StepDeclare
	case v.InState > 0 || !v.KeeperSettled:
		return StepSettle
	case v.Stale > 0:
		return StepRelease
	default:
		return StepDone
	}
}

func toPulumi(v View) Step {
	switch {
	// What keeps the objects may take them along when it is deleted (cascade), until it has been shared.
	case v.InState < v.Objects || (!v.KeeperSettled && !v.KeeperShared):
		return StepShare
	case !v.Declared:
		return StepDeclare
	case !v.KeeperSettled || v.Unsettled > 0:
		return StepSettle
	// A controller that still runs would take the fields back.
	case v.Keeping > 0:
		return StepWithdraw
	case v.Stale > 0:
		return StepRelease
	default:
		return StepDone
	}
}

// NextToDestroy is the step that comes next before the stack can be destroyed; [StepDone] when nothing is in the way. What is
// Pulumi's alone is not shared first: that would deploy what is missing, as it is after a destruction that was interrupted, and
// whoever destroys a stack may do so because it cannot be deployed.
func NextToDestroy(v View) Step {
	switch {
	case v.InState == 0 && v.Begun == 0 && !v.Keeper:
		return StepDone
	case v.Keeper || v.Keeping > 0:
		return toPulumi(v)
	// An ordinary update, which takes the marks off and finds what the killed one had made: both would stay behind.
	case v.Unsettled > 0 || v.Begun > 0:
		if !v.Declared {
			return StepDeclare
		}
		return StepSettle
	// All has been taken back; what stays in the cluster, such as a CRD, stays without the marks of GitOps.
	case v.InState == v.Objects && v.Stale > 0:
		return StepRelease
	default:
		return StepDone
	}
}

// After is what is observed once the step is done and nothing else happened.
func After(target Target, step Step, v View) View {
	switch step {
	case StepShare:
		v.InState, v.Retained = v.Objects, v.Objects
		v.Keeper, v.KeeperShared, v.KeeperSettled = true, true, false
		v.Keeping, v.Unsettled = max(v.Keeping, 1), v.Objects
	case StepAdopt:
		v.Adopted = true
	case StepDeclare:
		v.Declared = true
	case StepSettle:
		v.KeeperSettled, v.Unsettled, v.Begun = true, 0, 0
		if target == GitOps {
			v.InState, v.Retained = 0, 0
		} else {
			v.Keeper, v.KeeperShared, v.Retained = false, false, 0
		}
		v.Stale = v.Objects
	case StepWithdraw:
		v.Keeping = 0
	case StepRelease:
		v.Stale = 0
	default: // StepDone
	}
	return v
}

// Forecast lists the steps that lead from what was observed to the end.
func Forecast(target Target, v View) ([]Step, error) {
	var steps []Step
	for {
		step, err := Next(target, v)
		if err != nil {
			return nil, err
		}
		if step == StepDone {
			return steps, nil
		}
		steps = append(steps, step)
		v = After(target, step, v)
	}
}
