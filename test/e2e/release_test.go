//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/test/gitops"
)

// releaseJob is the state that the steps of TestE2EReleaseGuard share.
type releaseJob struct {
	*gitOpsJob
	stack *stack
	ratio atomic.Value // of a tenant's replicas that are available, as Prometheus scrapes it
	// seen are the target revisions that the later ring's Application had until stopWatch was called.
	seen      []string
	stopWatch func()
}

const (
	canaryApplication = "holdfast-team-a"
	// ownApplication is one that Pulumi has, and not an ApplicationSet.
	ownApplication   = "holdfast-holdfast-etcd"
	laterApplication = "holdfast-team-b"
)

// TestE2EReleaseGuard brings revisions to two tenants by rings, with the real Argo CD and a real Prometheus, from a stack that
// GitOps owns: good ones, and one that fails in the canary ring for each of the three triggers. Updates by Pulumi leave the
// revision alone. In the end the stack goes, with a cascade.
func TestE2EReleaseGuard(t *testing.T) {
	env := loadEnvironment(t)
	tc := startCluster(t, env, "release")
	j := &releaseJob{gitOpsJob: &gitOpsJob{test: t, env: env, cluster: tc, git: gitops.StartGit(t), argo: true}}
	j.ratio.Store("1")
	j.keeper = newArgoKeeper(t, env, tc)
	j.stack = newStack(t, env, tc.Kubeconfig())
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"the first revision goes to both rings", j.bringUp},
		{"an image that cannot be pulled: the sync takes too long", j.syncTimeout},
		{"an image that cannot be pulled: health fails three times in a row", j.healthFails},
		{"what was rolled back stays so", j.stays},
		{"pulumi up leaves the revision to the guard", j.updateBeside},
		{"a query crosses its bound", j.queryCrosses},
		{"another attempt goes to both rings", j.anotherAttempt},
		{"a tenant that leaves Git leaves the cluster", j.removeTenant},
		{"pulumi destroy takes all along", j.destroyAll},
	} {
		start := time.Now()
		if !t.Run(step.name, step.run) {
			j.describe(t)
			j.describeGuard(t)
			t.FailNow()
		}
		t.Logf("%s: %s", step.name, time.Since(start).Round(100*time.Millisecond))
	}
}

func (j *releaseJob) describeGuard(t *testing.T) {
	args := []string{"--kubeconfig", j.cluster.Kubeconfig(), "get", "releaseguards,applications", "-n", gitops.ArgoCDNamespace, "-o", "yaml"}
	output, err := command{path: filepath.Join(j.env.kubeBin, "kubectl"), args: args, timeout: 20 * time.Second}.run(context.WithoutCancel(t.Context()))
	t.Logf("(%v)\n%s", err, output)
}

// prometheus starts one that scrapes this test, and returns its URL as pods know it.
func (j *releaseJob) prometheus(t *testing.T) string {
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "tenant_available_ratio{tenant=\"team-a\"} %s\n", j.ratio.Load())
	}))
	j.test.Cleanup(metrics.Close)
	here, err := url.Parse(gitops.StartPrometheus(j.test, strings.TrimPrefix(metrics.URL, "http://")))
	require.NoError(t, err)
	listener, err := j.cluster.Listen(t.Context())
	require.NoError(t, err)
	proxy := &http.Server{Handler: httputil.NewSingleHostReverseProxy(here), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = proxy.Serve(listener) }() // it ends when it is closed
	j.test.Cleanup(func() { _ = proxy.Close() })
	return "http://" + net.JoinHostPort(listener.Addr().(*net.TCPAddr).IP.String(), fmt.Sprint(listener.Addr().(*net.TCPAddr).Port))
}

// publish commits both tenants with some fields changed, and tags that.
func (j *releaseJob) publish(t *testing.T, tag string, fields tenant) {
	for i := range j.tenants {
		j.tenants[i] = j.tenants[i].with(fields)
	}
	j.render(t)
	j.git.Commit("Release " + tag)
	j.git.Tag(tag)
}

