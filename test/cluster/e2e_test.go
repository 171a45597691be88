//go:build e2e

package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// suite is what the parts of the test share: a cluster of two nodes and one of a single node.
type suite struct {
	program, binDir, stateDir string
	policy                    string // the NetworkPolicy enforcer
	two, one                  *Cluster
}

// TestE2ECluster takes two clusters through their lives. Its parts build on each other.
func TestE2ECluster(t *testing.T) {
	s := newSuite(t)
	before := hostState(t)
	t.Cleanup(func() { s.down(t) })

	s.upBoth(t)
	for _, part := range []struct {
		name string
		run  func(*suite, *testing.T)
	}{
		{"a second up changes nothing", (*suite).testSecondUp},
		{"clusters are apart", (*suite).testApart},
		{"a pod that is not root has a volume and is reached", (*suite).testWorkload},
		{"network policies are enforced", (*suite).testNetworkPolicy},
		{"killed components are started again", (*suite).testKilledComponents},
		{"killed machines are started again", (*suite).testKilledMachines},
		{"lost networks are made again", (*suite).testLostNetworks},
		{"a partitioned node is noticed and comes back", (*suite).testPartition},
		{"an interrupted up is finished by the next", (*suite).testInterruptedUp},
		{"down leaves nothing", func(s *suite, t *testing.T) {
			networks := s.networks(t)
			assert.NotEmpty(t, s.traces(t, networks))
			s.down(t)
			assert.Empty(t, s.traces(t, networks))
			assert.Equal(t, before, hostState(t))
			assert.NoDirExists(t, s.two.Folder())
			assert.NoDirExists(t, s.one.Folder())
		}},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(s, t) }) {
			t.FailNow()
		}
	}
}

func newSuite(t *testing.T) *suite {
	s := &suite{stateDir: t.TempDir(), binDir: os.Getenv("HOLDFAST_KUBE_BIN")}
	require.NotEmpty(t, s.binDir, "HOLDFAST_KUBE_BIN must name the folder of the Kubernetes programs")
	s.policy = filepath.Join(os.Getenv("HOLDFAST_NETPOL_BIN"), "kube-network-policies")
	require.FileExists(t, s.policy, "HOLDFAST_NETPOL_BIN must name the folder of the NetworkPolicy enforcer")
	s.program = filepath.Join(t.TempDir(), "cluster")
	command(t, "go", "build", "-o", s.program, "./cmd/cluster")
	return s
}

func (s *suite) options(name string) Options {
	return Options{StateDir: s.stateDir, Name: name, BinDir: s.binDir, Program: s.program}
}

func (s *suite) upBoth(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	var group errgroup.Group
	group.Go(func() (err error) {
		o := s.options("two")
		o.Nodes, o.FastNodeFailure, o.NetworkPolicy = 2, true, s.policy
		s.two, err = Up(ctx, o)
		return err
	})
	group.Go(func() (err error) {
		s.one, err = Up(ctx, s.options("one"))
		return err
	})
	require.NoError(t, group.Wait())
}

// upAgain brings the first cluster up again and returns its parts' process ids before and after.
func (s *suite) upAgain(t *testing.T) (before, after map[string]int) {
	ctx := deadline(t, time.Minute)
	before = pids(s.two.Status(ctx))
	c, err := Up(ctx, s.options("two"))
	require.NoError(t, err)
	s.two = c
	status := c.Status(ctx)
	assert.True(t, status.Healthy(), "%+v", status)
	return before, pids(status)
}

func (s *suite) testSecondUp(t *testing.T) {
	begun := time.Now()
	before, after := s.upAgain(t)
	assert.Less(t, time.Since(begun), 2*time.Second)
	assert.Equal(t, before, after)
	command(t, s.program, "status", "--state-dir", s.stateDir, "--name", "two")
}

func (s *suite) testApart(t *testing.T) {
	s.kubectl(t, s.two, "create", "namespace", "only-here")
	out := s.kubectl(t, s.one, "get", "namespaces", "-o", "name")
	assert.NotContains(t, out, "only-here")
	assert.NotEqual(t, s.two.findForward(apiTarget).Listen, s.one.findForward(apiTarget).Listen)
}

