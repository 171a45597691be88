//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/test/gitops"
)

// handoverJob is the state that the steps of a handover's test share.
type handoverJob struct {
	test    *testing.T
	env     environment
	cluster *testCluster
	stack   *stack
	git     *gitops.Git
	bin     string // folder of the commands handover and render
	flavour string
	made    bool // the stack is where make up keeps it, so that make finds it

	keeper keeper
	// before is what must be the same after every handover: UIDs, and of pods the start and the restarts.
	before map[string]string
	lease  *lease.Lease // of a session that lives through everything
}

// TestE2EHandover hands the dev stack from Pulumi to Argo CD and back, interrupted at each step, then one tenant alone, and
// destroys it from there. Nothing is deleted or restarted on the way. The stack is where make up keeps it, and the command is
// run by make.
func TestE2EHandover(t *testing.T) {
	j := newHandoverJob(t, "handover", "argocd")
	j.stack = newStackIn(t, j.env, j.cluster.Kubeconfig(), filepath.Join(j.cluster.Folder(), "pulumi"))
	require.NoError(t, os.WriteFile(filepath.Join(j.cluster.Folder(), "pulumi", "passphrase"), []byte(passphrase), 0o600))
	j.made = true
	j.steps(t, []handoverStep{
		{"pulumi up brings up a tenant", j.bringUp},
		{"Git without the manifests is refused", j.refuseEmptyGit},
		{"an owner changed in the file alone is refused", j.refuseBareEdit},
		{"a difference from what runs is refused", j.refuseDrift},
		{"a dry run changes nothing", j.dryRun},
		{"to Argo CD, killed at every step", func(t *testing.T) { j.handOver(t, "gitops", true) }},
		{"the cluster is as the checkout says", j.previewLive},
		{"pulumi destroy is refused", j.refuseDestroy},
		{"it is steady", j.steady},
		{"a field that leaves Git leaves the cluster", j.dropField},
		{"back to Pulumi, killed at every step", func(t *testing.T) { j.handOver(t, "pulumi", true) }},
		{"one tenant to Argo CD and back", j.handOverTenant},
		{"make destroy leaves nothing of what is Pulumi's", j.destroy},
		{"a new stack is GitOps' from the beginning", j.bringUpFromGit},
		{"Argo CD is gone, and make destroy leaves nothing", j.destroyAlone},
	})
}

// TestE2EHandoverFlux does the same with Flux, whose cluster is lost as well, and comes back from Git.
func TestE2EHandoverFlux(t *testing.T) {
	j := newHandoverJob(t, "handover-flux", "flux")
	j.stack = newStack(t, j.env, j.cluster.Kubeconfig())
	j.steps(t, []handoverStep{
		{"pulumi up brings up a tenant", j.bringUp},
		{"Git without the manifests is refused", j.refuseEmptyGit},
		{"to Flux, killed at every step", func(t *testing.T) { j.handOver(t, "gitops", true) }},
		{"pulumi destroy is refused", j.refuseDestroy},
		{"it is steady", j.steady},
		{"a field that leaves Git leaves the cluster", j.dropField},
		{"back to Pulumi, killed at every step", func(t *testing.T) { j.handOver(t, "pulumi", true) }},
		{"one tenant to Flux and back", j.handOverTenant},
		{"all to Flux", func(t *testing.T) { j.handOver(t, "gitops", false) }},
		{"the cluster is lost, and comes back from Git", j.loseCluster},
		{"Flux is gone, and a destroy leaves nothing", j.destroyAlone},
	})
}

func newHandoverJob(t *testing.T, name, flavour string) *handoverJob {
	env := loadEnvironment(t)
	j := &handoverJob{test: t, env: env, cluster: startCluster(t, env, name), git: gitops.StartGit(t), bin: t.TempDir(), flavour: flavour}
	j.build(t)
	j.keeper = j.newKeeper()
	return j
}

// newKeeper starts Argo CD or Flux on the cluster that there is.
func (j *handoverJob) newKeeper() keeper {
	if j.flavour == "flux" {
		return newFluxKeeper(j.test, j.env, j.cluster)
	}
	return newArgoKeeper(j.test, j.env, j.cluster)
}

type handoverStep struct {
	name string
	run  func(*testing.T)
}

func (j *handoverJob) steps(t *testing.T, steps []handoverStep) {
	for _, step := range steps {
		start := time.Now()
		if !t.Run(step.name, step.run) {
			j.describe(t)
			t.FailNow()
		}
		t.Logf("%s: %s", step.name, time.Since(start).Round(100*time.Millisecond))
	}
}