func (j *releaseJob) bringUp(t *testing.T) {
	j.configure(t)
	j.config["holdfast:ownership"] = "gitops"
	j.config["holdfast:gitops"] = map[string]any{
		"flavour": "argocd", "repoURL": j.git.URL, "path": gitopsPath, "installHealth": true, "cascade": true, "revisionManagedByGuard": true,
	}
	j.config["holdfast:releaseGuard"] = map[string]any{"prometheus": []string{j.prometheus(t)}}
	j.publish(t, "v1", tenant{"image": j.env.leaseImage})
	j.stack.config = j.config
	j.stack.save(t)
	j.stack.up().must(t)
	eventually(t, syncTimeout, "the kind is served", func(ctx context.Context) string {
		if err := j.cluster.client.List(ctx, &v1alpha1.ReleaseGuardList{}); err != nil {
			return err.Error()
		}
		return ""
	})
	guard := &v1alpha1.ReleaseGuard{
		ObjectMeta: metav1.ObjectMeta{Namespace: gitops.ArgoCDNamespace, Name: "tenants"},
		Spec: v1alpha1.ReleaseGuardSpec{
			Revision: "v1", HealthIntervalSeconds: 2,
			Rings: []v1alpha1.ReleaseRing{
				{Name: "canary", Applications: []string{canaryApplication, ownApplication}, SoakSeconds: new(int32(5))},
				{Name: "rest", SoakSeconds: new(int32(5)), Selector: &metav1.LabelSelector{
					MatchLabels: map[string]string{components.LabelGitOpsStage: "tenants"},
				}},
			},
			Checks: []v1alpha1.ReleaseCheck{{
				Name: "availability", Query: "min(tenant_available_ratio)", Min: new(resource.MustParse("0.9")), IntervalSeconds: 2,
			}},
		},
	}
	// A slow start is no fault of the revision.
	guard.Spec.SyncTimeoutSeconds = int32(syncTimeout.Seconds())
	require.NoError(t, j.cluster.client.Create(t.Context(), guard))
	j.await(t, metav1.ConditionTrue, v1alpha1.ReasonReady)
	require.Empty(t, notReady(j.leaseService(t, "team-a")))
	j.watchLater(t)
}

// watchLater notes every target revision of the later ring's Application until the test ends.
func (j *releaseJob) watchLater(t *testing.T) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(applications.GroupVersion().WithKind("ApplicationList"))
	watcher, err := j.cluster.client.Watch(j.test.Context(), list, client.InNamespace(gitops.ArgoCDNamespace), client.MatchingFields{"metadata.name": laterApplication})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range watcher.ResultChan() {
			if app, ok := event.Object.(*unstructured.Unstructured); ok {
				revision, _, _ := unstructured.NestedString(app.Object, "spec", "source", "targetRevision")
				if len(j.seen) == 0 || j.seen[len(j.seen)-1] != revision {
					j.seen = append(j.seen, revision)
				}
			}
		}
	}()
	j.stopWatch = func() {
		watcher.Stop()
		<-done
	}
	j.test.Cleanup(j.stopWatch)
}

func (j *releaseJob) guard(t *testing.T) *v1alpha1.ReleaseGuard {
	t.Helper()
	guard := &v1alpha1.ReleaseGuard{}
	require.NoError(t, j.cluster.client.Get(t.Context(), types.NamespacedName{Namespace: gitops.ArgoCDNamespace, Name: "tenants"}, guard))
	return guard
}

func (j *releaseJob) want(t *testing.T, change func(*v1alpha1.ReleaseGuardSpec)) {
	t.Helper()
	guard := j.guard(t)
	before := guard.DeepCopy()
	change(&guard.Spec)
	require.NoError(t, j.cluster.client.Patch(t.Context(), guard, client.MergeFrom(before)))
}

