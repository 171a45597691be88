package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// ErrNoCluster says that there is no cluster of that name in the state folder.
var ErrNoCluster = errors.New("no such cluster")

// Cluster is a handle on one cluster. Its methods may be called at the same time; those that change
// the cluster also keep other processes out while they run.
type Cluster struct {
	layout   layout
	settings settings
	self     string

	mu    sync.Mutex // guards state and its file
	state *state

	apiOnce sync.Once
	apiHTTP *http.Client
	apiErr  error
}

// Open returns the cluster of that name; stateDir "" means DefaultStateDir. The cluster may be
// stopped or half started: Status tells. The error is ErrNoCluster when nothing was ever started.
func Open(stateDir, name string) (*Cluster, error) {
	l, err := locate(stateDir, name)
	if err != nil {
		return nil, err
	}
	s, err := loadState(l.state())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %q in %s (start it with `cluster up --name %s`)", ErrNoCluster, name, filepath.Dir(l.folder), name)
	}
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &Cluster{layout: l, state: s, self: self}
	c.settings = settingsOf(s)
	return c, nil
}

// settingsOf joins what is recorded with what the host has.
func settingsOf(s *state) settings {
	return settings{
		binDir: s.BinDir, cniDir: findCNI(), containerd: findContainerd(),
		fastNodeFailure: s.FastNodeFailure, networkPolicy: s.NetworkPolicy,
	}
}

func locate(stateDir, name string) (layout, error) {
	if err := validateName(name); err != nil {
		return layout{}, err
	}
	if stateDir == "" {
		stateDir = DefaultStateDir()
	}
	stateDir, err := filepath.Abs(stateDir)
	if err != nil {
		return layout{}, err
	}
	return layoutOf(stateDir, name), nil
}

// Folder is where everything of the cluster is.
func (c *Cluster) Folder() string { return c.layout.folder }

// Kubeconfig is the path of a kubeconfig with all rights, for clients on the host.
func (c *Cluster) Kubeconfig() string { return c.layout.kubeconfig() }

// Nodes lists the names of the cluster's nodes.
func (c *Cluster) Nodes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return nodeNames(c.state.Nodes)
}

// machines lists the names of all machines, the control plane first.
func (c *Cluster) machines() []string { return append([]string{controlPlane}, c.Nodes()...) }

func (c *Cluster) requireNode(node string) error {
	nodes := c.Nodes()
	if !slices.Contains(nodes, node) {
		return fmt.Errorf("node %q: the cluster has %s", node, strings.Join(nodes, ", "))
	}
	return nil
}

// update changes the state and saves it.
func (c *Cluster) update(change func(*state)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c.state)
	return c.state.save(c.layout.state())
}

// record returns a copy of what is known of a machine.
func (c *Cluster) record(name string) machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.state.machine(name)
	copied := machine{Init: m.Init, Components: map[string]Process{}, Images: map[string]bool{}}
	for name, p := range m.Components {
		copied.Components[name] = p
	}
	for hash := range m.Images {
		copied.Images[hash] = true
	}
	return copied
}

// exclusive runs f with the cluster's lock held, on the state as the last command left it.
func (c *Cluster) exclusive(ctx context.Context, f func() error) error {
	unlock, err := lockFolder(ctx, c.layout.folder)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := loadState(c.layout.state())
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.state = s
	c.mu.Unlock()
	return f()
}
