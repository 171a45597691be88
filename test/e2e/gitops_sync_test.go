//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/test/gitops"
)

const (
	// syncTimeout bounds the way of a commit into the cluster, rollouts included.
	syncTimeout = 4 * time.Minute
	gitopsPath  = "stacks/gitops/dev"
)

// gitOpsJob is the state that the steps of TestE2EGitOps share.
type gitOpsJob struct {
	test    *testing.T
	env     environment
	cluster *testCluster
	git     *gitops.Git
	keeper  keeper
	argo    bool

	config  map[string]any
	tenants []tenant
	leases  *leaseClient
	token   int64 // of the lease that is held throughout
	change  string
}

// TestE2EGitOps brings up the rendered dev stack from Git, without Pulumi: by Argo CD, and then by Flux on the same cluster.
func TestE2EGitOps(t *testing.T) {
	env := loadEnvironment(t)
	tc := startCluster(t, env, "gitops")
	for _, flavour := range []struct {
		name  string
		start func(*testing.T, environment, *testCluster) keeper
		argo  bool
	}{
		{"Argo CD", newArgoKeeper, true},
		{"Flux", newFluxKeeper, false},
	} {
		if !t.Run(flavour.name, func(t *testing.T) {
			job := &gitOpsJob{test: t, env: env, cluster: tc, git: gitops.StartGit(t), keeper: flavour.start(t, env, tc), argo: flavour.argo}
			job.run(t)
		}) {
			return
		}
	}
}

func (j *gitOpsJob) run(t *testing.T) {
	j.configure(t)
	args := j.keeper.args("team-a", "team-b")
	sparing, stages := j.stages(t, args, false), j.stages(t, args, true)
	others := j.stages(t, j.keeper.otherArgs("team-a"), true)
	type step struct {
		name string
		run  func(*testing.T)
	}
	steps := []step{
		{"a cluster comes up from Git", func(t *testing.T) { j.bringUp(t, stages) }},
		{"a commit changes replicas and image", j.commitChange},
		{"what is changed by hand comes back", j.healByHand},
		{"git revert rolls back", j.revert},
		{"a tenant that leaves Git leaves the cluster", j.removeTenant},
		{"what keeps the objects goes without them", func(t *testing.T) { j.handBack(t, sparing, others) }},
		{"all of it goes, but for the CRDs", func(t *testing.T) { j.tearDown(t, others) }},
	}
	if j.argo {
		steps = slices.Insert(steps, 4, step{"a tenant's folder holds nothing but what tenants have", j.refuseForeignKinds})
	}
	for _, step := range steps {
		start := time.Now()
		if !t.Run(step.name, step.run) {
			j.describe(t)
			t.FailNow()
		}
		t.Logf("%s: %s", step.name, time.Since(start).Round(100*time.Millisecond))
	}
}

// stages are the objects by which a keeper keeps the stack.
func (j *gitOpsJob) stages(t *testing.T, args *components.GitOpsHandoverArgs, cascade bool) [][]*unstructured.Unstructured {
	t.Helper()
	args.RepoURL, args.Path, args.CRDs, args.Cascade = j.git.URL, gitopsPath, "crds", cascade
	args.Platform = []string{"holdfast-etcd", "holdfast-system"}
	return stagesOf(t, args)
}

func (j *gitOpsJob) describe(t *testing.T) {
	for _, args := range [][]string{
		{"get", "all,leaseservices,networkpolicies", "-A", "-o", "wide"},
		{"get", "applications,applicationsets,kustomizations,gitrepositories", "-A"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"logs", "-n", operatorNamespace, "deployment/holdfast-operator", "--tail=40"},
	} {
		args = append([]string{"--kubeconfig", j.cluster.Kubeconfig()}, args...)
		output, err := command{path: filepath.Join(j.env.kubeBin, "kubectl"), args: args, timeout: 20 * time.Second}.run(context.WithoutCancel(t.Context()))
		t.Logf("kubectl %v (%v):\n%s", args[2:], err, output)
	}
}