func (j *handoverJob) describe(t *testing.T) {
	for _, args := range [][]string{
		{"get", "all,leaseservices", "-A", "-o", "wide"},
		{"get", "applications,applicationsets", "-A", "-o", "yaml"},
		{"get", "kustomizations,gitrepositories", "-A", "-o", "yaml"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
	} {
		args = append([]string{"--kubeconfig", j.cluster.Kubeconfig()}, args...)
		output, err := command{path: filepath.Join(j.env.kubeBin, "kubectl"), args: args, timeout: 20 * time.Second}.run(context.WithoutCancel(t.Context()))
		t.Logf("kubectl %v (%v):\n%s", args[2:], err, output)
	}
}

func (j *handoverJob) build(t *testing.T) {
	command{
		path: "go", args: []string{"build", "-o", j.bin + "/", "./stacks/cmd/handover", "./stacks/cmd/render"},
		dir: j.env.repository, timeout: 5 * time.Minute,
	}.must(t)
}

func (j *handoverJob) bringUp(t *testing.T) {
	// What keeps the objects is waited for by the step "adopt" then, and not by pulumi up.
	config := map[string]any{"flavour": j.flavour, "repoURL": j.git.URL, "path": gitopsPath, "await": false}
	if j.flavour == "argocd" {
		config["installHealth"] = true
	}
	j.stack.config["holdfast:gitops"] = config
	j.stack.save(t)
	j.stack.up().must(t)
	j.openSession(t)
}

// reload takes over what the command has written into the stack's file.
func (j *handoverJob) reload(t *testing.T) {
	t.Helper()
	j.stack.config = loadStackConfig(t, j.stack.file)
}

// openSession holds a lease by a session that nobody opens again.
func (j *handoverJob) openSession(t *testing.T) {
	t.Helper()
	key := types.NamespacedName{Namespace: "team-a", Name: "team-a"}
	connection := dialLeases(j.test, j.cluster, "team-a.team-a.svc:7400", clientTLS(t, j.cluster, key)).connection
	client := lease.New(connection)
	j.test.Cleanup(func() { _ = client.Close() })
	ctx, cancel := context.WithTimeout(j.test.Context(), 30*time.Second)
	defer cancel()
	session, err := client.NewSession(ctx, lease.WithTTL(15*time.Second))
	require.NoError(t, err)
	j.lease, err = session.Acquire(ctx, "held/throughout")
	require.NoError(t, err)
}

func (j *handoverJob) requireHeld(t *testing.T) {
	t.Helper()
	select {
	case <-j.lease.Done():
		require.Failf(t, "the lease was lost", "%v", context.Cause(j.lease.Context()))
	default:
	}
}

// render writes the manifests into the work tree of Git, by the command that make render runs.
func (j *handoverJob) render(t *testing.T) {
	t.Helper()
	command{
		path: filepath.Join(j.bin, "render"), args: []string{"-stack", "dev", "-config", j.stack.file, "-out", filepath.Join(j.git.Dir, gitopsPath)},
		timeout: time.Minute,
	}.must(t)
}

// handover is the command, as make handover runs it.
func (j *handoverJob) handover(args ...string) command {
	args = append([]string{"-stack", "dev", "-project", j.env.repository, "-config", j.stack.file}, args...)
	return command{path: filepath.Join(j.bin, "handover"), args: args, env: j.stack.env, timeout: 6 * time.Minute}
}

// make is a target of make, on the stack where make up keeps it.
func (j *handoverJob) make(target string, variables ...string) command {
	state := filepath.Dir(filepath.Dir(j.cluster.Folder()))
	return command{
		path: "make", args: append([]string{"--no-print-directory", target}, variables...), dir: j.env.repository,
		env: []string{
			"HOLDFAST_STATE=" + state, "HOLDFAST_CLUSTER=" + filepath.Base(j.cluster.Folder()), "KUBECONFIG=", "PULUMI_BACKEND_URL=",
			"HOLDFAST_ALONE=yes", // the cluster is this test's, whatever else is done in the state folder
		},
		timeout: 8 * time.Minute,
	}
}

func (j *handoverJob) refuseEmptyGit(t *testing.T) {
	require.NoError(t, os.WriteFile(filepath.Join(j.git.Dir, "README.md"), []byte("nothing yet\n"), 0o600))
	j.git.Commit("Begin")
	output, err := j.handover("-to", "gitops").run(t.Context())
	require.Error(t, err)
	require.Contains(t, output, "team-a/14-leaseservice-team-a.yaml is missing")
	j.render(t)
	j.git.Commit("Render the dev stack")
	j.before = j.identities(t)
	require.NotEmpty(t, j.before)
}

func (j *handoverJob) refuseBareEdit(t *testing.T) {
	j.stack.config["holdfast:ownership"] = "gitops"
	j.stack.save(t)
	output, err := j.stack.preview().run(t.Context())
	require.Error(t, err)
	require.Contains(t, output, "run make handover TO=gitops")
	delete(j.stack.config, "holdfast:ownership")
	j.stack.save(t)
}

// refuseDrift hands nothing over while the cluster differs from what is rendered.
func (j *handoverJob) refuseDrift(t *testing.T) {
	j.patchQuota(t, `{"spec":{"hard":{"pods":"11"}}}`)
	output, err := j.handover("-to", "gitops").run(t.Context())
	require.Error(t, err)
	require.Contains(t, output, `ResourceQuota team-a/tenant`)
	require.Contains(t, output, `spec.hard.pods: "11" now, "10" then`)
	live, err := j.make("preview", "LIVE=1").run(t.Context())
	require.Error(t, err)
	require.Contains(t, live, `spec.hard.pods: "11" now, "10" then`)
	j.patchQuota(t, `{"spec":{"hard":{"pods":"10"}}}`)
}

// previewLive compares what make up deployed with the cluster.
func (j *handoverJob) previewLive(t *testing.T) {
	require.Regexp(t, "^0 of [0-9]+ objects would change", j.make("preview", "LIVE=1").must(t))
}

func (j *handoverJob) dryRun(t *testing.T) {
	file, err := os.ReadFile(j.stack.file)
	require.NoError(t, err)
	output := j.make("handover", "TO=gitops", "DRY_RUN=1").must(t)
	for _, step := range []string{"1. share: ", "2. adopt: ", "3. declare: ", "4. settle: ", "5. release: "} {
		require.Contains(t, output, step)
	}
	unchanged, err := os.ReadFile(j.stack.file)
	require.NoError(t, err)
	require.Equal(t, string(file), string(unchanged))
	j.requireUnchanged(t)
}

// handOver moves everything; with killed, the command and all that it started are killed once in every step.
func (j *handoverJob) handOver(t *testing.T, to string, killed bool) {
	if killed {
		for _, step := range map[string][]string{
			"gitops": {"share", "adopt", "declare", "settle", "release"},
			// Often there is nothing to wait for in between, in the step "withdraw".
			"pulumi": {"share", "declare", "settle", "release"},
		}[to] {
			if step == "share" && to == "gitops" {
				j.keeper.stop() // so that there is something to wait for
			}
			j.killIn(t, step, "-to", to, "-unlock")
			if step == "adopt" {
				j.keeper = j.newKeeper()
			}
		}
	}
	last := j.handover("-to", to, "-unlock")
	if j.made {
		last = j.make("handover", "TO="+to, "UNLOCK=1")
	}
	t.Log(last.must(t))
	j.reload(t)
	require.Equal(t, to, j.stack.config["holdfast:ownership"])
	j.requireUnchanged(t)
	j.requireOwner(t, to)
	j.stack.preview("--expect-no-changes").must(t)
}

// dropField removes a field from Git that Pulumi had applied once.
func (j *handoverJob) dropField(t *testing.T) {
	const quota = gitopsPath + "/team-a/02-resourcequota-tenant.yaml"
	content, err := os.ReadFile(filepath.Join(j.git.Dir, quota))
	require.NoError(t, err)
	var object map[string]any
	require.NoError(t, yaml.Unmarshal(content, &object))
	hard := object["spec"].(map[string]any)["hard"].(map[string]any)
	require.Contains(t, hard, "services")
	delete(hard, "services")
	changed, err := yaml.Marshal(object)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(j.git.Dir, quota), changed, 0o600))
	commit := j.git.Commit("Count no services")
	j.settle(t, commit)
	require.NotContains(t, j.quota(t), "services")
	j.settle(t, j.git.Revert(commit))
	require.Contains(t, j.quota(t), "services")
	j.requireUnchanged(t)
}

