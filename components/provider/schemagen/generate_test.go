package schemagen_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/components/provider"
	"github.com/holdfast-io/holdfast/components/provider/schemagen"
)

const module = "github.com/holdfast-io/holdfast/"

func generate(t *testing.T) []byte {
	t.Helper()
	comments, err := schemagen.ReadComments(map[string]string{
		module + "components": "../..", module + "operator/api/v1alpha1": "../../../operator/api/v1alpha1",
	})
	require.NoError(t, err)
	schema, err := schemagen.Generate(provider.Components(), comments)
	require.NoError(t, err)
	return schema
}

func TestTheCommittedSchemaIsCurrent(t *testing.T) {
	schema := generate(t)
	require.Equal(t, string(schema), string(generate(t)), "the same sources must give the same bytes")
	if string(schema) != provider.Schema() { // the difference is for git to show
		t.Fatal("components/provider/schema.json is not current: run make generate")
	}
}

// property finds what the schema says at a path.
func property(t *testing.T, path ...string) any {
	t.Helper()
	var value any
	require.NoError(t, json.Unmarshal([]byte(provider.Schema()), &value))
	for _, step := range path {
		object, ok := value.(map[string]any)
		require.True(t, ok, "%v: %s is in no object", path, step)
		require.Contains(t, object, step, "%v", path)
		value = object[step]
	}
	return value
}

func TestWhatTheArgumentsSayIsInTheSchema(t *testing.T) {
	for token, required := range map[string][]any{
		"DevEtcd":            {"image"},
		"GitOpsHandover":     {"flavour", "repoURL", "path"},
		"LeaseTenant":        {"tenant"},
		"Platform":           {"operator"},
		"TenantSpace":        {"tenant"},
		"ZooKeeperConfigSet": {"namespace"},
	} {
		require.Equal(t, true, property(t, "resources", "holdfast:index:"+token, "isComponent"), token)
		require.Equal(t, required, property(t, "resources", "holdfast:index:"+token, "requiredInputs"), token)
	}
	tenant := []string{"resources", "holdfast:index:LeaseTenant"}
	require.Equal(t, "#/types/holdfast:index:LeaseServiceSpec", property(t, append(tenant, "inputProperties", "service", "$ref")...))
	require.Equal(t, "string", property(t, append(tenant, "properties", "endpoint", "type")...))
	require.NotContains(t, property(t, append(tenant, "inputProperties")...), "parent")
}

func TestTypesOfTheAPIAreInTheSchema(t *testing.T) {
	spec := []string{"types", "holdfast:index:LeaseServiceSpec", "properties"}
	require.Equal(t, "integer", property(t, append(spec, "replicas", "type")...))
	require.Equal(t, "string", property(t, append(spec, "etcdEndpoints", "items", "type")...))
	require.Contains(t, property(t, append(spec, "replicas", "description")...), "number of lease service pods")
	require.NotContains(t, property(t, append(spec, "replicas", "description")...), "+kubebuilder")
	mode := property(t, "types", "holdfast:index:TLSMode", "enum")
	require.Len(t, mode, 3)
	require.Equal(t, "string", property(t, "types", "holdfast:index:ResourceRequirements", "properties", "limits", "additionalProperties", "type"))
	require.Equal(t, true, property(t, "resources", "holdfast:index:ZooKeeperConfigSet", "inputProperties", "secrets", "secret"))
	require.Equal(t, []any{"repoURL", "path"}, property(t, "types", "holdfast:index:ArgoCD", "required"))
	require.NotContains(t, property(t, "types", "holdfast:index:TenantSpaceOptions"), "required", "the LeaseTenant names the tenant")
}
