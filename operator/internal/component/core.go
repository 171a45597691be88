package component

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Core holds the enabled components in the order of their dependencies. It is not safe for concurrent use.
type Core struct {
	components []Component
	started    int // the first so many have been started
}

// New selects and orders components: a component comes after those it depends on, and otherwise where it stands in the
// list. Disabled names components to leave out.
//
// The error names everything that is wrong with the list: a name that is missing, there twice, or depended on or disabled
// without being there; a component that is disabled while another needs it; and a cycle, by its members.
func New(components []Component, disabled []string) (*Core, error) {
	byName := map[string]Component{}
	var faults []error
	for i, c := range components {
		switch _, twice := byName[c.Name]; {
		case c.Name == "":
			faults = append(faults, fmt.Errorf("component number %d has no name", i+1))
		case c.Setup == nil:
			faults = append(faults, fmt.Errorf("component %q has no setup", c.Name))
		case twice:
			faults = append(faults, fmt.Errorf("two components have the name %q", c.Name))
		}
		byName[c.Name] = c
	}
	for _, name := range disabled {
		if _, known := byName[name]; !known {
			faults = append(faults, fmt.Errorf("component %q cannot be disabled: there is none of that name, only %s", name, list(slices.Sorted(maps.Keys(byName)))))
		}
	}
	var enabled []Component
	for _, c := range components {
		if !slices.Contains(disabled, c.Name) {
			enabled = append(enabled, c)
		}
	}
	for _, c := range enabled {
		for _, need := range c.DependsOn {
			if _, known := byName[need]; !known {
				faults = append(faults, fmt.Errorf("component %q depends on %q, which there is not", c.Name, need))
			} else if slices.Contains(disabled, need) {
				faults = append(faults, fmt.Errorf("component %q cannot be disabled: %q needs it; disable that too, or neither", need, c.Name))
			}
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	ordered, err := order(enabled)
	if err != nil {
		return nil, err
	}
	return &Core{components: ordered}, nil
}

// order sorts by dependency: again and again it takes the first component of the list all of whose needs were taken. That
// is quadratic, and stable without a tie-break; there are a dozen components.
func order(components []Component) ([]Component, error) {
	ordered := make([]Component, 0, len(components))
	taken := map[string]bool{}
	for len(ordered) < len(components) {
		next := slices.IndexFunc(components, func(c Component) bool {
			return !taken[c.Name] && !slices.ContainsFunc(c.DependsOn, func(need string) bool { return !taken[need] })
		})
		if next < 0 {
			return nil, fmt.Errorf("components depend on each other in a circle: %s", strings.Join(circle(components, taken), " -> "))
		}
		taken[components[next].Name] = true
		ordered = append(ordered, components[next])
	}
	return ordered, nil
}

// circle finds a circle among the components that were not taken. Each of them needs another one of them, so following the
// needs comes back somewhere.
func circle(components []Component, taken map[string]bool) []string {
	needs := map[string][]string{}
	var at string
	for _, c := range components {
		needs[c.Name] = c.DependsOn
		if at == "" && !taken[c.Name] {
			at = c.Name
		}
	}
	var path []string
	for !slices.Contains(path, at) {
		path = append(path, at)
		open := slices.IndexFunc(needs[at], func(need string) bool { return !taken[need] })
		at = needs[at][open]
	}
	return append(path[slices.Index(path, at):], at)
}

func list(names []string) string {
	if len(names) == 0 {
		return "an empty list"
	}
	return strings.Join(names, ", ")
}

// Names returns the names of the enabled components, in order.
func (c *Core) Names() []string {
	names := make([]string, 0, len(c.components))
	for _, each := range c.components {
		names = append(names, each.Name)
	}
	return names
}

// AddToScheme adds the types of all components.
func (c *Core) AddToScheme(scheme *runtime.Scheme) error {
	for _, each := range c.components {
		if each.AddToScheme == nil {
			continue
		}
		if err := each.AddToScheme(scheme); err != nil {
			return fmt.Errorf("component %q: types: %w", each.Name, err)
		}
	}
	return nil
}

// Cache returns what the components say about the manager's cache. Two that speak for one type are an error.
func (c *Core) Cache() (map[client.Object]cache.ByObject, error) {
	all := map[client.Object]cache.ByObject{}
	speaker := map[string]string{}
	for _, each := range c.components {
		for obj, options := range each.Cache {
			kind := fmt.Sprintf("%T", obj)
			if other, taken := speaker[kind]; taken {
				return nil, fmt.Errorf("components %q and %q both say how the cache holds %s", other, each.Name, kind)
			}
			speaker[kind] = each.Name
			all[obj] = options
		}
	}
	return all, nil
}

// Setup sets all components up, in order. The first that fails ends it.
func (c *Core) Setup(ctx context.Context, mgr ctrl.Manager) error {
	for _, each := range c.components {
		if err := each.Setup(ctx, mgr); err != nil {
			return fmt.Errorf("component %q: set up: %w", each.Name, err)
		}
	}
	return nil
}

// Start starts all components, in order. When one fails, Stop stops those before it.
func (c *Core) Start(ctx context.Context) error {
	for _, each := range c.components[c.started:] {
		if each.Start != nil {
			if err := each.Start(ctx); err != nil {
				return fmt.Errorf("component %q: start: %w", each.Name, err)
			}
		}
		c.started++
	}
	return nil
}

// Stop stops the components that were started, in reverse order, and returns all errors, joined. Every component is told
// to stop, also when ctx has ended; one that does not return by then is left behind, named in the error, and the
// next is told.
func (c *Core) Stop(ctx context.Context) error {
	var faults []error
	for ; c.started > 0; c.started-- {
		each := c.components[c.started-1]
		if each.Stop == nil {
			continue
		}
		if err := within(ctx, each.Stop); err != nil {
			faults = append(faults, fmt.Errorf("component %q: stop: %w", each.Name, err))
		}
	}
	return errors.Join(faults...)
}

// within calls stop and returns when it does, or when ctx ends.
func within(ctx context.Context, stop func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- stop(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	default:
		return fmt.Errorf("did not end in time: %w", ctx.Err())
	}
}
