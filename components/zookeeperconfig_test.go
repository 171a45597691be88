package components_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/components/render"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

func TestZooKeeperConfigIsAwaited(t *testing.T) {
	text := "on"
	s := record(t, func(ctx *pulumi.Context) error {
		for _, skip := range []bool{false, true} {
			name := map[bool]string{false: "awaited", true: "skipped"}[skip]
			_, err := components.NewZooKeeperConfig(ctx, name, &components.ZooKeeperConfigArgs{
				Metadata: metav1.ObjectMeta{Namespace: "team-a", Name: name},
				Spec:     v1alpha1.ZooKeeperConfigSpec{Path: "/flags/" + name, StringData: &text}, SkipAwait: skip,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	awaited, skipped := s.find("ZooKeeperConfig", "awaited"), s.find("ZooKeeperConfig", "skipped")
	require.Equal(t, "condition=Ready", at(awaited, "metadata", "annotations", "pulumi.com/waitFor"))
	require.Equal(t, "true", at(skipped, "metadata", "annotations", "pulumi.com/skipAwait"))
	require.Equal(t, "on", at(awaited, "spec", "stringData"))
	require.Equal(t, "/flags/awaited", at(awaited, "spec", "path"))
	require.Nil(t, at(awaited, "spec", "data"))

	_, err := render.Record(func(ctx *pulumi.Context) error {
		_, err := components.NewZooKeeperConfig(ctx, "x", &components.ZooKeeperConfigArgs{Metadata: metav1.ObjectMeta{Name: "x"}})
		return err
	})
	require.ErrorContains(t, err, "metadata.namespace")
}

// recorder keeps what a program with secrets registers, which package render refuses to.
type recorder struct {
	mu     sync.Mutex
	inputs map[string]resource.PropertyMap // by logical name
}

func (r *recorder) NewResource(args pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inputs[args.Name] = args.Inputs
	return args.Name, args.Inputs, nil
}

func (r *recorder) Call(pulumi.MockCallArgs) (resource.PropertyMap, error) { return nil, nil }

func TestZooKeeperConfigSetKeepsSecretsOutOfTheObjects(t *testing.T) {
	seen := &recorder{inputs: map[string]resource.PropertyMap{}}
	program := func(ctx *pulumi.Context) error {
		set, err := components.NewZooKeeperConfigSet(ctx, "flags", &components.ZooKeeperConfigSetArgs{
			Namespace: "team-a",
			Values:    map[string]string{"/flags/a": "on", "/flags-a": "off", "/empty": ""},
			// Not marked by the caller: the component does.
			Secrets: map[string]pulumi.StringInput{"/db/password": pulumi.String("hunter2")},
			Common:  v1alpha1.ZooKeeperConfigSpec{DeletionPolicy: v1alpha1.DeletionOrphan},
		})
		if err == nil && len(set.Configs) != 4 {
			err = fmt.Errorf("%d objects", len(set.Configs))
		}
		return err
	}
	require.NoError(t, pulumi.RunErr(program, pulumi.WithMocks("project", "stack", seen)))
	_, err := render.Record(program)
	require.ErrorIs(t, err, render.ErrSecret, "nothing of it goes to Git")

	secret := seen.inputs["flags-values"]
	texts := secret["stringData"]
	require.True(t, texts.ContainsSecrets(), "%v", texts)
	paths := map[string]resource.PropertyMap{}
	for name, inputs := range seen.inputs {
		if name == "flags-values" || !inputs["spec"].IsObject() {
			continue
		}
		require.False(t, inputs.ContainsSecrets(), name)
		require.NotContains(t, fmt.Sprint(inputs.Mappable()), "hunter2", name)
		spec := inputs["spec"].ObjectValue()
		require.Equal(t, "Orphan", spec["deletionPolicy"].StringValue())
		paths[spec["path"].StringValue()] = inputs
	}
	require.Len(t, paths, 4)
	text := func(path string) string { return paths[path]["spec"].ObjectValue()["stringData"].StringValue() }
	name := func(path string) string { return paths[path]["metadata"].ObjectValue()["name"].StringValue() }
	require.Equal(t, []string{"on", "off", ""}, []string{text("/flags/a"), text("/flags-a"), text("/empty")})
	require.NotEqual(t, name("/flags/a"), name("/flags-a"))
	reference := paths["/db/password"]["spec"].ObjectValue()["dataFrom"].ObjectValue()["secretKeyRef"].ObjectValue()
	require.Equal(t, "flags-values", reference["name"].StringValue())
	require.Contains(t, fmt.Sprint(texts), reference["key"].StringValue())
}

func TestZooKeeperConfigSetRefusals(t *testing.T) {
	secret := map[string]pulumi.StringInput{"/a": pulumi.String("x")}
	for want, args := range map[string]components.ZooKeeperConfigSetArgs{
		"namespace is required": {Values: map[string]string{"/a": "x"}},
		"both empty":            {Namespace: "team-a"},
		"path /a is in values":  {Namespace: "team-a", Values: map[string]string{"/a": "x"}, Secrets: secret},
	} {
		_, err := render.Record(func(ctx *pulumi.Context) error {
			_, err := components.NewZooKeeperConfigSet(ctx, "set", &args)
			return err
		})
		require.ErrorContains(t, err, want)
	}
}
