//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

const operatorNamespace = "holdfast-system"

// mainJob is the state that the steps of TestE2EMainJob share.
type mainJob struct {
	test    *testing.T // the whole test, which outlives the steps
	env     environment
	cluster *testCluster
	stack   *stack
	tenant  tenant               // the tenant the steps work on, as it stands in the stack's config
	key     types.NamespacedName // its LeaseService
	leases  *leaseClient         // a client of its endpoint
	held    map[string]int64     // leases that a step acquired, and later steps find held, with their tokens
}

// TestE2EMainJob is the main job from pulumi up to pulumi destroy. The steps build on each other, so the first
// that fails ends the test.
func TestE2EMainJob(t *testing.T) {
	env := loadEnvironment(t)
	j := &mainJob{test: t, env: env, held: map[string]int64{}, cluster: startCluster(t, env, "e2e")}
	j.stack = newStack(t, env, j.cluster.Kubeconfig())
	for _, step := range []struct {
		name string
		run  func(*mainJob, *testing.T)
	}{
		{"pulumi up brings up a tenant", (*mainJob).bringUp},
		{"a second up changes nothing", (*mainJob).expectNoChanges},
		{"one replica becomes three", (*mainJob).scaleOut},
		{"a client uses leases", (*mainJob).useLeases},
		{"the leader is killed and the leases survive", (*mainJob).killLeader},
		{"an image change rolls out", (*mainJob).changeImage},
		{"what is deleted or edited by hand comes back", (*mainJob).repairDrift},
		{"a tenant is added and removed", (*mainJob).addAndRemoveTenant},
		{"the steady state has no writes", (*mainJob).steadyState},
		{"preview is clean and refresh sees drift", (*mainJob).previewAndRefresh},
		{"bad config is refused with a useful error", (*mainJob).refuseBadConfig},
		{"destroy leaves an empty cluster", (*mainJob).destroy},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(j, t) }) {
			j.describe(t)
			t.FailNow()
		}
	}
}

// describe prints what helps to understand a failed step.
func (j *mainJob) describe(t *testing.T) {
	kubectl := filepath.Join(j.env.kubeBin, "kubectl")
	for _, args := range [][]string{
		{"get", "all,leaseservices,networkpolicies,pdb", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"get", "leaseservices", "-A", "-o", "yaml"},
		{"logs", "-n", operatorNamespace, "deployment/holdfast-operator", "--tail=60"},
	} {
		output, err := command{path: kubectl, args: append([]string{"--kubeconfig", j.cluster.Kubeconfig()}, args...), timeout: 20 * time.Second}.run(context.WithoutCancel(t.Context()))
		t.Logf("kubectl %v (%v):\n%s", args, err, output)
	}
}

func (j *mainJob) bringUp(t *testing.T) {
	tenants, ok := j.stack.config["holdfast:tenants"].([]any)
	require.True(t, ok, "Pulumi.dev.yaml has no holdfast:tenants")
	first, ok := tenants[0].(map[string]any)
	require.True(t, ok)
	j.tenant = tenant(first).with(tenant{"replicas": 1})
	j.stack.setTenants(t, j.tenant)
	j.stack.up().must(t)

	outputs, ok := j.stack.outputs(t)["tenants"].(map[string]any)[fmt.Sprint(j.tenant["name"])].(map[string]any)
	require.True(t, ok, "the stack has no output for the tenant")
	j.key = types.NamespacedName{Namespace: fmt.Sprint(outputs["namespace"]), Name: fmt.Sprint(outputs["name"])}
	service := j.leaseService(t)
	require.Empty(t, notReady(service), "pulumi up returned before the LeaseService was ready")
	require.Equal(t, outputs["endpoint"], service.Status.Endpoint)
	for _, pod := range j.pods(t) {
		require.Equal(t, corev1.PodRunning, pod.Status.Phase)
		require.Equal(t, j.env.leaseImage, pod.Spec.Containers[0].Image)
	}
	j.leases = dialLeases(j.test, j.cluster, service.Status.Endpoint, clientTLS(t, j.cluster, j.key))
}

func (j *mainJob) expectNoChanges(t *testing.T) { j.stack.up("--expect-no-changes").must(t) }

