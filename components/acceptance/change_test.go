package acceptance

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// TestLoweredLimitsLeaveWhatRuns lowers the limits below what a LeaseService has: it can be labelled and deleted, with a
// finalizer too, as the garbage collector's; its spec changes only to what is within them.
func TestLoweredLimitsLeaveWhatRuns(t *testing.T) {
	kube := startAPIServer(t)
	const namespace = "apps"
	install(t, kube, namespace, components.TenantLimits{Replicas: &components.Range{Max: 5}})
	service := newLeaseService(namespace, 5)
	service.Finalizers = []string{"example.com/held"}
	require.NoError(t, kube.Create(t.Context(), service))

	setLimits(t, kube, namespace, components.TenantLimits{Replicas: &components.Range{Max: 2}})
	waitUntilForbidden(t, func() error {
		return kube.Create(t.Context(), newLeaseService(namespace, 3), client.DryRunAll)
	})

	change := func(edit func(*v1alpha1.LeaseService)) error {
		changed := service.DeepCopy()
		edit(changed)
		return kube.Patch(t.Context(), changed, client.MergeFrom(service))
	}
	require.NoError(t, change(func(s *v1alpha1.LeaseService) { s.Labels = map[string]string{"a": "b"} }))
	err := change(func(s *v1alpha1.LeaseService) { s.Spec.Replicas = 4 })
	require.True(t, apierrors.IsForbidden(err), "replicas that are still too many: %v", err)
	require.ErrorContains(t, err, "spec.replicas is outside of what the platform allows in this namespace: at most 2")
	err = change(func(s *v1alpha1.LeaseService) { s.Spec.LeaseTTLSeconds = 10 })
	require.True(t, apierrors.IsForbidden(err), "another field, beside too many replicas: %v", err)

	require.NoError(t, kube.Delete(t.Context(), service, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	key := client.ObjectKeyFromObject(service)
	require.NoError(t, kube.Get(t.Context(), key, service))
	require.Len(t, service.Finalizers, 2, "its own and that of the garbage collector, which does not run here")
	require.NoError(t, change(func(s *v1alpha1.LeaseService) { s.Finalizers = nil }))
	require.True(t, apierrors.IsNotFound(kube.Get(t.Context(), key, service)), "it has gone")
}

// TestTheLimitsHoldForScale writes to the subresource by which autoscalers and kubectl scale write.
func TestTheLimitsHoldForScale(t *testing.T) {
	kube := startAPIServer(t)
	const namespace = "apps"
	install(t, kube, namespace, components.TenantLimits{})
	service := newLeaseService(namespace, 5)
	require.NoError(t, kube.Create(t.Context(), service))
	setLimits(t, kube, namespace, components.TenantLimits{Replicas: &components.Range{Min: 2, Max: 3}})
	scale := func(replicas int32, opts ...client.SubResourceUpdateOption) error {
		body := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service.Name}}
		body.Spec.Replicas = replicas
		return kube.SubResource("scale").Update(t.Context(), service.DeepCopy(), append(opts, client.WithSubResourceBody(body))...)
	}
	waitUntilForbidden(t, func() error { return scale(1, client.DryRunAll) })
	require.ErrorContains(t, scale(4), "spec.replicas is outside of what the platform allows in this namespace: at least 2, at most 3")
	err := scale(0)
	require.True(t, apierrors.IsInvalid(err), "none, which the schema refuses before the limits are asked: %v", err)
	require.NoError(t, scale(5), "what it has")
	require.NoError(t, scale(3))
	require.NoError(t, kube.Get(t.Context(), client.ObjectKeyFromObject(service), service))
	require.EqualValues(t, 3, service.Spec.Replicas)
}

func newLeaseService(namespace string, replicas int32) *v1alpha1.LeaseService {
	return &v1alpha1.LeaseService{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"},
		Spec:       v1alpha1.LeaseServiceSpec{Replicas: replicas, EtcdEndpoints: []string{"https://etcd-0:2379"}},
	}
}

// waitUntilForbidden waits for limits to be in effect, which takes the API server a moment.
func waitUntilForbidden(t *testing.T, try func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		last = try()
		return apierrors.IsForbidden(last), nil
	})
	require.NoError(t, err, "the limits never came into effect: %v", last)
}
