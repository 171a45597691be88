package kube_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/components/kube"
)

func TestTokenIsThatOfTheGeneratedSDK(t *testing.T) {
	for _, tc := range []struct{ apiVersion, kind, want string }{
		{"v1", "Namespace", "kubernetes:core/v1:Namespace"},
		{"apps/v1", "Deployment", "kubernetes:apps/v1:Deployment"},
		{"rbac.authorization.k8s.io/v1", "Role", "kubernetes:rbac.authorization.k8s.io/v1:Role"},
		{"dist.system/v1alpha1", "LeaseService", "kubernetes:dist.system/v1alpha1:LeaseService"},
	} {
		require.Equal(t, tc.want, kube.Token(tc.apiVersion, tc.kind))
	}
}

func TestFieldsLeavesOutStatusAndNulls(t *testing.T) {
	fields, err := kube.Fields(&appsv1.Deployment{
		TypeMeta:   kube.Type(appsv1.SchemeGroupVersion, "Deployment"),
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "apps"},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
			}}}},
		}},
		Status: appsv1.DeploymentStatus{Replicas: 7},
	})
	require.NoError(t, err)
	require.Equal(t, map[string]any{
		"apiVersion": "apps/v1",
		"kind":       "Deployment",
		"metadata":   map[string]any{"name": "web", "namespace": "apps"},
		"spec": map[string]any{
			"replicas": int64(3),
			"strategy": map[string]any{},
			"template": map[string]any{
				"metadata": map[string]any{},
				"spec": map[string]any{"containers": []any{map[string]any{
					"name": "web", "resources": map[string]any{"limits": map[string]any{"memory": "64Mi"}},
				}}},
			},
		},
	}, fields)
}

func TestFieldsKeepsEmptyObjectsThatMeanSomething(t *testing.T) {
	fields, err := kube.Fields(networkingv1.NetworkPolicy{
		TypeMeta:   kube.Type(networkingv1.SchemeGroupVersion, "NetworkPolicy"),
		ObjectMeta: metav1.ObjectMeta{Name: "deny"},
	})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"podSelector": map[string]any{}}, fields["spec"])
}

func TestFieldsRefusesWhatHasNoIdentity(t *testing.T) {
	_, err := kube.Fields(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}})
	require.ErrorContains(t, err, "no apiVersion")
	require.ErrorContains(t, err, "no kind")
	require.ErrorContains(t, err, "no metadata.name")
}

func TestNameKeepsShortNamesAndCutsLongOnes(t *testing.T) {
	require.Equal(t, "team-a-etcd", kube.Name(63, "team-a", "etcd"))
	long := strings.Repeat("a", 60)
	require.Equal(t, long+"-b", kube.Name(62, long, "b"), "as long as the limit")
	require.Len(t, kube.Name(61, long, "b"), 61)
	require.NotEqual(t, kube.Name(61, long, "b"), kube.Name(61, long, "c"))
	require.NotContains(t, kube.Name(20, "aaaaaaaaaa-", "bbbbbbbbbbbbb"), "--")
}

func TestNameNeverExceedsItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(10, 63).Draw(t, "limit")
		first := rapid.StringMatching(`[a-z][a-z0-9-]{0,80}[a-z0-9]`).Draw(t, "first")
		second := rapid.StringMatching(`[a-z0-9]{1,20}`).Draw(t, "second")
		name := kube.Name(limit, first, second)
		if len(name) > limit || strings.HasSuffix(name, "-") {
			t.Fatalf("Name(%d, %q, %q) = %q", limit, first, second, name)
		}
	})
}
