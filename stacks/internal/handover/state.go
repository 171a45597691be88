package handover

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Resource is a resource of a stack: in its state, or as a program registers it.
type Resource struct {
	// URN identifies it.
	URN string
	// Retained says that its object stays when the resource goes.
	Retained bool
	// Fields of the object.
	Fields map[string]any
}

// IsKeeper reports whether a resource is one of those that make Argo CD or Flux keep something: a part of the component for it.
func IsKeeper(urn string) bool {
	return strings.Contains(urn, "::"+keeperComponent+"$") || strings.Contains(urn, "$"+keeperComponent+"$")
}

const keeperComponent = "holdfast:index:GitOpsHandover"

// State is what a stack's exported deployment holds.
type State struct {
	// Resources of providers; components have no object, and are left out.
	Resources []Resource
	// Pending counts the operations that an update began and, being killed, did not finish.
	Pending int
	// Begun are the URNs of what it was creating.
	Begun []string
}

// ParseState reads an exported deployment.
func ParseState(deployment json.RawMessage) (State, error) {
	var exported struct {
		Resources []struct {
			URN            string         `json:"urn"`
			Custom         bool           `json:"custom"`
			Delete         bool           `json:"delete"`
			RetainOnDelete bool           `json:"retainOnDelete"`
			Inputs         map[string]any `json:"inputs"`
		} `json:"resources"`
		Pending []struct {
			Type     string `json:"type"`
			Resource struct {
				URN string `json:"urn"`
			} `json:"resource"`
		} `json:"pending_operations"`
	}
	if len(deployment) > 0 {
		if err := json.Unmarshal(deployment, &exported); err != nil {
			return State{}, fmt.Errorf("read the stack's state: %w", err)
		}
	}
	state := State{Pending: len(exported.Pending)}
	for _, res := range exported.Resources {
		if res.Custom && !res.Delete {
			state.Resources = append(state.Resources,
				Resource{URN: res.URN, Retained: res.RetainOnDelete, Fields: res.Inputs})
		}
	}
	for _, operation := range exported.Pending {
		if operation.Type == "creating" {
			state.Begun = append(state.Begun, operation.Resource.URN)
		}
	}
	return state, nil
}

// DropPending returns the deployment without the operations that were begun and not finished. Each of ours can be made
// again: an object is created by server-side apply, whether it exists or not.
func DropPending(deployment json.RawMessage) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(deployment, &fields); err != nil {
		return nil, fmt.Errorf("read the stack's state: %w", err)
	}
	delete(fields, "pending_operations")
	return json.Marshal(fields)
}

// Key is what two URNs of one resource have in common when a program is registered in stacks of different names.
func Key(urn string) string {
	parts := strings.SplitN(urn, "::", 3)
	return parts[len(parts)-1]
}

// Move is what moves, as the program registers it in the two phases that matter.
type Move struct {
	// Objects that move, as an ordinary update registers them when all is Pulumi's.
	Objects []Resource
	// Shared and Settled are the keepers that [StepShare] and [StepSettle] leave in the state.
	Shared, Settled []Resource
	// Others is the path of a field of keepers that is somebody else's, and so not compared. Empty: none is.
	Others []string
}

// ViewState fills in what is seen in the state.
func (m *Move) ViewState(state State) View {
	view := View{Objects: len(m.Objects)}
	byKey := map[string]Resource{}
	begun := map[string]bool{}
	for _, urn := range state.Begun {
		begun[Key(urn)] = true
	}
	var keepers []Resource
	for _, res := range state.Resources {
		byKey[Key(res.URN)] = res
		if IsKeeper(res.URN) {
			keepers = append(keepers, res)
		}
	}
	for _, object := range m.Objects {
		held, ok := byKey[Key(object.URN)]
		if !ok {
			if begun[Key(object.URN)] {
				view.Begun++
			}
			continue
		}
		view.InState++
		if held.Retained {
			view.Retained++
		}
		if held.Retained != object.Retained {
			view.Unsettled++
		}
	}
	view.Keeper = len(keepers) > 0
	view.KeeperShared = m.sameKeepers(keepers, m.Shared)
	view.KeeperSettled = m.sameKeepers(keepers, m.Settled)
	return view
}

func (m *Move) sameKeepers(held, wanted []Resource) bool {
	if len(held) != len(wanted) {
		return false
	}
	byKey := map[string]Resource{}
	for _, res := range held {
		byKey[Key(res.URN)] = res
	}
	for _, want := range wanted {
		have, ok := byKey[Key(want.URN)]
		if !ok || !m.sameFields(have.Fields, want.Fields) {
			return false
		}
	}
	return true
}

// sameFields compares what a program registers with what the state has, which holds fields of the provider's own as well.
func (m *Move) sameFields(have, want map[string]any) bool {
	normal := func(fields map[string]any) map[string]any {
		// Numbers of the two sides differ in their types, but not in JSON.
		encoded, err := json.Marshal(fields)
		if err != nil {
			return nil
		}
		var decoded map[string]any
		if err := json.Unmarshal(encoded, &decoded); err != nil {
			return nil
		}
		maps.DeleteFunc(decoded, func(key string, _ any) bool { return strings.HasPrefix(key, "__") })
		if len(m.Others) > 0 {
			unstructured.RemoveNestedField(decoded, m.Others...)
		}
		return decoded
	}
	return reflect.DeepEqual(normal(have), normal(want))
}
