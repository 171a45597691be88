package live

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

func fromYAML(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	encoded, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	object := &unstructured.Unstructured{}
	require.NoError(t, utiljson.Unmarshal(encoded, &object.Object)) // whole numbers as an API client reads them
	return object
}

func TestAnApplicationIsInEffectAtTheCommitOnly(t *testing.T) {
	app := func(sync, revision, health, phase string) *unstructured.Unstructured {
		return fromYAML(t, `{status: {sync: {status: `+sync+`, revision: `+revision+`}, health: {status: `+health+`},
			operationState: {phase: `+phase+`, message: a reason}}}`)
	}
	require.Empty(t, argoWaiting(app("Synced", "abc", "Healthy", "Succeeded"), "abc"))
	for want, object := range map[string]*unstructured.Unstructured{
		`sync status is "OutOfSync", not "Synced" (a reason)`: app("OutOfSync", "abc", "Healthy", "Succeeded"),
		`revision is "old", not "abc" (a reason)`:             app("Synced", "old", "Healthy", "Succeeded"),
		`health is "Degraded", not "Healthy" (a reason)`:      app("Synced", "abc", "Degraded", "Succeeded"),
		`operation is "Running", not "Succeeded" (a reason)`:  app("Synced", "abc", "Healthy", "Running"),
		`sync status is "", not "Synced"`:                     fromYAML(t, `{}`),
	} {
		require.Equal(t, want, argoWaiting(object, "abc"))
	}
}

func TestAKustomizationIsInEffectAtTheCommitOnly(t *testing.T) {
	kustomization := func(status, observed, revision string) *unstructured.Unstructured {
		return fromYAML(t, `{metadata: {generation: 2}, status: {lastAppliedRevision: "main@sha1:`+revision+`",
			conditions: [{type: Ready, status: "`+status+`", observedGeneration: `+observed+`, message: a reason}]}}`)
	}
	require.Empty(t, fluxWaiting(kustomization("True", "2", "abc"), "abc"))
	for want, object := range map[string]*unstructured.Unstructured{
		"condition Ready is False: a reason":                    kustomization("False", "2", "abc"),
		"condition Ready is of generation 1, not 2":             kustomization("True", "1", "abc"),
		`the revision applied is "main@sha1:old", not "abc"`:    kustomization("True", "2", "old"),
		"it has no condition Ready yet":                         fromYAML(t, `{}`),
		"read the conditions: cannot restore slice from string": fromYAML(t, `{status: {conditions: nonsense}}`),
	} {
		require.Contains(t, fluxWaiting(object, "abc"), want)
	}
}

func TestFinalizersThatAreOthers(t *testing.T) {
	require.Equal(t, []string{"example.com/a", "example.com/b"}, othersFinalizers([]string{
		"finalizers.fluxcd.io", "example.com/a", "resources-finalizer.argocd.argoproj.io",
		"resources-finalizer.argocd.argoproj.io/background", "example.com/b",
	}))
	require.Empty(t, othersFinalizers(nil))
}
