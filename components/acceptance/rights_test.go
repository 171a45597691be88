package acceptance

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/components/render"
	"github.com/holdfast-io/holdfast/crds"
)

const (
	own, tenant, other = components.DefaultNamespace, "team-a", "somebody-elses"
	anywhere           = ""
)

// right is something that may be done to a kind of objects, or to one of them.
type right struct {
	verb, group, resource, namespace, name string
}

// TestTheOperatorMayDoWhatItNeedsAndNoMore asks a real API server, which has what a Platform and a TenantSpace install, what the
// operator may do there.
func TestTheOperatorMayDoWhatItNeedsAndNoMore(t *testing.T) {
	kube := startAPIServer(t)
	installRights(t, kube)
	allowed := func(r right) bool {
		resource, subresource, _ := strings.Cut(r.resource, "/")
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + own + ":holdfast-operator",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + own, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: r.verb, Group: r.group, Resource: resource, Subresource: subresource, Namespace: r.namespace, Name: r.name,
			},
		}}
		require.NoError(t, kube.Create(t.Context(), review))
		return review.Status.Allowed
	}
	for _, r := range []right{
		{"list", "", "secrets", tenant, ""},
		{"patch", "apps", "statefulsets", tenant, ""},
		{"get", "", "secrets", own, crds.SeedSecret},
		{"patch", "", "configmaps", own, crds.WatchRecord},
		{"patch", "dist.system", "zookeeperconfigs", other, ""}, // whose finalizer may be the operator's
		{"get", "", "namespaces", anywhere, other},
	} {
		// The API server learns of roles a moment after they are made.
		err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) { return allowed(r), nil })
		require.NoError(t, err, "%+v", r)
	}
	for _, r := range []right{
		{"list", "", "secrets", anywhere, ""},
		{"get", "", "secrets", other, "x"},
		{"list", "", "secrets", own, ""},
		{"get", "", "secrets", own, "x"},
		{"patch", "", "secrets", own, crds.SeedSecret},
		{"create", "", "configmaps", own, ""},
		{"patch", "", "configmaps", own, "holdfast-watch-" + tenant},
		{"patch", "", "configmaps", tenant, crds.WatchRecord},
		{"create", "", "pods", tenant, ""},
		{"create", "", "pods/exec", tenant, ""},
		{"create", "", "serviceaccounts/token", tenant, ""},
		{"impersonate", "", "serviceaccounts", tenant, ""},
		{"create", "rbac.authorization.k8s.io", "rolebindings", tenant, ""},
		{"create", "rbac.authorization.k8s.io", "clusterrolebindings", anywhere, ""},
		{"escalate", "rbac.authorization.k8s.io", "clusterroles", anywhere, ""},
		{"bind", "rbac.authorization.k8s.io", "clusterroles", anywhere, "cluster-admin"},
		{"create", "dist.system", "zookeeperconfigs", tenant, ""},
		{"delete", "dist.system", "leaseservices", tenant, ""},
		{"list", "dist.system", "leaseservices", other, ""},
		{"patch", "apps", "statefulsets", other, ""},
		{"list", "", "namespaces", anywhere, ""},
		{"delete", "", "namespaces", anywhere, tenant},
		{"patch", "argoproj.io", "applications", "argocd", ""}, // it serves no ReleaseGuards
		{"*", "*", "*", anywhere, ""},
	} {
		require.False(t, allowed(r), "%+v", r)
	}
}

// installRights applies the namespaces and the roles.
func installRights(t *testing.T, kube client.Client) {
	t.Helper()
	resources, err := render.Record(func(ctx *pulumi.Context) error {
		if _, err := components.NewPlatform(ctx, "holdfast", &components.PlatformArgs{
			Operator:         components.OperatorArgs{Image: "operator", LeaseServiceImage: "lease-service"},
			TenantNamespaces: []string{tenant},
		}); err != nil {
			return err
		}
		_, err := components.NewTenantSpace(ctx, tenant, &components.TenantSpaceArgs{Tenant: tenant})
		return err
	})
	require.NoError(t, err)
	apply := func(prefix string) {
		for _, res := range resources {
			if strings.HasPrefix(res.Type, prefix) {
				object := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: res.Fields})
				require.NoError(t, kube.Apply(t.Context(), object, client.FieldOwner("acceptance")), res.Name)
			}
		}
	}
	apply("kubernetes:core/v1:Namespace")
	apply("kubernetes:rbac.authorization.k8s.io/")
	require.NoError(t, kube.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}))
}