func (s *suite) testWorkload(t *testing.T) {
	dir := t.TempDir()
	binary, archive := filepath.Join(dir, "counter"), filepath.Join(dir, "counter.tar")
	command(t, "go", "build", "-o", binary, "./testdata/counter")
	command(t, filepath.Join(s.binDir, "image"), "-o", archive, "-ref", "holdfast.local/counter:1", "-entrypoint", "/counter", binary)
	require.NoError(t, s.two.LoadImages(deadline(t, 30*time.Second), archive))
	s.kubectl(t, s.two, "apply", "-f", "testdata/counter.yaml")

	s.awaitAnswer(t, "http://counter-0.pods.demo.svc:8080", "counter-0 1")
	s.awaitAnswer(t, "http://counter.demo.svc.cluster.local", "counter-0 1")
	files, err := filepath.Glob(filepath.Join(s.two.layout.volumes(), "*", "starts"))
	require.NoError(t, err)
	assert.Len(t, files, 1, "the volume's data is in the cluster's folder")

	address, err := s.two.Forward(deadline(t, 10*time.Second), "counter.demo.svc:80")
	require.NoError(t, err)
	body, err := get(deadline(t, 5*time.Second), http.DefaultClient, "http://"+address)
	require.NoError(t, err)
	assert.Equal(t, "counter-0 1", body)
}

func (s *suite) testNetworkPolicy(t *testing.T) {
	s.kubectl(t, s.two, "apply", "-f", "testdata/policy.yaml")
	s.kubectl(t, s.two, "-n", "demo", "wait", "--for=condition=Ready", "pod", "--all", "--timeout=30s")
	reach := func(pod, url string) error {
		cmd := exec.CommandContext(deadline(t, 20*time.Second), filepath.Join(s.binDir, "kubectl"),
			"--kubeconfig", s.two.Kubeconfig(), "-n", "demo", "exec", pod, "--", "/counter", "get", url)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s to %s: %w: %s", pod, url, err, out)
		}
		return nil
	}
	for _, url := range []string{"http://counter.demo.svc.cluster.local", "http://counter-0.pods.demo.svc.cluster.local:8080"} {
		await(deadline(t, 20*time.Second), t, func(context.Context) error { return reach("friend", url) })
		require.ErrorContains(t, reach("stranger", url), "Client.Timeout")
	}
	s.awaitAnswer(t, "http://counter.demo.svc", "counter-0 1")
	s.kubectl(t, s.two, "-n", "demo", "delete", "networkpolicy", "counter")
	await(deadline(t, 20*time.Second), t, func(context.Context) error {
		return reach("stranger", "http://counter.demo.svc.cluster.local")
	})
}

func (s *suite) testKilledComponents(t *testing.T) {
	control, node := s.two.record(controlPlane), s.two.record("node1")
	killed := map[string]Process{
		"etcd": control.Components["etcd"], "kube-scheduler": control.Components["kube-scheduler"],
		"node1/kubelet": node.Components["kubelet"], "forwarder": s.two.findForward(apiTarget).Process,
	}
	for _, p := range killed {
		require.NoError(t, p.kill(deadline(t, 5*time.Second)))
	}
	assert.False(t, s.two.Status(deadline(t, 10*time.Second)).Healthy())
	before, after := s.upAgain(t)
	for name, pid := range before {
		if _, ok := killed[name]; ok {
			assert.NotEqual(t, pid, after[name], name)
		} else {
			assert.Equal(t, pid, after[name], name)
		}
	}
	assert.Contains(t, s.kubectl(t, s.two, "get", "namespaces", "-o", "name"), "only-here")
	s.awaitAnswer(t, "http://counter.demo.svc", "counter-0 1")
}

func (s *suite) testKilledMachines(t *testing.T) {
	require.NoError(t, s.two.stopMachines(deadline(t, 10*time.Second), []string{controlPlane, "node1"}))
	s.upAgain(t)
	s.awaitAnswer(t, "http://counter.demo.svc", "counter-0 2")
}

// testLostNetworks is what a boot of the host does, as far as a test can have one.
func (s *suite) testLostNetworks(t *testing.T) {
	require.NoError(t, s.two.stopMachines(deadline(t, 10*time.Second), s.two.machines()))
	require.NoError(t, s.two.deleteNetworks())
	for _, f := range s.two.state.Forwards {
		require.NoError(t, f.Process.kill(deadline(t, 5*time.Second)))
	}
	require.NoError(t, s.two.update(func(st *state) { st.BootID = "an earlier one" }))
	address := s.two.findForward("counter.demo.svc:80").Listen
	s.upAgain(t)
	s.awaitAnswer(t, "http://counter.demo.svc", "counter-0 3")
	body, err := get(deadline(t, 5*time.Second), http.DefaultClient, "http://"+address)
	require.NoError(t, err)
	assert.Equal(t, "counter-0 3", body)
}