// configure takes the committed dev stack, with the built images and a second tenant.
func (j *gitOpsJob) configure(t *testing.T) {
	j.config = loadStackConfig(t, filepath.Join(j.env.repository, "Pulumi.dev.yaml"))
	for section, image := range map[string]string{"operator": j.env.operatorImage, "leaseService": j.env.leaseImage, "devEtcd": j.env.etcdImage} {
		fields, ok := j.config["holdfast:"+section].(map[string]any)
		require.True(t, ok, "Pulumi.dev.yaml has no holdfast:%s", section)
		fields["image"] = image
	}
	tenants, ok := j.config["holdfast:tenants"].([]any)
	require.True(t, ok)
	first := tenant(tenants[0].(map[string]any)).with(tenant{"replicas": 1})
	j.tenants = []tenant{first, first.with(tenant{"name": "team-b"})}
	require.Equal(t, "team-a", first["name"])
	j.render(t)
}

// render writes the stack's manifests into the work tree, by the command that make render runs.
func (j *gitOpsJob) render(t *testing.T) {
	t.Helper()
	j.config["holdfast:tenants"] = j.tenants
	content, err := yaml.Marshal(map[string]any{"config": j.config})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "Pulumi.dev.yaml")
	require.NoError(t, os.WriteFile(file, content, 0o600))
	command{
		path: filepath.Join(j.env.ownBin, "render"), args: []string{"-stack", "dev", "-config", file, "-out", filepath.Join(j.git.Dir, gitopsPath)},
		timeout: time.Minute,
	}.must(t)
}

// settle waits until a commit is in effect.
func (j *gitOpsJob) settle(t *testing.T, commit string) {
	t.Helper()
	require.NoError(t, j.keeper.look(t.Context()))
	eventually(t, syncTimeout, "the cluster is as Git says", func(ctx context.Context) string { return j.keeper.unsettled(ctx, commit) })
}

func (j *gitOpsJob) bringUp(t *testing.T, stages [][]*unstructured.Unstructured) {
	commit := j.git.Commit("Bring up the dev stack")
	for _, stage := range stages {
		j.cluster.apply(t, stage...)
	}
	eventually(t, syncTimeout, "the cluster is as Git says", func(ctx context.Context) string { return j.keeper.unsettled(ctx, commit) })
	service := j.leaseService(t, "team-a")
	require.Empty(t, notReady(service), "everything counts as healthy before the LeaseService is Ready")
	require.Empty(t, notReady(j.leaseService(t, "team-b")))
	j.leases = dialLeases(j.test, j.cluster, service.Status.Endpoint, clientTLS(t, j.cluster, client.ObjectKeyFromObject(service)))
	lease, err := j.leases.acquire(t.Context(), "jobs/nightly", "e2e", 10*time.Minute)
	require.NoError(t, err)
	j.token = lease.GetToken()
}

func (j *gitOpsJob) commitChange(t *testing.T) {
	image := nextLeaseImage(t, j.env, j.cluster)
	other := j.podUID(t, "team-b")
	j.tenants[0] = j.tenants[0].with(tenant{"replicas": 2, "image": image})
	j.render(t)
	j.change = j.git.Commit("Run two of the next release for team-a")
	j.settle(t, j.change)
	require.Empty(t, notReady(j.leaseService(t, "team-a")), "a commit counts as healthy before it is in effect")
	j.requirePods(t, 2, image)
	j.requireHeld(t)
	require.Equal(t, other, j.podUID(t, "team-b"), "a change of one tenant restarted another one's pod")
}

func (j *gitOpsJob) healByHand(t *testing.T) {
	ctx := t.Context()
	service := j.leaseService(t, "team-a")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":1,"leaseTTLSeconds":77}}`))
	require.NoError(t, j.cluster.client.Patch(ctx, service, patch))
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "default-deny"}}
	require.NoError(t, j.cluster.client.Delete(ctx, policy))
	eventually(t, syncTimeout, "the edit and the deletion are undone", func(ctx context.Context) string {
		spec := j.leaseService(t, "team-a").Spec
		if spec.Replicas != 2 || spec.LeaseTTLSeconds == 77 {
			return fmt.Sprintf("replicas %d, leaseTTLSeconds %d", spec.Replicas, spec.LeaseTTLSeconds)
		}
		if err := j.cluster.client.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err.Error()
		}
		return ""
	})
	j.settle(t, j.git.Head())
}

