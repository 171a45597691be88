//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// steadyTime is how long the operator is watched for writes.
const steadyTime = time.Minute

// repairDrift deletes and edits each kind of child by hand.
func (j *mainJob) repairDrift(t *testing.T) {
	ctx := t.Context()
	kube := j.cluster.client
	for _, child := range []struct {
		object client.Object
		edit   func(client.Object)
		broken func(client.Object) bool
	}{
		{
			&corev1.Service{},
			func(o client.Object) { o.(*corev1.Service).Spec.Ports[0].TargetPort = intstr.FromInt32(1) },
			func(o client.Object) bool { return o.(*corev1.Service).Spec.Ports[0].TargetPort == intstr.FromInt32(1) },
		},
		{
			&policyv1.PodDisruptionBudget{},
			func(o client.Object) {
				three := intstr.FromInt32(3)
				o.(*policyv1.PodDisruptionBudget).Spec.MaxUnavailable = &three
			},
			func(o client.Object) bool { return o.(*policyv1.PodDisruptionBudget).Spec.MaxUnavailable.IntVal == 3 },
		},
		{
			&appsv1.StatefulSet{},
			func(o client.Object) {
				o.(*appsv1.StatefulSet).Spec.Template.Spec.Containers[0].Image = "example.invalid/wrong:1"
			},
			func(o client.Object) bool {
				return o.(*appsv1.StatefulSet).Spec.Template.Spec.Containers[0].Image == "example.invalid/wrong:1"
			},
		},
	} {
		kind := fmt.Sprintf("%T", child.object)
		require.NoError(t, kube.Get(ctx, j.key, child.object))
		before := child.object.DeepCopyObject().(client.Object)
		child.edit(child.object)
		require.NoError(t, kube.Patch(ctx, child.object, client.MergeFrom(before), client.FieldOwner("by-hand")))
		require.True(t, child.broken(child.object))
		eventually(t, 20*time.Second, kind+" edited by hand is put right", func(ctx context.Context) string {
			if err := kube.Get(ctx, j.key, child.object); err != nil {
				return err.Error()
			}
			if child.broken(child.object) {
				return "still broken"
			}
			return ""
		})

		uid := child.object.GetUID()
		require.NoError(t, kube.Delete(ctx, child.object))
		eventually(t, 20*time.Second, kind+" deleted by hand comes back", func(ctx context.Context) string {
			if err := kube.Get(ctx, j.key, child.object); err != nil {
				return err.Error()
			}
			if child.object.GetUID() == uid {
				return "not deleted yet"
			}
			return ""
		})
	}
	eventually(t, 90*time.Second, "the LeaseService recovers", func(context.Context) string { return notReady(j.leaseService(t)) })
}

// steadyState sees that a restart of the operator writes nothing to the tenant, and counts all its writes over a minute.
func (j *mainJob) steadyState(t *testing.T) {
	ctx := t.Context()
	for name, token := range j.held {
		require.NoError(t, j.leases.release(ctx, name, token))
	}
	eventually(t, time.Minute, "the LeaseService settles", func(context.Context) string {
		service := j.leaseService(t)
		if service.Status.ActiveLeases != 0 {
			return fmt.Sprintf("status.activeLeases is %d", service.Status.ActiveLeases)
		}
		return notReady(service)
	})
	versions, settled := j.resourceVersions(t), j.leaseService(t).ResourceVersion
	operator := j.operatorPod(t)
	require.NoError(t, j.cluster.client.Delete(ctx, &operator, client.GracePeriodSeconds(0)))
	eventually(t, time.Minute, "the operator is replaced and leads", func(ctx context.Context) string {
		fresh := j.operatorPod(t)
		if fresh.UID == operator.UID || fresh.Status.PodIP == "" {
			return "not replaced yet"
		}
		if requests, err := j.operatorRequests(ctx, fresh); err != nil {
			return err.Error()
		} else if requests["reconciles"] == 0 {
			return "no reconcile yet"
		}
		return ""
	})
	fresh := j.operatorPod(t)
	before, err := j.operatorRequests(ctx, fresh)
	require.NoError(t, err)

	window := time.After(steadyTime)
	watcher, err := j.cluster.client.Watch(ctx, &v1alpha1.LeaseServiceList{}, client.InNamespace(j.key.Namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: settled}})
	require.NoError(t, err)
	defer watcher.Stop()
	for steady := false; !steady; {
		select {
		case event := <-watcher.ResultChan():
			require.Failf(t, "the LeaseService was written", "%s %+v", event.Type, event.Object)
		case <-window:
			steady = true
		}
	}
	after, err := j.operatorRequests(ctx, fresh)
	require.NoError(t, err)
	for _, method := range []string{"POST", "PATCH", "DELETE"} {
		require.Equal(t, before[method], after[method], "%s requests of the operator within %s: before %v, after %v", method, steadyTime, before, after)
	}
	require.Equal(t, versions, j.resourceVersions(t))
}