// await waits until Ready has a status and a reason for the present generation.
func (j *releaseJob) await(t *testing.T, status metav1.ConditionStatus, reason string) *v1alpha1.ReleaseGuard {
	t.Helper()
	var guard *v1alpha1.ReleaseGuard
	eventually(t, 2*syncTimeout, fmt.Sprintf("the guard is %s by %s", status, reason), func(context.Context) string {
		guard = j.guard(t)
		ready := meta.FindStatusCondition(guard.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Status != status || ready.Reason != reason || guard.Status.ObservedGeneration != guard.Generation {
			return fmt.Sprintf("%+v", ready)
		}
		return ""
	})
	return guard
}

// rolledBack waits until the canary is back at v1 and in effect there, and returns why.
func (j *releaseJob) rolledBack(t *testing.T) *v1alpha1.ReleaseFailure {
	t.Helper()
	bad := j.await(t, metav1.ConditionFalse, v1alpha1.ReasonRolledBack).Status.BadRevision
	eventually(t, syncTimeout, "the canary is back", func(context.Context) string {
		guard := j.guard(t)
		for _, app := range guard.Status.Applications {
			if app.TargetRevision != "v1" || app.State != "in effect" || app.Health != "Healthy" {
				return fmt.Sprintf("%+v", app)
			}
		}
		return notReady(j.leaseService(t, "team-a"))
	})
	require.Equal(t, j.env.leaseImage, j.leaseService(t, "team-a").Spec.Image)
	t.Logf("%s: %s", bad.Reason, bad.Message)
	for _, ring := range j.guard(t).Status.Rings {
		if ring.Name == bad.Ring && ring.StartedTime != nil {
			t.Logf("taken back %s after the ring was given %s", bad.Time.Sub(ring.StartedTime.Time), bad.Revision)
		}
	}
	return bad
}

func (j *releaseJob) syncTimeout(t *testing.T) {
	j.publish(t, "slow", tenant{"image": "holdfast.local/lease-service:does-not-exist"})
	j.want(t, func(s *v1alpha1.ReleaseGuardSpec) { s.Revision, s.SyncTimeoutSeconds = "slow", 25 })
	require.Equal(t, v1alpha1.FailureSyncTimeout, j.rolledBack(t).Reason)
}

func (j *releaseJob) healthFails(t *testing.T) {
	j.publish(t, "sick", tenant{"progressDeadlineSeconds": 10})
	j.want(t, func(s *v1alpha1.ReleaseGuardSpec) {
		s.Revision, s.SyncTimeoutSeconds = "sick", int32(syncTimeout.Seconds())
	})
	bad := j.rolledBack(t)
	require.Equal(t, v1alpha1.FailureHealth, bad.Reason)
	require.Contains(t, bad.Message, "3 times in a row")
}

// stays restarts the operator, sets the bad revision by hand, and looks for longer than Argo CD takes to sync.
func (j *releaseJob) stays(t *testing.T) {
	ctx := t.Context()
	command{
		path:    filepath.Join(j.env.kubeBin, "kubectl"),
		args:    []string{"--kubeconfig", j.cluster.Kubeconfig(), "delete", "pod", "-n", operatorNamespace, "-l", "app.kubernetes.io/component=operator", "--now"},
		timeout: time.Minute,
	}.must(t)
	app := j.application(canaryApplication)
	require.NoError(t, j.cluster.client.Patch(ctx, app, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"source":{"targetRevision":"sick"}}}`))))
	eventually(t, syncTimeout, "it is set back", func(context.Context) string {
		for _, decision := range j.guard(t).Status.Decisions {
			if decision.Decision == v1alpha1.ReasonPutBack {
				return ""
			}
		}
		return "not noticed yet"
	})
	j.rolledBack(t)
	calm := time.After(12 * time.Second) // Argo CD looks every 5
	for still := true; still; {
		select {
		case <-calm:
			still = false
		case <-time.After(time.Second):
			require.NoError(t, j.cluster.client.Get(ctx, client.ObjectKeyFromObject(app), app))
			revision, _, _ := unstructured.NestedString(app.Object, "spec", "source", "targetRevision")
			require.Equal(t, "v1", revision)
		}
	}
}

func (j *releaseJob) application(name string) *unstructured.Unstructured {
	app := &unstructured.Unstructured{}
	app.SetGroupVersionKind(applications)
	app.SetNamespace(gitops.ArgoCDNamespace)
	app.SetName(name)
	return app
}

// updateBeside has Pulumi update an Application whose revision the guard has moved away from the stack's.
func (j *releaseJob) updateBeside(t *testing.T) {
	j.stack.preview("--expect-no-changes").must(t)
	j.stack.section("gitops")["await"] = false
	j.stack.save(t)
	j.stack.up().must(t)
	for _, name := range []string{ownApplication, canaryApplication} {
		app := j.application(name)
		require.NoError(t, j.cluster.client.Get(t.Context(), client.ObjectKeyFromObject(app), app))
		revision, _, _ := unstructured.NestedString(app.Object, "spec", "source", "targetRevision")
		require.Equal(t, "v1", revision, name)
	}
	j.stack.preview("--expect-no-changes").must(t)
	j.await(t, metav1.ConditionFalse, v1alpha1.ReasonRolledBack)
}

func (j *releaseJob) queryCrosses(t *testing.T) {
	j.publish(t, "v2", tenant{"image": j.env.leaseImage, "leaseTTLSeconds": 45})
	j.ratio.Store("0.5")
	j.want(t, func(s *v1alpha1.ReleaseGuardSpec) { s.Revision = "v2" })
	bad := j.rolledBack(t)
	require.Equal(t, v1alpha1.FailureCheck, bad.Reason)
	require.Contains(t, bad.Message, "0.5 is below the minimum 0.9")
}

func (j *releaseJob) anotherAttempt(t *testing.T) {
	j.stopWatch() // from here on the later ring may see it
	require.Equal(t, []string{"v1"}, j.seen, "the later ring saw what failed in the canary")
	j.ratio.Store("1")
	j.want(t, func(s *v1alpha1.ReleaseGuardSpec) { s.Attempt = 1 })
	j.await(t, metav1.ConditionTrue, v1alpha1.ReasonReady)
	for _, name := range []string{"team-a", "team-b"} {
		require.EqualValues(t, 45, j.leaseService(t, name).Spec.LeaseTTLSeconds)
		require.Empty(t, notReady(j.leaseService(t, name)))
	}
}

// removeTenant takes a tenant out of Git, and then out of the stack.
func (j *releaseJob) removeTenant(t *testing.T) {
	j.tenants = j.tenants[:1]
	j.render(t)
	j.git.Commit("Say farewell to team-b")
	require.NoError(t, j.keeper.look(t.Context()))
	j.requireGone(t, "team-b")
	j.stack.save(t)
	j.stack.up().must(t)
	j.stack.preview("--expect-no-changes").must(t)
	require.Empty(t, notReady(j.leaseService(t, "team-a")))
}

// destroyAll destroys the stack by Pulumi alone: with a cascade the objects go with what keeps them.
func (j *releaseJob) destroyAll(t *testing.T) {
	require.NoError(t, j.cluster.client.Delete(t.Context(), j.guard(t)))
	j.stack.destroy().must(t)
	for _, kind := range j.keeper.kinds() {
		left, err := j.cluster.list(t.Context(), kind, "")
		require.NoError(t, err)
		require.Empty(t, left)
	}
	var namespaces corev1.NamespaceList
	require.NoError(t, j.cluster.client.List(t.Context(), &namespaces))
	for _, namespace := range namespaces.Items {
		require.Contains(t, []string{"default", "kube-system", "kube-public", "kube-node-lease", gitops.ArgoCDNamespace}, namespace.Name)
	}
}