func (j *gitOpsJob) revert(t *testing.T) {
	j.settle(t, j.git.Revert(j.change))
	require.Empty(t, notReady(j.leaseService(t, "team-a")))
	j.requirePods(t, 1, j.env.leaseImage)
	j.requireHeld(t)
	j.tenants[0] = j.tenants[1].with(tenant{"name": "team-a"})
}

// refuseForeignKinds commits a Secret into a tenant's folder. Argo CD's project does not allow it. Flux knows no such bound but
// the rights of its account.
func (j *gitOpsJob) refuseForeignKinds(t *testing.T) {
	file := filepath.Join(gitopsPath, "team-b", "99-secret-foreign.yaml")
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: foreign, namespace: team-b}\n"
	require.NoError(t, os.WriteFile(filepath.Join(j.git.Dir, file), []byte(secret), 0o600))
	j.git.Commit("Smuggle a Secret in")
	require.NoError(t, j.keeper.look(t.Context()))
	application := &unstructured.Unstructured{}
	application.SetGroupVersionKind(applications)
	eventually(t, syncTimeout, "the project refuses the Secret", func(ctx context.Context) string {
		if err := j.cluster.client.Get(ctx, types.NamespacedName{Namespace: gitops.ArgoCDNamespace, Name: "holdfast-team-b"}, application); err != nil {
			return err.Error()
		}
		resources, _, _ := unstructured.NestedSlice(application.Object, "status", "operationState", "syncResult", "resources")
		if !strings.Contains(fmt.Sprint(resources), "is not permitted in project holdfast-tenants") {
			return fmt.Sprint(resources)
		}
		return ""
	})
	err := j.cluster.client.Get(t.Context(), types.NamespacedName{Namespace: "team-b", Name: "foreign"}, &corev1.Secret{})
	require.True(t, apierrors.IsNotFound(err), "the Secret was applied: %v", err)
	j.git.Remove(file)
	j.settle(t, j.git.Commit("Take it out again"))
}

// handBack deletes all that keeps the objects, as a handover to Pulumi does, and then has them kept by others.
func (j *gitOpsJob) handBack(t *testing.T, sparing, others [][]*unstructured.Unstructured) {
	before := j.podUID(t, "team-a")
	for _, stage := range sparing {
		j.cluster.apply(t, stage...)
	}
	eventually(t, syncTimeout, "nothing cascades any more", j.keeper.cascades)
	j.cluster.removeStages(t, sparing)
	j.requireUntouched(t, "team-a")
	require.Equal(t, before, j.podUID(t, "team-a"), "the pod was made anew")
	j.requireHeld(t)
	for _, stage := range others {
		j.cluster.apply(t, stage...)
	}
	j.settle(t, j.git.Head())
	require.Equal(t, before, j.podUID(t, "team-a"), "the pod was made anew")
}

// finalized makes a ZooKeeperConfig as the tenant's team would, with the finalizer of one that has written its znode.
func (j *gitOpsJob) finalized(t *testing.T, namespace string) {
	t.Helper()
	require.NoError(t, j.cluster.client.Create(t.Context(), &v1alpha1.ZooKeeperConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "routing", Finalizers: []string{v1alpha1.FinalizerZnode}},
		Spec: v1alpha1.ZooKeeperConfigSpec{
			Path: "/routing", StringData: new("{}"), DeletionPolicy: v1alpha1.DeletionOrphan,
			Connection: &v1alpha1.ZooKeeperConnection{ConnectString: "zookeeper.invalid:2181"},
		},
	}))
}