func (s *suite) testPartition(t *testing.T) {
	ctx := deadline(t, 60*time.Second)
	kubelet := func() error {
		dial, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		conn, err := s.two.DialContext(dial, "tcp", nodeIP(2)+":10250")
		if err != nil {
			return err
		}
		return conn.Close()
	}
	require.NoError(t, kubelet())
	require.NoError(t, s.two.Partition(ctx, "node2"))
	require.Error(t, kubelet())
	s.awaitNode(ctx, t, "node2", false)
	require.NoError(t, s.two.Heal(ctx, "node2"))
	s.awaitNode(ctx, t, "node2", true)
	require.NoError(t, kubelet())
}

func (s *suite) testInterruptedUp(t *testing.T) {
	require.NoError(t, s.one.Down(deadline(t, 20*time.Second)))
	ctx, interrupt := context.WithCancel(deadline(t, time.Minute))
	o := s.options("one")
	o.Progress = writerFunc(func([]byte) { interrupt() }) // at the first step
	_, err := Up(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	s.one, err = Up(deadline(t, time.Minute), s.options("one"))
	require.NoError(t, err)
}

func (s *suite) down(t *testing.T) {
	for _, c := range []*Cluster{s.two, s.one} {
		if c == nil {
			continue
		}
		command(t, s.program, "down", "--state-dir", s.stateDir, "--name", c.layout.name())
	}
}

func (s *suite) kubectl(t *testing.T, c *Cluster, args ...string) string {
	t.Helper()
	return command(t, filepath.Join(s.binDir, "kubectl"), append([]string{"--kubeconfig", c.Kubeconfig()}, args...)...)
}

// awaitAnswer asks a URL inside the cluster until it answers as wanted.
func (s *suite) awaitAnswer(t *testing.T, url, want string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: s.two.DialContext, DisableKeepAlives: true}}
	await(deadline(t, 45*time.Second), t, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		got, err := get(ctx, client, url)
		if err == nil && got != want {
			err = fmt.Errorf("%s: got %q, want %q", url, got, want)
		}
		return err
	})
}

func (s *suite) awaitNode(ctx context.Context, t *testing.T, node string, ready bool) {
	t.Helper()
	await(ctx, t, func(ctx context.Context) error {
		nodes, err := s.two.readyNodes(ctx)
		if err == nil && nodes[node].ready != ready {
			err = fmt.Errorf("%s: ready is %v, want %v", node, nodes[node].ready, ready)
		}
		return err
	})
}

func await(ctx context.Context, t *testing.T, check func(context.Context) error) {
	t.Helper()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			require.NoError(t, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func get(ctx context.Context, client *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return strings.TrimSpace(string(body)), err
}

func deadline(t *testing.T, timeout time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
	t.Cleanup(cancel)
	return ctx
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(deadline(t, 2*time.Minute), name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	return string(out)
}

func pids(s Status) map[string]int {
	all := map[string]int{}
	for _, part := range s.Parts {
		if part.PID != 0 {
			all[part.Name] = part.PID
		}
	}
	return all
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

// hostState lists what a cluster could change on the host. Other clusters do not change it either.
func hostState(t *testing.T) map[string]string {
	t.Helper()
	state := map[string]string{
		"links":  command(t, "ip", "-o", "-br", "link"),
		"routes": command(t, "ip", "route"),
	}
	for _, dir := range []string{"/run/netns", "/run/containerd", "/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/tmp/hostpath_pv", "/etc/cni"} {
		state[dir] = fmt.Sprint(exists(dir))
	}
	return state
}

// traces lists what there is of the suite's clusters outside their folders: mounts, cgroups, and
// processes that are in one of the networks or have a path of the state folder as an argument.
func (s *suite) traces(t *testing.T, networks map[string]bool) []string {
	t.Helper()
	found, err := mountsBelow(s.stateDir)
	require.NoError(t, err)
	hierarchies, err := cgroupHierarchies()
	require.NoError(t, err)
	for _, c := range []*Cluster{s.two, s.one} {
		for _, hierarchy := range hierarchies {
			if dir := filepath.Join(hierarchy, cgroupName(c.Folder())); exists(dir) {
				found = append(found, dir)
			}
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, dir := range processes {
		network, _ := os.Readlink(filepath.Join(dir, "ns", "net"))
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // empty when it has ended
		if networks[network] || strings.Contains(string(args), s.stateDir) {
			found = append(found, dir+" "+strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return found
}

// networks names the clusters' network namespaces as /proc/PID/ns/net does.
func (s *suite) networks(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, c := range []*Cluster{s.two, s.one} {
		for _, machine := range c.machines() {
			var stat unix.Stat_t
			require.NoError(t, unix.Stat(c.layout.network(machine), &stat))
			names[fmt.Sprintf("net:[%d]", stat.Ino)] = true
		}
	}
	return names
}
