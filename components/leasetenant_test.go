package components_test

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

func recordTenant(t *testing.T, args components.LeaseTenantArgs) *stack {
	t.Helper()
	return record(t, func(ctx *pulumi.Context) error {
		_, err := components.NewLeaseTenant(ctx, "team-a", &args)
		return err
	})
}

func TestLeaseTenantInAGivenNamespaceIsItsLeaseServiceAlone(t *testing.T) {
	s := recordTenant(t, components.LeaseTenantArgs{Tenant: "team-a", Namespace: "apps", Service: v1alpha1.LeaseServiceSpec{
		Replicas: 3, EtcdEndpoints: []string{"http://etcd-cluster:2379"}, LeaseTTLSeconds: 30, Image: "example.com/ls:1",
	}})
	s.requireSound()
	require.Equal(t, []string{"LeaseService"}, s.kinds(s.find("LeaseTenant", "team-a")))
	service := s.find("LeaseService", "team-a-leaseservice")
	require.Equal(t, "kubernetes:dist.system/v1alpha1:LeaseService", service.Type)
	require.Equal(t, "5m30s", service.CreateTimeout, "30 s for each of three replicas")
	require.Equal(t, "team-a", at(service, "metadata", "name"))
	require.Equal(t, "apps", at(service, "metadata", "namespace"))
	require.Equal(t, "condition=Ready", at(service, "metadata", "annotations", "pulumi.com/waitFor"))
	require.Equal(t, map[string]any{
		"replicas": int64(3), "etcdEndpoints": []any{"http://etcd-cluster:2379"}, "leaseTTLSeconds": int64(30),
		"image": "example.com/ls:1",
	}, at(service, "spec"))
}

func TestLeaseTenantDefaults(t *testing.T) {
	s := recordTenant(t, components.LeaseTenantArgs{Tenant: "team-a"})
	service := s.find("LeaseService", "team-a-leaseservice")
	require.Equal(t, int64(1), at(service, "spec", "replicas"))
	require.Equal(t, int64(60), at(service, "spec", "leaseTTLSeconds"))
	require.Equal(t, "team-a", at(service, "metadata", "namespace"))
	require.Nil(t, at(service, "spec", "etcdEndpoints"))
}

func TestLeaseTenantWithItsOwnSpace(t *testing.T) {
	s := recordTenant(t, components.LeaseTenantArgs{Tenant: "team-a", Space: &components.TenantSpaceArgs{Tenant: "ignored"}})
	s.requireSound()
	tenant, space := s.find("LeaseTenant", "team-a"), s.find("TenantSpace", "team-a-space")
	require.Equal(t, tenant.URN, space.Parent)
	binding := s.find("RoleBinding", "team-a-space-operator-rolebinding")
	require.True(t, s.before(binding, s.find("LeaseService", "team-a-leaseservice")), "the Role before the object")
	require.Equal(t, "team-a", at(binding, "metadata", "labels", "dist.system/tenant"))
}

func TestLeaseTenantWithoutAwait(t *testing.T) {
	s := recordTenant(t, components.LeaseTenantArgs{Tenant: "team-a", SkipAwait: true})
	require.Equal(t, map[string]any{"pulumi.com/skipAwait": "true"},
		at(s.find("LeaseService", "team-a-leaseservice"), "metadata", "annotations"))
}

func TestLeaseTenantCutsLongNames(t *testing.T) {
	s := recordTenant(t, components.LeaseTenantArgs{Tenant: strings.Repeat("a", 60), Namespace: "apps"})
	name, _ := at(s.find("LeaseService", "team-a-leaseservice"), "metadata", "name").(string)
	require.Len(t, name, 52)
}

func TestLeaseTenantEndpoint(t *testing.T) {
	endpoint := make(chan string, 1)
	record(t, func(ctx *pulumi.Context) error {
		tenant, err := components.NewLeaseTenant(ctx, "team-a", &components.LeaseTenantArgs{Tenant: "team-a", Namespace: "apps"})
		if err != nil {
			return err
		}
		tenant.Endpoint.ApplyT(func(value string) string {
			endpoint <- value
			return value
		})
		return nil
	})
	require.Equal(t, "team-a.apps.svc:7400", <-endpoint)
}

func TestLeaseServiceNeedsNameAndNamespace(t *testing.T) {
	_, err := components.NewLeaseService(nil, "ls", &components.LeaseServiceArgs{})
	require.EqualError(t, err, `LeaseService ls: metadata.name "" and metadata.namespace "" must both be set`)
}