// operatorPod returns the operator's pod that is not being deleted.
func (j *mainJob) operatorPod(t *testing.T) corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	require.NoError(t, j.cluster.client.List(t.Context(), &pods, client.InNamespace(operatorNamespace), client.MatchingLabels{"app.kubernetes.io/component": "operator"}))
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp.IsZero() {
			return pod
		}
	}
	return corev1.Pod{}
}

// operatorRequests reads from the operator's metrics how many requests of each method it has sent to the API server,
// and under "reconciles" how many reconciles it has finished. Only the renewals of its leader election are PUTs.
func (j *mainJob) operatorRequests(ctx context.Context, pod corev1.Pod) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	httpClient := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: j.cluster.DialContext}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(pod.Status.PodIP, "8080")+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	counts := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, found := strings.Cut(lines.Text(), "} ")
		number, err := strconv.ParseFloat(value, 64)
		switch {
		case !found || err != nil:
		case strings.HasPrefix(name, "rest_client_requests_total{"):
			_, method, _ := strings.Cut(name, `method="`)
			method, _, _ = strings.Cut(method, `"`)
			counts[method] += number
		case strings.HasPrefix(name, "controller_runtime_reconcile_total{"):
			counts["reconciles"] += number
		}
	}
	return counts, nil
}

// resourceVersions lists the versions of the tenant's objects that the operator writes.
func (j *mainJob) resourceVersions(t *testing.T) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, list := range []client.ObjectList{&v1alpha1.LeaseServiceList{}, &appsv1.StatefulSetList{}, &corev1.ServiceList{}, &policyv1.PodDisruptionBudgetList{}, &corev1.EventList{}} {
		require.NoError(t, j.cluster.client.List(t.Context(), list, client.InNamespace(j.key.Namespace)))
		require.NoError(t, meta.EachListItem(list, func(item runtime.Object) error {
			object, err := meta.Accessor(item)
			if err == nil {
				versions[fmt.Sprintf("%T %s", item, object.GetName())] = object.GetResourceVersion()
			}
			return err
		}))
	}
	return versions
}

// previewAndRefresh holds pulumi to the truth about the cluster.
func (j *mainJob) previewAndRefresh(t *testing.T) {
	ctx := t.Context()
	j.stack.preview("--expect-no-changes").must(t)
	service := j.leaseService(t)
	before := service.DeepCopy()
	service.Spec.LeaseTTLSeconds++
	require.NoError(t, j.cluster.client.Patch(ctx, service, client.MergeFrom(before), client.FieldOwner("by-hand")))
	output := j.stack.update("refresh", "--preview-only").must(t)
	require.Contains(t, output, "leaseTTLSeconds", "pulumi refresh does not see a field changed by hand")
	// The same hand undoes it, so that the stack's own next update finds no conflict.
	undo := service.DeepCopy()
	undo.Spec.LeaseTTLSeconds = before.Spec.LeaseTTLSeconds
	require.NoError(t, j.cluster.client.Patch(ctx, undo, client.MergeFrom(service), client.FieldOwner("by-hand")))
	eventually(t, time.Minute, "the LeaseService is ready again", func(context.Context) string { return notReady(j.leaseService(t)) })
	j.stack.preview("--refresh", "--expect-no-changes").must(t)
}
