package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options say what Up starts. The zero value of a field keeps what the cluster was started with
// before, and has the meaning given here for a new one.
type Options struct {
	StateDir string // "": DefaultStateDir
	Name     string // required
	Nodes    int    // 0: one; a running cluster can get more, never fewer
	BinDir   string // "": $HOLDFAST_KUBE_BIN
	// FastNodeFailure has a dead node noticed after 8 s instead of 40, and its pods replaced 4 s
	// later instead of 5 minutes.
	FastNodeFailure bool
	// NetworkPolicy is the program that enforces NetworkPolicies, kube-network-policies of the tool
	// group netpol; "": they are accepted and have no effect.
	NetworkPolicy string
	// Program is the cluster command, which Up starts as init of the machines and as forwarder;
	// "": the running program, which must then be that command.
	Program string
	// Progress is told each step as it is done; nil: nobody is.
	Progress io.Writer
}

// Up starts the cluster, or what of it does not run, and returns when all is healthy. Etcd's data
// and the volumes are kept. On a cluster that is healthy it changes nothing. When it fails or ctx
// ends, what was started keeps running: a second Up goes on, Down takes it away.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	l, err := locate(o.StateDir, o.Name)
	if err != nil {
		return nil, err
	}
	c := &Cluster{layout: l}
	unlock, err := lockFolder(ctx, l.folder)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := c.configure(o); err != nil {
		if !exists(l.state()) { // nothing was ever started
			err = errors.Join(err, os.RemoveAll(l.folder))
		}
		return nil, err
	}
	u := &starter{Cluster: c, progress: o.Progress, begun: time.Now(), kubelets: map[string]time.Time{}, apiReady: make(chan struct{})}
	if u.progress == nil {
		u.progress = io.Discard
	}
	if err := u.up(ctx); err != nil {
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) { // a command that the context killed tells of the signal alone
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return nil, err
	}
	return c, nil
}