func (j *mainJob) scaleOut(t *testing.T) {
	j.hold(t, "held-over-scaling")
	j.tenant = j.tenant.with(tenant{"replicas": 3})
	j.stack.setTenants(t, j.tenant)
	j.stack.up().must(t)
	service := j.leaseService(t)
	require.Empty(t, notReady(service), "pulumi up returned before all replicas were ready")
	require.EqualValues(t, 3, service.Status.ReadyReplicas)
	j.stillHeld(t, "held-over-scaling")
}

func (j *mainJob) useLeases(t *testing.T) {
	ctx := t.Context()
	first, err := j.leases.acquire(ctx, "jobs/nightly", "one", 30*time.Second)
	require.NoError(t, err)
	require.Positive(t, first.GetToken())
	require.NoError(t, j.leases.keepAlive(ctx, "jobs/nightly", first.GetToken()))

	_, err = j.leases.acquire(ctx, "jobs/nightly", "two", 30*time.Second)
	require.Equal(t, codes.Aborted, status.Code(err), "a second holder: %v", err)

	require.NoError(t, j.leases.release(ctx, "jobs/nightly", first.GetToken()))
	second, err := j.leases.acquire(ctx, "jobs/nightly", "two", 2*time.Second)
	require.NoError(t, err)
	require.Greater(t, second.GetToken(), first.GetToken(), "a fencing token must rise with every grant")

	require.NoError(t, j.leases.release(ctx, "jobs/nightly", first.GetToken()), "releasing what is over succeeds")
	require.NoError(t, j.leases.keepAlive(ctx, "jobs/nightly", second.GetToken()), "a late release freed somebody else's lease")

	eventually(t, 20*time.Second, "the lease expires without a keepalive", func(ctx context.Context) string {
		third, err := j.leases.acquire(ctx, "jobs/nightly", "three", 30*time.Second)
		if err != nil {
			return err.Error()
		}
		require.Greater(t, third.GetToken(), second.GetToken())
		require.NoError(t, j.leases.release(ctx, "jobs/nightly", third.GetToken()))
		return ""
	})
	eventually(t, 20*time.Second, "status counts the leases", func(context.Context) string {
		if held := j.leaseService(t).Status.ActiveLeases; held != 1 { // held-over-scaling
			return fmt.Sprintf("status.activeLeases is %d", held)
		}
		return ""
	})
}

func (j *mainJob) changeImage(t *testing.T) {
	j.hold(t, "held-over-rollout")
	image := nextLeaseImage(t, j.env, j.cluster)
	j.tenant = j.tenant.with(tenant{"image": image})
	j.stack.setTenants(t, j.tenant)
	j.stack.up().must(t)
	require.Empty(t, notReady(j.leaseService(t)), "pulumi up returned before the rollout was done")
	for _, pod := range j.pods(t) {
		require.Equal(t, image, pod.Spec.Containers[0].Image, "pod %s", pod.Name)
	}
	j.stillHeld(t, "held-over-rollout")
}

// nextLeaseImage loads an image of the lease service under another name, as a release after the present one.
func nextLeaseImage(t *testing.T, env environment, tc *testCluster) string {
	t.Helper()
	image := "holdfast.local/lease-service:e2e-next"
	archive := filepath.Join(t.TempDir(), "next.tar")
	command{
		path:    filepath.Join(env.kubeBin, "image"),
		args:    []string{"-o", archive, "-ref", image, "-entrypoint", "/lease-service", filepath.Join(env.ownBin, "lease-service"), filepath.Join(env.ownBin, "leasectl")},
		timeout: time.Minute,
	}.must(t)
	require.NoError(t, tc.LoadImages(t.Context(), archive))
	return image
}

