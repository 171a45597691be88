package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// errEnded says that a component's process is gone; waiting for it is no use.
var errEnded = errors.New("process has ended")

// await tries until check succeeds, ctx ends, or a component turns out to have ended.
func (u *starter) await(ctx context.Context, check func(context.Context) error) error {
	for {
		err := check(ctx)
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return fmt.Errorf("interrupted (a second up goes on, down removes what was started): %w", ctx.Err())
			}
			return fmt.Errorf("gave up after %s: %w\nlast: %w", time.Since(u.begun).Round(time.Second), context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// alive runs a health check of a component, unless that has ended, and puts its log beside errors.
func (c *Cluster) alive(machine string, comp component, check func() error) error {
	fail := func(err error) error {
		return &ComponentError{Machine: machine, Component: comp.name, Log: c.layout.log(machine, comp.name), Err: err}
	}
	if !c.record(machine).Components[comp.name].Alive() {
		return fail(errEnded)
	}
	if err := check(); err != nil {
		return fail(fmt.Errorf("not healthy: %w", err))
	}
	return nil
}

// probe checks one component.
func (c *Cluster) probe(ctx context.Context, machine string, comp component) error {
	return c.alive(machine, comp, func() error { return c.checkHealth(ctx, machine, comp) })
}

// allAlive says whether every process that should be there is.
func (u *starter) allAlive() bool {
	for _, machine := range u.machines() {
		if !isNetwork(u.layout.network(machine)) {
			return false
		}
		record := u.record(machine)
		if !record.Init.Alive() {
			return false
		}
		for _, comp := range u.layout.components(u.settings, machine) {
			if !record.Components[comp.name].Alive() {
				return false
			}
		}
	}
	for _, target := range append(u.forwardTargets(), apiTarget) {
		if !u.findForward(target).Process.Alive() {
			return false
		}
	}
	return true
}

// healthy checks everything at once: components, nodes, the name server, the storage class's
// controller, and that pods can be made.
func (u *starter) healthy(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for _, machine := range u.machines() {
		for _, comp := range u.layout.components(u.settings, machine) {
			group.Go(func() error { return u.probe(ctx, machine, comp) })
		}
	}
	group.Go(func() error { return u.nodesReady(ctx) })
	group.Go(func() error { return u.dnsAnswers(ctx) })
	group.Go(func() error {
		// Without it no pod is admitted to the namespace.
		return u.call(ctx, "GET", "/api/v1/namespaces/default/serviceaccounts/default", nil, nil)
	})
	return group.Wait()
}

// nodesReady asks for a report that is newer than the kubelet's start: after a crash the API still
// has the last one of the kubelet before.
func (u *starter) nodesReady(ctx context.Context) error {
	ready, err := u.readyNodes(ctx)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, node := range u.Nodes() {
		condition, ok := ready[node]
		switch {
		case !ok:
			return fmt.Errorf("node %s has not registered", node)
		case !condition.ready:
			return fmt.Errorf("node %s is not ready: %s", node, condition.message)
		case condition.heartbeat.Before(u.kubelets[node].Truncate(time.Second)):
			return fmt.Errorf("node %s has not reported since it was started", node)
		}
	}
	return nil
}

// dnsAnswers checks the way of a name through service translation, pod network and CoreDNS.
func (c *Cluster) dnsAnswers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := c.lookup(ctx, "kubernetes.default.svc"); err != nil {
		return fmt.Errorf("cluster DNS: %w", err)
	}
	return nil
}
