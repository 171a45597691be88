package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// Status is what a cluster looks like now.
type Status struct {
	Name       string
	Folder     string
	Kubeconfig string
	Parts      []Part
}

// Part is a process of the cluster, a node, or the name service.
type Part struct {
	Name    string
	PID     int // 0 for what is no process
	Healthy bool
	Detail  string // where it listens, or what is wrong
}

// Healthy says whether every part is.
func (s Status) Healthy() bool {
	return !slices.ContainsFunc(s.Parts, func(p Part) bool { return !p.Healthy })
}

// Print writes the status as a table.
func (s Status) Print(w io.Writer) error {
	fmt.Fprintf(w, "cluster %s in %s\nkubeconfig %s\n\n", s.Name, s.Folder, s.Kubeconfig)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PART\tPID\tSTATE\tDETAIL")
	for _, p := range s.Parts {
		pid, state := "-", "down"
		if p.PID != 0 {
			pid = fmt.Sprint(p.PID)
		}
		if p.Healthy {
			state = "up"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", p.Name, pid, state, p.Detail)
	}
	return t.Flush()
}

// Status asks every part of the cluster at the same time how it is, and gives them three seconds.
func (c *Cluster) Status(ctx context.Context) Status {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var checks []func() Part
	for _, machine := range c.machines() {
		checks = append(checks, func() Part { return c.machineStatus(machine) })
		for _, comp := range c.layout.components(c.settings, machine) {
			checks = append(checks, func() Part { return c.componentStatus(ctx, machine, comp) })
		}
	}
	c.mu.Lock()
	for _, f := range c.state.Forwards {
		part := Part{Name: forwardName(f.Target), PID: f.Process.PID, Healthy: f.Process.Alive(), Detail: f.Listen}
		checks = append(checks, func() Part { return part })
	}
	c.mu.Unlock()
	checks = append(checks, func() Part { return asPart("cluster DNS", c.dnsAnswers(ctx)) })
	parts := make([]Part, len(checks))
	var all sync.WaitGroup
	for i, check := range checks {
		all.Go(func() { parts[i] = check() })
	}
	var nodes []Part
	all.Go(func() { nodes = c.nodeStatus(ctx) })
	all.Wait()
	return Status{Name: c.layout.name(), Folder: c.layout.folder, Kubeconfig: c.layout.kubeconfig(), Parts: slices.Concat(parts, nodes)}
}

func asPart(name string, err error) Part {
	if err != nil {
		return Part{Name: name, Detail: firstLine(err)}
	}
	return Part{Name: name, Healthy: true}
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

func (c *Cluster) machineStatus(machine string) Part {
	init := c.record(machine).Init
	p := Part{Name: logName(machine, "machine"), PID: init.PID, Healthy: init.Alive() && isNetwork(c.layout.network(machine))}
	if machine != controlPlane && c.partitioned(machine) {
		p.Healthy, p.Detail = false, "cut off from the network"
	}
	return p
}

func (c *Cluster) componentStatus(ctx context.Context, machine string, comp component) Part {
	p := asPart(logName(machine, comp.name), c.probe(ctx, machine, comp))
	p.PID = c.record(machine).Components[comp.name].PID
	return p
}

func (c *Cluster) nodeStatus(ctx context.Context) []Part {
	ready, err := c.readyNodes(ctx)
	var parts []Part
	for _, node := range c.Nodes() {
		p := Part{Name: "node " + node, Healthy: ready[node].ready, Detail: "Ready"}
		switch {
		case err != nil:
			p.Detail = firstLine(err)
		case !p.Healthy:
			p.Detail = "NotReady: " + ready[node].message
		}
		parts = append(parts, p)
	}
	return parts
}

// Logs lists the components that have a log and the logs' paths.
func (c *Cluster) Logs() (map[string]string, error) {
	logs := map[string]string{}
	err := filepath.WalkDir(c.layout.logs(), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(c.layout.logs(), path)
		if err != nil {
			return err
		}
		logs[strings.TrimSuffix(strings.TrimPrefix(rel, controlPlane+"/"), ".log")] = path
		return nil
	})
	return logs, err
}