// removeTenant takes a tenant out of Git, with a custom resource in its namespace that Git never held, and whose finalizer
// needs the operator, which learns from the same commit that the namespace is no longer one of its own. Under Argo CD the
// LeaseService is held back too, as one that still drains: the rest is left alone until it is gone, the operator's rights
// among it.
func (j *gitOpsJob) removeTenant(t *testing.T) {
	service := j.leaseService(t, "team-b")
	j.finalized(t, "team-b")
	if j.argo {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["holdfast.test/draining"]}}`))
		require.NoError(t, j.cluster.client.Patch(t.Context(), service, patch))
	}
	j.tenants = j.tenants[:1]
	j.render(t)
	commit := j.git.Commit("Say farewell to team-b")
	require.NoError(t, j.keeper.look(t.Context()))
	if j.argo {
		eventually(t, syncTimeout, "the LeaseService is being deleted", func(ctx context.Context) string {
			if err := j.cluster.client.Get(ctx, client.ObjectKeyFromObject(service), service); err != nil {
				return err.Error()
			}
			if service.DeletionTimestamp.IsZero() {
				return "it is not"
			}
			return ""
		})
		j.requireUntouched(t, "team-b")
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		require.NoError(t, j.cluster.client.Patch(t.Context(), service, patch))
	}
	j.requireGone(t, "team-b")
	j.settle(t, commit)
	j.requireHeld(t)
}

// requireUntouched watches for a while that nothing of what the operator needs in a namespace is being deleted.
func (j *gitOpsJob) requireUntouched(t *testing.T, namespace string) {
	t.Helper()
	const watched = 5 * time.Second
	ctx := t.Context() // a request that the end of the watch interrupts is no finding
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, watched, true, func(context.Context) (bool, error) {
		for _, object := range []client.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "holdfast-operator"}},
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "holdfast-operator"}},
		} {
			if err := j.cluster.client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return false, err
			}
			if !object.GetDeletionTimestamp().IsZero() {
				return false, fmt.Errorf("%T %s is being deleted", object, object.GetName())
			}
		}
		return false, nil
	})
	require.True(t, wait.Interrupted(err), "what a LeaseService needs went before it: %v", err)
}

func (j *gitOpsJob) requireGone(t *testing.T, namespaces ...string) {
	t.Helper()
	for _, name := range namespaces {
		eventually(t, syncTimeout, "namespace "+name+" is gone", func(ctx context.Context) string {
			var namespace corev1.Namespace
			if err := j.cluster.client.Get(ctx, types.NamespacedName{Name: name}, &namespace); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("%v %+v", err, namespace.Status)
			}
			return ""
		})
	}
}

func (j *gitOpsJob) tearDown(t *testing.T, stages [][]*unstructured.Unstructured) {
	j.cluster.removeStages(t, stages)
	j.requireGone(t, "team-a", operatorNamespace, "holdfast-etcd")
	var definition apiextensionsv1.CustomResourceDefinition
	require.NoError(t, j.cluster.client.Get(t.Context(), types.NamespacedName{Name: "leaseservices.dist.system"}, &definition))
	require.Zero(t, definition.DeletionTimestamp, "CRDs stay: with one, every object of its kind would go")
}

func (j *gitOpsJob) leaseService(t *testing.T, name string) *v1alpha1.LeaseService {
	t.Helper()
	var service v1alpha1.LeaseService
	require.NoError(t, j.cluster.client.Get(t.Context(), types.NamespacedName{Namespace: name, Name: name}, &service))
	return &service
}

func (j *gitOpsJob) podUID(t *testing.T, name string) types.UID {
	t.Helper()
	var pod corev1.Pod
	require.NoError(t, j.cluster.client.Get(t.Context(), types.NamespacedName{Namespace: name, Name: name + "-0"}, &pod))
	return pod.UID
}

// requirePods sees that team-a runs a number of pods, all of an image.
func (j *gitOpsJob) requirePods(t *testing.T, count int, image string) {
	t.Helper()
	var set appsv1.StatefulSet
	key := types.NamespacedName{Namespace: "team-a", Name: "team-a"}
	require.NoError(t, j.cluster.client.Get(t.Context(), key, &set))
	require.EqualValues(t, count, set.Status.ReadyReplicas)
	for i := range count {
		var pod corev1.Pod
		require.NoError(t, j.cluster.client.Get(t.Context(), types.NamespacedName{Namespace: key.Namespace, Name: fmt.Sprintf("team-a-%d", i)}, &pod))
		require.Equal(t, image, pod.Spec.Containers[0].Image, pod.Name)
	}
}

func (j *gitOpsJob) requireHeld(t *testing.T) {
	t.Helper()
	retried(t, 30*time.Second, "the lease is still held by its token", func(ctx context.Context) error {
		return j.leases.keepAlive(ctx, "jobs/nightly", j.token)
	})
}
