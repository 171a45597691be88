package handover

import (
	"fmt"
	"strings"
)

// Op is one operation of a previewed update.
type Op struct {
	// Kind is Pulumi's word for it: "same", "create", "update", "delete", "replace" and others.
	Kind string
	// URN and Type of the resource.
	URN, Type string
	// Custom says that the resource has an object; a component has none.
	Custom bool
	// Retained says that, by the state, the object stays when the resource goes.
	Retained bool
	// Changes are the paths of the inputs that an update changes. An update that was killed leaves objects that the next one
	// applies again, with changes or without.
	Changes []string
	// Proven says that applying the object changes nothing in the cluster, whatever the inputs: a dry run showed it.
	Proven bool
}

// Guard says why an update of the step must not be made: each line is an operation that would delete, replace or change an
// object that only changes its owner. Empty: the update is harmless.
func Guard(target Target, step Step, ops []Op) []string {
	var problems []string
	for _, op := range ops {
		if reason := refuse(target, step, op); op.Custom && reason != "" {
			problems = append(problems, fmt.Sprintf("%s %s: %s", op.Kind, shortName(op), reason))
		}
	}
	return problems
}

func refuse(target Target, step Step, op Op) string {
	if strings.HasPrefix(op.Type, "pulumi:") { // the stack itself and its providers
		return ""
	}
	keeper := IsKeeper(op.URN)
	switch op.Kind {
	case "same", "refresh", "read", "read-discard", "create":
		return ""
	case "update":
		if keeper || op.Proven {
			return ""
		}
		return fmt.Sprintf("it would change %v; bring the stack up to date by pulumi up before you hand it over", op.Changes)
	case "delete":
		switch {
		// What keeps objects too: it may still cascade, since only this step takes that off those that it knows of.
		case step == StepShare:
			return "nothing leaves the stack in this step; bring it up to date by pulumi up before you hand it over"
		case keeper:
			return ""
		case target == Pulumi:
			return "only what kept the objects leaves the stack in this step; it would be deleted"
		case !op.Retained:
			return "it is not marked as retained, so it would be deleted from the cluster"
		default:
			return ""
		}
	default:
		return "a handover replaces nothing"
	}
}

// shortName is kind and logical name.
func shortName(op Op) string {
	kind := op.Type[strings.LastIndex(op.Type, ":")+1:]
	return kind + " " + op.URN[strings.LastIndex(op.URN, "::")+2:]
}