// configure merges the options into the recorded state and checks the host.
func (c *Cluster) configure(o Options) error {
	s, err := loadState(c.layout.state())
	if errors.Is(err, fs.ErrNotExist) {
		s = newState()
		s.BootID, err = bootID()
	}
	if err != nil {
		return err
	}
	if o.Nodes != 0 && o.Nodes < s.Nodes {
		return fmt.Errorf("nodes %d: the cluster has %d, and a node can't be taken out: take the cluster down first", o.Nodes, s.Nodes)
	}
	s.Nodes = max(1, s.Nodes, o.Nodes)
	if err := validateNodes(s.Nodes); err != nil {
		return err
	}
	if bin := firstOf(o.BinDir, s.BinDir, os.Getenv("HOLDFAST_KUBE_BIN")); bin != "" {
		if s.BinDir, err = filepath.Abs(bin); err != nil {
			return err
		}
	}
	s.FastNodeFailure = s.FastNodeFailure || o.FastNodeFailure
	if o.NetworkPolicy != "" {
		if s.NetworkPolicy, err = filepath.Abs(o.NetworkPolicy); err != nil {
			return err
		}
	}
	if err := preflight(s.BinDir, s.NetworkPolicy); err != nil {
		return err
	}
	if c.self = o.Program; c.self == "" {
		if c.self, err = os.Executable(); err != nil {
			return err
		}
	}
	c.state = s
	c.settings = settingsOf(s)
	return s.save(c.layout.state())
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// starter is one run of Up.
type starter struct {
	*Cluster
	progress io.Writer
	begun    time.Time
	images   func() error  // makes the images of the cluster's own pods, once
	apiReady chan struct{} // closed when the API server is

	mu       sync.Mutex
	kubelets map[string]time.Time // when this run started a node's kubelet
}

func (u *starter) say(format string, args ...any) {
	fmt.Fprintf(u.progress, "%5.1fs  %s\n", time.Since(u.begun).Seconds(), fmt.Sprintf(format, args...))
}

func (u *starter) up(ctx context.Context) error {
	if u.allAlive() && u.healthy(ctx) == nil {
		u.say("cluster %s is up already", u.layout.name())
		return nil
	}
	if err := u.prepare(ctx); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	u.images = sync.OnceValue(func() error { return u.makeBuiltinImages(groupCtx) })
	group.Go(u.images)
	group.Go(func() error { return u.startControlPlane(groupCtx) })
	for i := 1; i <= u.state.Nodes; i++ {
		group.Go(func() error { return u.startNode(groupCtx, i) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := u.await(ctx, func(ctx context.Context) error { return u.healthy(ctx) }); err != nil {
		return err
	}
	u.say("cluster %s is up: %d node(s) ready; kubeconfig %s", u.layout.name(), u.state.Nodes, u.layout.kubeconfig())
	return nil
}

// prepare makes everything that lies in files, and the networks.
func (u *starter) prepare(ctx context.Context) error {
	loadModules()
	if err := raiseInotify("/proc/sys/fs/inotify/max_user_instances"); err != nil {
		u.say("%v; clusters beside one another may run out of them", err) // a host that may not is enough for one
	}
	if err := ensurePKI(u.layout.pki(), u.state.Nodes, time.Now()); err != nil {
		return err
	}
	if err := u.layout.writeComponentKubeconfigs(u.state.Nodes); err != nil {
		return err
	}
	if err := u.layout.writeControlPlaneConfig(u.settings); err != nil {
		return err
	}
	for _, dir := range []string{u.layout.volumes(), u.layout.etcd()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if !isNetwork(u.layout.network(controlPlane)) { // what runs on is cut off for good
		if err := u.stopMachines(ctx, u.machines()); err != nil {
			return err
		}
	}
	if err := u.ensureControlPlaneNetwork(ctx); err != nil {
		return err
	}
	address, err := u.ensureForward(apiTarget)
	if err != nil {
		return err
	}
	for _, target := range u.forwardTargets() {
		if _, err := u.ensureForward(target); err != nil {
			return err
		}
	}
	return u.layout.writeKubeconfig(u.layout.kubeconfig(), "https://"+address, "admin")
}

func (u *starter) startControlPlane(ctx context.Context) error {
	if err := u.ensureMachine(ctx, controlPlane); err != nil {
		return err
	}
	if err := u.ensureComponents(controlPlane, u.layout.controlPlaneFirst(u.settings)); err != nil {
		return err
	}
	err := u.await(ctx, func(ctx context.Context) error {
		for _, comp := range u.layout.controlPlaneFirst(u.settings) {
			if err := u.probe(ctx, controlPlane, comp); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	u.say("API server is ready")
	close(u.apiReady)
	if err := u.ensureComponents(controlPlane, u.layout.controlPlaneThen(u.settings)); err != nil {
		return err
	}
	return u.await(ctx, u.applyManifests)
}

func (u *starter) startNode(ctx context.Context, i int) error {
	node := nodeName(i)
	if err := writeNodeConfig(u.layout.nodeConfig(u.settings, i)); err != nil {
		return err
	}
	if err := u.ensureNodeNetwork(ctx, i); err != nil {
		return err
	}
	if u.settings.networkPolicy != "" {
		if err := u.ensurePolicyRules(ctx, i); err != nil {
			return err
		}
	}
	if !u.record(node).Init.Alive() {
		// What an earlier life of the node left, of which nothing can be running.
		if err := removeCgroup(u.nodeCgroup(node), 5*time.Second); err != nil {
			return err
		}
	}
	if err := createCgroup(u.nodeCgroup(node)); err != nil {
		return err
	}
	if err := u.ensureMachine(ctx, node); err != nil {
		return err
	}
	if err := u.ensureComponents(node, []component{u.layout.containerd(u.settings, node)}); err != nil {
		return err
	}
	if err := u.await(ctx, func(ctx context.Context) error { return u.containerdAnswers(ctx, node) }); err != nil {
		return err
	}
	if err := u.images(); err != nil {
		return err
	}
	if err := u.importImages(ctx, node); err != nil {
		return err
	}
	// A kubelet that starts without an API server backs off, for up to a minute.
	select {
	case <-u.apiReady:
	case <-ctx.Done():
		return nil // the control plane's part says why
	}
	return u.ensureComponents(node, u.layout.components(u.settings, node))
}

func (c *Cluster) nodeCgroup(node string) string {
	return filepath.Join(cgroupName(c.layout.folder), node)
}

func (u *starter) ensureMachine(ctx context.Context, machine string) error {
	if u.record(machine).Init.Alive() {
		return nil
	}
	return u.startMachine(ctx, machine)
}

// ensureComponents starts those that don't run.
func (u *starter) ensureComponents(machine string, comps []component) error {
	running := u.record(machine).Components
	for _, comp := range comps {
		if running[comp.name].Alive() {
			continue
		}
		if comp.name == "kubelet" {
			u.mu.Lock()
			u.kubelets[machine] = time.Now()
			u.mu.Unlock()
		}
		if err := u.start(machine, comp); err != nil {
			return err
		}
	}
	return nil
}

// containerdAnswers is containerd's health: its socket takes connections.
func (u *starter) containerdAnswers(ctx context.Context, node string) error {
	init := u.record(node).Init
	return u.alive(node, u.layout.containerd(u.settings, node), func() error {
		socket := fmt.Sprintf("/proc/%d/root/run/containerd/containerd.sock", init.PID)
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
