package components_test

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-io/holdfast/components"
)

func recordEtcd(t *testing.T, args components.DevEtcdArgs) *stack {
	t.Helper()
	args.Image = "holdfast.local/etcd:dev"
	return record(t, func(ctx *pulumi.Context) error {
		_, err := components.NewDevEtcd(ctx, "etcd", &args)
		return err
	})
}

func TestDevEtcdServesWhereItsEndpointSays(t *testing.T) {
	s := recordEtcd(t, components.DevEtcdArgs{Namespace: "store"})
	s.requireSound()
	require.Equal(t, "http://etcd.store.svc:2379", components.DevEtcdEndpoint("store"))
	service, set := s.find("Service", "etcd-service"), s.find("StatefulSet", "etcd-statefulset")
	require.Equal(t, "etcd", at(service, "metadata", "name"))
	require.Equal(t, "store", at(service, "metadata", "namespace"))
	require.Equal(t, int64(2379), at(service, "spec", "ports", 0, "port"))
	require.Equal(t, at(set, "spec", "template", "metadata", "labels"), at(service, "spec", "selector"))
	container := []any{"spec", "template", "spec", "containers", 0}
	require.Contains(t, at(set, append(container, "command")...), "--advertise-client-urls=http://etcd.store.svc:2379")
	require.Equal(t, true, at(set, append(container, "securityContext", "readOnlyRootFilesystem")...))
	require.Equal(t, true, at(set, "spec", "template", "spec", "securityContext", "runAsNonRoot"))
}

func TestDevEtcdStorage(t *testing.T) {
	volatile := recordEtcd(t, components.DevEtcdArgs{}).find("StatefulSet", "etcd-statefulset")
	require.NotNil(t, at(volatile, "spec", "template", "spec", "volumes", 0, "emptyDir"))
	require.Nil(t, at(volatile, "spec", "volumeClaimTemplates"))

	durable := recordEtcd(t, components.DevEtcdArgs{Storage: resource.MustParse("1Gi"), StorageClassName: "fast"}).
		find("StatefulSet", "etcd-statefulset")
	require.Nil(t, at(durable, "spec", "template", "spec", "volumes"))
	claim := []any{"spec", "volumeClaimTemplates", 0, "spec"}
	require.Equal(t, "1Gi", at(durable, append(claim, "resources", "requests", "storage")...))
	require.Equal(t, "fast", at(durable, append(claim, "storageClassName")...))
}

func TestDevEtcdLetsInItsClientsOnly(t *testing.T) {
	closed := recordEtcd(t, components.DevEtcdArgs{}).find("NetworkPolicy", "etcd-networkpolicy")
	require.Equal(t, []any{"Ingress", "Egress"}, at(closed, "spec", "policyTypes"))
	require.Nil(t, at(closed, "spec", "ingress"))

	open := recordEtcd(t, components.DevEtcdArgs{ClientNamespaces: []string{"team-a"}}).
		find("NetworkPolicy", "etcd-networkpolicy")
	require.Equal(t, []any{"team-a"},
		at(open, "spec", "ingress", 0, "from", 0, "namespaceSelector", "matchExpressions", 0, "values"))
	require.Nil(t, at(open, "spec", "egress"))
}

func TestDevEtcdNeedsAnImage(t *testing.T) {
	_, err := components.NewDevEtcd(nil, "etcd", &components.DevEtcdArgs{})
	require.EqualError(t, err, "DevEtcd etcd: image is required")
}