func (j *mainJob) addAndRemoveTenant(t *testing.T) {
	ctx := t.Context()
	other := j.tenant.with(tenant{"name": "team-late", "replicas": 1, "auth": map[string]any{"tokenReview": true}})
	delete(other, "namespace")
	delete(other, "image")
	operators := j.operatorPods(t)
	j.stack.setTenants(t, j.tenant, other)
	j.stack.up().must(t)
	outputs, ok := j.stack.outputs(t)["tenants"].(map[string]any)["team-late"].(map[string]any)
	require.True(t, ok)
	namespace := fmt.Sprint(outputs["namespace"])
	key := types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(outputs["name"])}
	late := dialLeases(t, j.cluster, fmt.Sprint(outputs["endpoint"]), clientTLS(t, j.cluster, key))
	_, err := late.acquire(ctx, "jobs/nightly", "late", 30*time.Second)
	require.NoError(t, err, "the new tenant's leases are its own")
	j.refuseStrangers(t, clientTLS(t, j.cluster, key), key)
	j.useTokens(t, key, fmt.Sprint(outputs["endpoint"]))

	j.wallOff(t, namespace, fmt.Sprint(outputs["name"]), fmt.Sprint(outputs["endpoint"]))

	// An object that the stack knows nothing of, and whose finalizer keeps the namespace until the operator removes it.
	require.NoError(t, j.cluster.client.Create(ctx, &v1alpha1.ZooKeeperConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "flag", Finalizers: []string{v1alpha1.FinalizerZnode}},
		Spec: v1alpha1.ZooKeeperConfigSpec{
			Path: "/flag", StringData: new(string), Connection: &v1alpha1.ZooKeeperConnection{ConnectString: "nowhere.invalid:2181"},
			ACL: []v1alpha1.ZnodeACL{{Scheme: "world", ID: "anyone", Perms: "cdrwa"}},
		},
	}))
	before := j.podUIDs(t)
	j.stack.setTenants(t, j.tenant)
	j.stack.up().must(t)
	require.Equal(t, operators, j.operatorPods(t), "tenants come and go without a restart of the operator")
	err = j.cluster.client.Get(ctx, types.NamespacedName{Name: namespace}, &corev1.Namespace{})
	require.True(t, apierrors.IsNotFound(err), "the removed tenant's namespace: %v", err)
	require.Equal(t, before, j.podUIDs(t), "removing a tenant restarted another one's pods")
}

// operatorPods are the UIDs of the operator's pods.
func (j *mainJob) operatorPods(t *testing.T) []types.UID {
	t.Helper()
	var pods corev1.PodList
	require.NoError(t, j.cluster.client.List(t.Context(), &pods, client.InNamespace(operatorNamespace)))
	var uids []types.UID
	for i := range pods.Items {
		uids = append(uids, pods.Items[i].UID)
	}
	require.NotEmpty(t, uids)
	return uids
}

// refuseStrangers sees that the first tenant's lease service answers neither without a certificate nor with another tenant's.
// Both reach it here, as they would with the network policy gone.
func (j *mainJob) refuseStrangers(t *testing.T, others credentials.TransportCredentials, key types.NamespacedName) {
	t.Helper()
	address := j.leaseService(t).Status.Endpoint
	for name, creds := range map[string]credentials.TransportCredentials{
		"plain text": insecure.NewCredentials(), "the certificate of " + key.String(): others,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := dialLeases(t, j.cluster, address, creds).List(ctx, &leasev1.ListRequest{}, grpc.WaitForReady(false))
		cancel()
		require.Equal(t, codes.Unavailable, status.Code(err), "with %s: %v", name, err)
	}
}

// wallOff sees that a pod of another tenant reaches its own lease service, and not that of the first tenant.
func (j *mainJob) wallOff(t *testing.T, namespace, name, endpoint string) {
	t.Helper()
	status := func(endpoint string) command {
		return command{
			path: filepath.Join(j.env.kubeBin, "kubectl"),
			args: []string{
				"--kubeconfig", j.cluster.Kubeconfig(), "exec", "-n", namespace, name + "-0", "--",
				"/leasectl", "--server", endpoint, "--timeout", "3s",
				"--ca", "/etc/holdfast/tls/ca.crt", "--cert", "/etc/holdfast/tls/tls.crt", "--key", "/etc/holdfast/tls/tls.key", "status",
			},
			timeout: 30 * time.Second,
		}
	}
	status(endpoint).must(t)
	output, err := status(j.leaseService(t).Status.Endpoint).run(t.Context())
	require.Error(t, err, "a tenant reached another one's lease service: %s", output)
	require.Contains(t, output, "did not answer in time", "the packets must be dropped, not the call refused by something else")
}

