// Package component is the core of the operator binary: everything it runs is a Component.
//
// A controller, a webhook, a collector and an admission handler are the same kind of thing here: a name, the
// names it depends on, and a setup against the controller-runtime manager. The core puts components in the order
// of their dependencies, leaves out the disabled ones, sets them up, starts them, and stops them in reverse.
package component

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Component is one thing that the operator runs. Only Name and Setup are required.
type Component struct {
	// Name is unique in the binary, and is what a config file disables the component by. Lower case, with
	// dashes: "lease-service".
	Name string

	// DependsOn names the components that must be set up and started before this one, and stopped after it.
	DependsOn []string

	// AddToScheme adds the types that the component reads or writes. Nil adds none. It is called before the
	// manager exists.
	AddToScheme func(*runtime.Scheme) error

	// Cache says how the manager's cache holds types that the component reads: selectors, and transforms that
	// drop what it never looks at. The key is an empty object of the type. Two components may not speak for one
	// type. It is read before the manager exists.
	Cache map[client.Object]cache.ByObject

	// Setup registers controllers, webhooks and runnables with the manager, which has not started yet. It
	// returns quickly: whatever runs on is a runnable of the manager's.
	Setup func(ctx context.Context, mgr ctrl.Manager) error

	// Start opens what the component needs while the manager runs and the manager cannot open itself, such as a
	// pool of connections. It returns once that is open; ctx bounds the opening only. Nil does nothing.
	Start func(ctx context.Context) error

	// Stop closes what Start opened, before ctx ends. It is called once, after the manager has stopped, and only
	// when Start succeeded (or is nil). Nil does nothing.
	Stop func(ctx context.Context) error
}
