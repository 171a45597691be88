package render_test

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/components/kube"
	"github.com/holdfast-io/holdfast/components/render"
)

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: kube.Type(corev1.SchemeGroupVersion, "ConfigMap"),
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "apps", Name: name, Annotations: map[string]string{"pulumi.com/skipAwait": "true"},
		},
		Data: map[string]string{"a": "1"},
	}
}

func TestManifestsAreWhatTheProgramRegisters(t *testing.T) {
	resources, err := render.Record(func(ctx *pulumi.Context) error {
		for _, name := range []string{"two", "one"} {
			if _, err := kube.New(ctx, name, configMap(name)); err != nil {
				return err
			}
		}
		_, err := kube.New(ctx, "ns", &corev1.Namespace{
			TypeMeta: kube.Type(corev1.SchemeGroupVersion, "Namespace"), ObjectMeta: metav1.ObjectMeta{Name: "apps"},
		})
		return err
	})
	require.NoError(t, err)
	manifests, err := render.Manifests(resources)
	require.NoError(t, err)
	require.Len(t, manifests, 3)
	require.Equal(t, "apps/01-namespace-apps.yaml", manifests[0].Path)
	require.Equal(t, "apps/07-configmap-one.yaml", manifests[1].Path)
	require.Equal(t, "apps/07-configmap-two.yaml", manifests[2].Path)
	require.Equal(t, `apiVersion: v1
data:
  a: "1"
kind: ConfigMap
metadata:
  name: one
  namespace: apps
`, string(manifests[1].Content))
}

func TestTwoResourcesForOneObjectAreRefused(t *testing.T) {
	resources, err := render.Record(func(ctx *pulumi.Context) error {
		if _, err := kube.New(ctx, "a", configMap("same")); err != nil {
			return err
		}
		_, err := kube.New(ctx, "b", configMap("same"))
		return err
	})
	require.NoError(t, err)
	_, err = render.Manifests(resources)
	require.EqualError(t, err, "two objects are both apps/07-configmap-same.yaml")
}

func TestSecretsAreRefused(t *testing.T) {
	_, err := render.Record(func(ctx *pulumi.Context) error {
		var res kube.Resource
		return ctx.RegisterResource("kubernetes:core/v1:Secret", "token", pulumi.Map{
			"apiVersion": pulumi.String("v1"), "kind": pulumi.String("Secret"),
			"metadata":   pulumi.Map{"name": pulumi.String("token")},
			"stringData": pulumi.ToSecret(pulumi.StringMap{"token": pulumi.String("hunter2")}),
		}, &res)
	})
	require.ErrorContains(t, err, "kubernetes:core/v1:Secret token: "+render.ErrSecret.Error())
	require.NotContains(t, err.Error(), "hunter2")
}

func TestManifestsTellArgoCDAndFluxWhatPulumiKnows(t *testing.T) {
	object := func(apiVersion, kind, namespace string, retained bool) render.Resource {
		metadata := map[string]any{"name": "x"}
		if namespace != "" {
			metadata["namespace"] = namespace
		}
		return render.Resource{
			URN: "urn:" + kind, Type: "kubernetes:" + apiVersion + ":" + kind, Name: "x", Parent: "urn:component", RetainOnDelete: retained,
			Fields: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata},
		}
	}
	manifests, err := render.Manifests([]render.Resource{
		object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", false),
		object("v1", "Namespace", "", false),
		object("rbac.authorization.k8s.io/v1", "ClusterRole", "", false),
		object("v1", "ConfigMap", "apps", true),
		object("apps/v1", "Deployment", "apps", false),
		object("dist.system/v1alpha1", "LeaseService", "apps", false),
	})
	require.NoError(t, err)
	kept := map[string]any{"argocd.argoproj.io/sync-options": "Prune=false,Delete=false", "kustomize.toolkit.fluxcd.io/prune": "disabled"}
	wave := func(wave string) map[string]any { return map[string]any{"argocd.argoproj.io/sync-wave": wave} }
	got := map[string]any{}
	for _, manifest := range manifests {
		metadata, _ := manifest.Object["metadata"].(map[string]any)
		got[manifest.Folder()+" "+manifest.URN], _ = metadata["annotations"].(map[string]any)
	}
	require.Equal(t, map[string]any{
		"crds urn:CustomResourceDefinition": kept,
		"x urn:Namespace":                   wave("-1"),
		"x urn:ClusterRole":                 map[string]any(nil),
		"apps urn:ConfigMap":                kept,
		"apps urn:Deployment":               wave("1"),
		"apps urn:LeaseService":             wave("2"),
	}, got)
}
