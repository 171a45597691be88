//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/test/gitops"
)

// objects reads the objects that are rendered, as they are in the cluster.
func (j *handoverJob) objects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(j.git.Dir, gitopsPath, "*", "*.yaml"))
	require.NoError(t, err)
	objects := make([]*unstructured.Unstructured, 0, len(files))
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(content, &object.Object))
		require.NoError(t, j.cluster.client.Get(t.Context(), client.ObjectKeyFromObject(object), object))
		objects = append(objects, object)
	}
	return objects
}

// identities are the UIDs of everything, and the starts and restarts of pods.
func (j *handoverJob) identities(t *testing.T) map[string]string {
	t.Helper()
	ids := map[string]string{}
	for _, object := range j.objects(t) {
		ids[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()] = string(object.GetUID())
	}
	var pods corev1.PodList
	require.NoError(t, j.cluster.client.List(t.Context(), &pods))
	for _, pod := range pods.Items {
		if strings.HasPrefix(pod.Namespace, "kube-") {
			continue
		}
		restarts := int32(0)
		for _, container := range pod.Status.ContainerStatuses {
			restarts += container.RestartCount
		}
		ids["Pod "+pod.Namespace+"/"+pod.Name] = fmt.Sprintf("%s started %s restarts %d", pod.UID, pod.Status.StartTime, restarts)
	}
	return ids
}

// requireUnchanged sees that nothing was deleted, made anew or restarted, and that the session still holds its lease.
func (j *handoverJob) requireUnchanged(t *testing.T) {
	t.Helper()
	require.Equal(t, j.before, j.identities(t))
	j.requireHeld(t)
}

// managers by whose name an object is recognised as somebody's.
var (
	pulumiManagers = []string{"pulumi-kubernetes"}
	keeperManagers = []string{"argocd-controller", "argocd-application-controller", "kustomize-controller"}
)

// requireOwner sees that every object has fields of its owner, and none of the former one, nor a mark of it.
func (j *handoverJob) requireOwner(t *testing.T, owner string) {
	t.Helper()
	is, was, mark := keeperManagers, pulumiManagers, "pulumi.com/"
	if owner == "pulumi" {
		is, was, mark = pulumiManagers, keeperManagers, "argocd.argoproj.io/ kustomize.toolkit.fluxcd.io/"
	}
	for _, object := range j.objects(t) {
		name := object.GetKind() + " " + object.GetName()
		managed := func(managers []string) bool {
			return slices.ContainsFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
				return slices.ContainsFunc(managers, func(manager string) bool { return strings.HasPrefix(entry.Manager, manager) })
			})
		}
		require.True(t, managed(is), "%s has no field of %v: %v", name, is, object.GetManagedFields())
		require.False(t, managed(was), "%s still has fields of %v: %v", name, was, object.GetManagedFields())
		for _, prefix := range strings.Fields(mark) {
			for key := range object.GetAnnotations() {
				require.False(t, strings.HasPrefix(key, prefix), "%s has the annotation %s", name, key)
			}
			for key := range object.GetLabels() {
				require.False(t, strings.HasPrefix(key, prefix), "%s has the label %s", name, key)
			}
		}
	}
}

// killIn runs the command until it begins a step, and then kills it with all that it started: in an update, when that is on
// its way.
func (j *handoverJob) killIn(t *testing.T, step string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := j.handover(args...)
	cmd := exec.CommandContext(ctx, c.path, c.args...)
	cmd.Env = append(os.Environ(), c.env...)
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var problems strings.Builder
	cmd.Stderr = &problems
	require.NoError(t, cmd.Start())
	var seen strings.Builder
	inStep := false
	for lines := bufio.NewScanner(output); lines.Scan(); {
		line := lines.Text()
		seen.WriteString(line + "\n")
		inStep = inStep || strings.HasPrefix(line, step+": ")
		updates := step == "share" || step == "settle"
		if inStep && (!updates || strings.Contains(line, "pulumi preview:")) {
			break
		}
	}
	require.Truef(t, inStep, "step %s was not reached:\n%s%s", step, seen.String(), problems.String())
	if step == "share" || step == "settle" {
		// The update runs by now, or is about to; where it is killed differs from run to run.
		select {
		case <-time.After(1500 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	killTree(t, cmd.Process.Pid)
	_ = cmd.Wait() // it was killed
	t.Logf("killed in step %s", step)
	j.requireHeld(t)
}

// killTree kills a process and its descendants, children last of all that they might start others.
func killTree(t *testing.T, pid int) {
	t.Helper()
	children := childrenOf(t, pid)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Logf("kill %d: %v", pid, err)
	}
	for _, child := range children {
		killTree(t, child)
	}
}

func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	var children []int
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // a thread that has ended
		}
		for _, field := range strings.Fields(string(content)) {
			child, err := strconv.Atoi(field)
			require.NoError(t, err)
			children = append(children, child)
		}
	}
	return children
}

// look has the keeper ask Git now.
func (j *handoverJob) look(ctx context.Context) error {
	if k, flux := j.keeper.(*fluxKeeper); flux {
		return k.flux.RefreshSource(ctx, gitops.FluxNamespace, "holdfast")
	}
	return j.keeper.look(ctx)
}

// quota lists what the tenant's quota counts.
func (j *handoverJob) quota(t *testing.T) []string {
	t.Helper()
	var quota corev1.ResourceQuota
	require.NoError(t, j.cluster.client.Get(t.Context(), types.NamespacedName{Namespace: "team-a", Name: "tenant"}, &quota))
	names := make([]string, 0, len(quota.Spec.Hard))
	for name := range quota.Spec.Hard {
		names = append(names, string(name))
	}
	return names
}

func (j *handoverJob) patchQuota(t *testing.T, patch string) {
	t.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "tenant"}}
	require.NoError(t, j.cluster.client.Patch(t.Context(), quota, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("by-hand")))
}