func (j *mainJob) refuseBadConfig(t *testing.T) {
	for _, bad := range []struct {
		name    string
		tenants []tenant
		want    []string
	}{
		{"unknown key", []tenant{j.tenant.with(tenant{"replicaz": 3})}, []string{fmt.Sprint(j.tenant["name"]), "replicaz"}},
		{"TTL", []tenant{j.tenant.with(tenant{"leaseTTLSeconds": 0})}, []string{fmt.Sprint(j.tenant["name"]), "leaseTTLSeconds"}},
		{"duplicate", []tenant{j.tenant, j.tenant}, []string{fmt.Sprint(j.tenant["name"]), "name"}},
		{"missing endpoint", []tenant{j.tenant.with(tenant{"replicas": 3, "useDevEtcd": false})}, []string{fmt.Sprint(j.tenant["name"]), "etcdEndpoints"}},
	} {
		t.Run(bad.name, func(t *testing.T) {
			j.stack.setTenants(t, bad.tenants...)
			output, err := j.stack.preview().run(t.Context())
			require.Error(t, err)
			for _, want := range bad.want {
				require.Contains(t, output, want)
			}
		})
	}
	j.stack.setTenants(t, j.tenant)
}

func (j *mainJob) destroy(t *testing.T) {
	ctx := t.Context()
	j.stack.destroy().must(t)
	var namespaces corev1.NamespaceList
	require.NoError(t, j.cluster.client.List(ctx, &namespaces))
	for _, namespace := range namespaces.Items {
		require.Contains(t, []string{"default", "kube-system", "kube-public", "kube-node-lease"}, namespace.Name)
	}
	var definitions apiextensionsv1.CustomResourceDefinitionList
	require.NoError(t, j.cluster.client.List(ctx, &definitions))
	require.Empty(t, definitions.Items, "the dev stack does not retain its CRDs")
}

// leaseService reads the tenant's LeaseService.
func (j *mainJob) leaseService(t *testing.T) *v1alpha1.LeaseService {
	t.Helper()
	var service v1alpha1.LeaseService
	require.NoError(t, j.cluster.client.Get(t.Context(), j.key, &service))
	return &service
}

// pods lists the tenant's lease service pods.
func (j *mainJob) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	var set appsv1.StatefulSet
	require.NoError(t, j.cluster.client.Get(t.Context(), j.key, &set))
	var pods corev1.PodList
	require.NoError(t, j.cluster.client.List(t.Context(), &pods, client.InNamespace(j.key.Namespace), client.MatchingLabels(set.Spec.Selector.MatchLabels)))
	require.NotEmpty(t, pods.Items)
	return pods.Items
}

func (j *mainJob) podUIDs(t *testing.T) map[string]types.UID {
	t.Helper()
	uids := map[string]types.UID{}
	for _, pod := range j.pods(t) {
		uids[pod.Name] = pod.UID
	}
	return uids
}

// hold acquires a lease that lives on for ten minutes without a keepalive.
func (j *mainJob) hold(t *testing.T, name string) {
	t.Helper()
	lease, err := j.leases.acquire(t.Context(), name, "e2e", 10*time.Minute)
	require.NoError(t, err)
	j.held[name] = lease.GetToken()
}

// stillHeld keeps a lease alive by its token, and sees that nobody else can have it.
func (j *mainJob) stillHeld(t *testing.T, name string) {
	t.Helper()
	retried(t, 20*time.Second, name+" is still held by its token", func(ctx context.Context) error {
		return j.leases.keepAlive(ctx, name, j.held[name])
	})
	_, err := j.leases.acquire(t.Context(), name, "somebody else", time.Minute)
	require.Equal(t, codes.Aborted, status.Code(err), "a lease that is held was granted again, or: %v", err)
}

// notReady says what keeps the object from being Ready for its present spec; "" when nothing does.
func notReady(service *v1alpha1.LeaseService) string {
	ready := meta.FindStatusCondition(service.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case service.Status.ObservedGeneration != service.Generation:
		return fmt.Sprintf("generation %d is not observed yet", service.Generation)
	case ready == nil:
		return "there is no Ready condition"
	case ready.Status != "True":
		return ready.Reason + ": " + ready.Message
	default:
		return ""
	}
}
