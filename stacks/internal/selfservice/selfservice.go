// Package selfservice is the contract between the platform stack and the stacks of teams that keep their tenants by
// themselves: what the one exports and the others read.
package selfservice

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/components"
)

// Output is the name of the platform stack's output: the spaces by name.
const Output = "selfService"

// Space is a namespace that the platform prepared for a team.
type Space struct {
	// Namespace of the space.
	Namespace string `json:"namespace"`
	// EtcdEndpoints that a tenant gets who names none. None: its one replica runs an etcd of its own.
	EtcdEndpoints []string `json:"etcdEndpoints,omitempty"`
	// Quota of the namespace.
	Quota corev1.ResourceList `json:"quota,omitempty"`
	// Limits of each LeaseService.
	Limits components.TenantLimits `json:"limits"`
}

// Encode returns the spaces as the value of an output: map[string]any, []any, string, bool and float64.
func Encode(spaces map[string]Space) (any, error) {
	data, err := json.Marshal(spaces)
	if err != nil {
		return nil, fmt.Errorf("encode the output %s: %w", Output, err)
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return nil, fmt.Errorf("decode the output %s: %w", Output, err)
	}
	return value, nil
}

// Decode reads the space of that name from the value of the output.
func Decode(value any, name string) (*Space, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode the platform's output %s: %w", Output, err)
	}
	var spaces map[string]Space
	if err := json.Unmarshal(data, &spaces); err != nil {
		return nil, fmt.Errorf("read the platform's output %s: %w", Output, err)
	}
	space, ok := spaces[name]
	if !ok {
		return nil, &UnknownSpaceError{Name: name, Known: slices.Sorted(maps.Keys(spaces))}
	}
	return &space, nil
}

// UnknownSpaceError says that the platform has no space of that name.
type UnknownSpaceError struct {
	Name  string
	Known []string
}

// Error names the spaces that there are.
func (e *UnknownSpaceError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("%q is no space of the platform, which has none: its owner adds one to holdfast:selfService", e.Name)
	}
	return fmt.Sprintf("%q is no space of the platform; there are: %s", e.Name, strings.Join(e.Known, ", "))
}

// Undeclared returns the compute resources that the quota counts and the pods do not declare, such as "limits.memory":
// Kubernetes refuses such pods.
func Undeclared(quota corev1.ResourceList, resources corev1.ResourceRequirements) []string {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(quota)) {
		side, resource, found := strings.Cut(string(name), ".")
		declared := resources.Requests
		switch {
		case found && side == "limits":
			declared = resources.Limits
		case found && side == "requests":
		case name == corev1.ResourceCPU || name == corev1.ResourceMemory:
			side, resource = "requests", string(name)
		default:
			continue
		}
		if resource != string(corev1.ResourceCPU) && resource != string(corev1.ResourceMemory) {
			continue
		}
		_, ok := declared[corev1.ResourceName(resource)]
		if side == "requests" && !ok {
			_, ok = resources.Limits[corev1.ResourceName(resource)] // a request defaults to the limit
		}
		if !ok {
			missing = append(missing, side+"."+resource)
		}
	}
	return missing
}