func (j *handoverJob) settle(t *testing.T, commit string) {
	t.Helper()
	require.NoError(t, j.look(t.Context()))
	eventually(t, syncTimeout, "the cluster is as Git says", func(ctx context.Context) string { return j.keeper.unsettled(ctx, commit) })
}

// handOverTenant moves one tenant while the platform stays Pulumi's, and lets it follow the platform again.
func (j *handoverJob) handOverTenant(t *testing.T) {
	move := func(to string) {
		if j.made {
			j.make("handover", "TO="+to, "TENANT=team-a").must(t)
		} else {
			j.handover("-to", to, "-tenant", "team-a").must(t)
		}
		j.reload(t)
		require.NotEqual(t, "gitops", j.stack.config["holdfast:ownership"])
		j.requireUnchanged(t)
		j.stack.preview("--expect-no-changes").must(t)
	}
	delete(j.stack.section("gitops"), "await") // nothing is kept at present
	j.stack.save(t)
	move("gitops")
	require.Equal(t, "gitops", j.tenant()["ownership"])
	j.refused(t, "--skip-preview")
	move("pulumi")
	require.Equal(t, "pulumi", j.tenant()["ownership"])
	delete(j.tenant(), "ownership")
	j.stack.save(t)
}

func (j *handoverJob) tenant() map[string]any {
	return j.stack.config["holdfast:tenants"].([]any)[0].(map[string]any)
}

// loseCluster takes the cluster away, and has another one come up from Git, as docs/disaster-recovery.md says.
func (j *handoverJob) loseCluster(t *testing.T) {
	j.requireHeld(t)
	require.NoError(t, j.cluster.Down(t.Context()))
	j.cluster = startCluster(j.test, j.env, "handover-again")
	j.stack.env = append(j.stack.env, "KUBECONFIG="+j.cluster.Kubeconfig())
	j.keeper = j.newKeeper()
	j.stack.up("--refresh").must(t)
	require.Empty(t, j.keeper.unsettled(t.Context(), j.git.Head()), "pulumi up returned before Git was in effect")
	j.openSession(t)
	j.stack.preview("--expect-no-changes").must(t)
}
