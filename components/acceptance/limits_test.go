// Package acceptance tests what the components make against a real API server.
package acceptance

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/components/render"
	"github.com/holdfast-io/holdfast/crds"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// TestTheAPIServerHoldsTheSameLimits compares, over many specs, what [components.TenantLimits.Check] says with what a
// real API server does by the policy that a TenantSpace makes.
func TestTheAPIServerHoldsTheSameLimits(t *testing.T) {
	kube := startAPIServer(t)
	limits := components.TenantLimits{
		Replicas:        &components.Range{Min: 2, Max: 3},
		LeaseTTLSeconds: &components.Range{Min: 5},
		Leases:          &components.Range{Max: 10}, AcquiresPerSecond: &components.Range{Min: 5},
		Images:        []string{"registry.example.com/holdfast/*", `odd"name:1`},
		EtcdEndpoints: []string{"https://etcd-0:2379", "https://etcd-1:2379"},
	}
	const namespace = "apps"
	install(t, kube, namespace, limits)
	try := func(spec v1alpha1.LeaseServiceSpec) error {
		object := &v1alpha1.LeaseService{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}, Spec: spec}
		return kube.Create(t.Context(), object, client.DryRunAll)
	}
	waitUntilForbidden(t, func() error { return try(v1alpha1.LeaseServiceSpec{Image: "mine:1"}) })
	rapid.Check(t, func(t *rapid.T) {
		spec := v1alpha1.LeaseServiceSpec{
			Replicas:        rapid.SampledFrom([]int32{0, 1, 2, 3, 4}).Draw(t, "replicas"),
			LeaseTTLSeconds: rapid.SampledFrom([]int32{0, 1, 4, 5, 6}).Draw(t, "ttl"),
			Image: rapid.SampledFrom([]string{
				"", "registry.example.com/holdfast/lease-service:1", "registry.example.com/holdfast", "mine:1", `odd"name:1`,
			}).Draw(t, "image"),
			EtcdEndpoints: rapid.SampledFrom([][]string{
				{"https://etcd-0:2379"}, {"https://etcd-1:2379", "https://etcd-0:2379"}, {"https://etcd-0:2379", "http://mine:1"},
			}).Draw(t, "endpoints"),
		}
		if prefix := rapid.SampledFrom([]string{"", "/holdfast/apps/x/", "/holdfast/apps-2/x/", "/other/"}).Draw(t, "prefix"); prefix != "" {
			spec.Etcd = &v1alpha1.LeaseServiceEtcd{Prefix: prefix}
		}
		spec.Scheduling = rapid.SampledFrom([]*v1alpha1.LeaseServiceScheduling{
			nil,
			{},
			{NodeSelector: map[string]string{"disk": "ssd"}},
			{PriorityClassName: "system-node-critical"},
			{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
		}).Draw(t, "scheduling")
		spec.Limits = rapid.SampledFrom([]*v1alpha1.LeaseServiceLimits{
			nil, {}, {Leases: 10}, {Leases: 11}, {Leases: 1, AcquiresPerSecond: 5}, {Leases: 1, AcquiresPerSecond: 4}, {AcquiresPerSecond: 5},
		}).Draw(t, "limits")
		problems, err := limits.Check(namespace, &spec), try(spec)
		if (len(problems) == 0) != (err == nil) {
			t.Fatalf("%+v: the check says %v, the API server says %v", spec, problems, err)
		}
		if err != nil && (!apierrors.IsForbidden(err) || !named(err, problems)) {
			t.Fatalf("%+v: the API server names none of %v: %v", spec, problems, err)
		}
	})
	other := &v1alpha1.LeaseService{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}, Spec: v1alpha1.LeaseServiceSpec{Image: "mine:1"}}
	require.NoError(t, kube.Create(t.Context(), other, client.DryRunAll), "the limits are those of one namespace")
}

// named reports whether the error names the field of one of the problems.
func named(err error, problems []components.LimitError) bool {
	for _, problem := range problems {
		field, _, _ := strings.Cut(problem.Field, "[")
		if strings.Contains(err.Error(), "spec."+field+" is outside") {
			return true
		}
	}
	return false
}

func startAPIServer(t *testing.T) client.Client {
	t.Helper()
	require.NotEmpty(t, os.Getenv("KUBEBUILDER_ASSETS"), "run the tests by make test-unit")
	server := &envtest.Environment{CRDs: crds.All(), ControlPlaneStopTimeout: time.Minute, ControlPlaneStartTimeout: 3 * time.Minute}
	config, err := server.Start()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	config.QPS = -1 // requests come one after another; a limit would only make them wait
	types := runtime.NewScheme()
	require.NoError(t, scheme.AddToScheme(types))
	require.NoError(t, v1alpha1.AddToScheme(types))
	kube, err := client.New(config, client.Options{Scheme: types})
	require.NoError(t, err)
	return kube
}

// install creates the namespace and what of a TenantSpace holds its limits.
func install(t *testing.T, kube client.Client, namespace string, limits components.TenantLimits) {
	t.Helper()
	require.NoError(t, kube.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	setLimits(t, kube, namespace, limits)
}

// setLimits applies what of a TenantSpace holds its limits.
func setLimits(t *testing.T, kube client.Client, namespace string, limits components.TenantLimits) {
	t.Helper()
	resources, err := render.Record(func(ctx *pulumi.Context) error {
		_, err := components.NewTenantSpace(ctx, "x", &components.TenantSpaceArgs{Tenant: namespace, Limits: &limits})
		return err
	})
	require.NoError(t, err)
	for _, res := range resources {
		if strings.HasPrefix(res.Type, "kubernetes:admissionregistration.k8s.io/") {
			object := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: res.Fields})
			require.NoError(t, kube.Apply(t.Context(), object, client.FieldOwner("acceptance")))
		}
	}
}
