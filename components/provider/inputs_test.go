package provider

import (
	"reflect"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/components"
)

func text(value string) resource.PropertyValue { return resource.NewProperty(value) }

func object(fields map[string]resource.PropertyValue) resource.PropertyValue {
	properties := resource.PropertyMap{}
	for key, value := range fields {
		properties[resource.PropertyKey(key)] = value
	}
	return resource.NewProperty(properties)
}

func output(value resource.PropertyValue, known, secret bool, from ...resource.URN) resource.PropertyValue {
	return resource.NewProperty(resource.Output{Element: value, Known: known, Secret: secret, Dependencies: from})
}

func TestInputsAreDecodedIntoTheGoArguments(t *testing.T) {
	in, err := read(resource.PropertyMap{
		"tenant":     text("team-a"),
		"__internal": object(nil),
		"skipAwait":  resource.NewProperty(true),
		"space":      object(map[string]resource.PropertyValue{"quota": object(map[string]resource.PropertyValue{"pods": resource.NewProperty(10.0)})}),
		"namespace":  resource.NewNullProperty(),
		"service": object(map[string]resource.PropertyValue{
			"replicas":      resource.NewProperty(3.0),
			"etcdEndpoints": resource.NewProperty([]resource.PropertyValue{output(text("http://etcd:2379"), true, false, "urn:etcd")}),
			"resources":     object(map[string]resource.PropertyValue{"limits": object(map[string]resource.PropertyValue{"memory": text("64Mi")})}),
		}),
	}, reflect.TypeFor[components.LeaseTenantArgs]())
	require.NoError(t, err)
	require.False(t, in.unknown)
	require.Equal(t, []string{"urn:etcd"}, in.dependencies, "what an argument comes from is not forgotten")

	args := &components.LeaseTenantArgs{}
	require.NoError(t, in.decode(args))
	require.Equal(t, "team-a", args.Tenant)
	require.True(t, args.SkipAwait)
	require.Equal(t, int64(10), args.Space.Quota.Pods().Value())
	require.Equal(t, int32(3), args.Service.Replicas)
	require.Equal(t, []string{"http://etcd:2379"}, args.Service.EtcdEndpoints)
	require.Equal(t, "64Mi", args.Service.Resources.Limits.Memory().String())
}

func TestInputsWithoutAValueYetMakeThePreviewAPlaceholder(t *testing.T) {
	for name, value := range map[string]resource.PropertyValue{
		"an unknown output": output(resource.NewNullProperty(), false, false, "urn:etcd"),
		"computed":          resource.MakeComputed(text("")),
		"deep down":         object(map[string]resource.PropertyValue{"etcdEndpoints": resource.NewProperty([]resource.PropertyValue{resource.MakeComputed(text(""))})}),
	} {
		in, err := read(resource.PropertyMap{"service": value}, reflect.TypeFor[components.LeaseTenantArgs]())
		require.NoError(t, err, name)
		require.True(t, in.unknown, name)
	}
}

func TestSecretInputsAreRefusedWhereTheyWouldBeShown(t *testing.T) {
	for name, value := range map[string]resource.PropertyValue{
		"a secret":                  resource.MakeSecret(text("hunter2")),
		"an output of a resource":   output(text("hunter2"), true, true),
		"one that has no value yet": output(resource.NewNullProperty(), false, true),
		"a secret in an output":     output(resource.MakeSecret(text("hunter2")), true, false),
	} {
		_, err := read(resource.PropertyMap{
			"service": object(map[string]resource.PropertyValue{"image": value}),
		}, reflect.TypeFor[components.LeaseTenantArgs]())
		require.ErrorIs(t, err, errSecretArgument, name)
		require.ErrorContains(t, err, "service.image is secret", name)
		require.NotContains(t, err.Error(), "hunter2", name)
	}
}

func TestSecretTextsStaySecret(t *testing.T) {
	in, err := read(resource.PropertyMap{
		"namespace": text("apps"),
		"secrets":   resource.MakeSecret(object(map[string]resource.PropertyValue{"/db/password": resource.MakeSecret(text("hunter2"))})),
	}, reflect.TypeFor[components.ZooKeeperConfigSetArgs]())
	require.NoError(t, err)
	args := &components.ZooKeeperConfigSetArgs{}
	require.NoError(t, in.decode(args))
	require.Equal(t, "apps", args.Namespace)
	require.Len(t, args.Secrets, 1)
	value, ok := args.Secrets["/db/password"].(pulumi.StringOutput)
	require.True(t, ok)
	require.True(t, pulumi.IsSecret(value))
}

func TestInputsThatNobodyKnowsAreNamed(t *testing.T) {
	in, err := read(resource.PropertyMap{
		"tenant": text("a"), "service": object(map[string]resource.PropertyValue{"replicaz": resource.NewProperty(3.0)}),
	}, reflect.TypeFor[components.LeaseTenantArgs]())
	require.NoError(t, err)
	require.EqualError(t, in.decode(&components.LeaseTenantArgs{}), `arguments: unknown field "replicaz"`)

	in, err = read(resource.PropertyMap{"tenant": resource.NewProperty(3.0)}, reflect.TypeFor[components.LeaseTenantArgs]())
	require.NoError(t, err)
	require.ErrorContains(t, in.decode(&components.LeaseTenantArgs{}), "LeaseTenantArgs.Tenant")
}

func TestDurationsAreTexts(t *testing.T) {
	in, err := read(resource.PropertyMap{"interval": text("1m30s"), "repoURL": text("https://git.example.com/x.git")},
		reflect.TypeFor[components.GitOpsHandoverArgs]())
	require.NoError(t, err)
	args := &components.GitOpsHandoverArgs{}
	require.NoError(t, in.decode(args))
	require.Equal(t, 90*time.Second, args.Interval)

	in, err = read(resource.PropertyMap{"interval": text("often")}, reflect.TypeFor[components.GitOpsHandoverArgs]())
	require.NoError(t, err)
	require.EqualError(t, in.decode(&components.GitOpsHandoverArgs{}), `arguments: interval: "often" is no duration; allowed is one such as 1m30s`)
}
