package live_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/holdfast-io/holdfast/stacks/internal/live"
)

// api is a real API server without controllers.
var api *rest.Config

func TestMain(m *testing.M) {
	code, err := withAPI(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withAPI(m *testing.M) (code int, err error) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		return 1, errors.New("KUBEBUILDER_ASSETS is not set: tools/build.sh kubernetes builds what it names and prints the folder")
	}
	server := &envtest.Environment{ControlPlaneStartTimeout: 2 * time.Minute, ControlPlaneStopTimeout: 2 * time.Minute}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if api, err = server.Start(); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

type world struct {
	t       *testing.T
	client  client.Client
	cluster *live.Cluster
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c, err := client.New(api, client.Options{})
	require.NoError(t, err)
	cluster, err := live.ForConfig(api)
	require.NoError(t, err)
	return &world{t, c, cluster}
}

func configMap(name string, data, annotations map[string]any) map[string]any {
	metadata := map[string]any{"name": name, "namespace": "default"}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
}

func (w *world) apply(manager string, manifest map[string]any) {
	w.t.Helper()
	object := (&unstructured.Unstructured{Object: manifest}).DeepCopy()
	require.NoError(w.t, w.client.Apply(w.t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(manager)))
}

func (w *world) get(manifest map[string]any) *unstructured.Unstructured {
	w.t.Helper()
	object, err := w.cluster.Get(w.t.Context(), manifest)
	require.NoError(w.t, err)
	return object
}

func (w *world) compare(owner live.Owner, manifest map[string]any) []live.Difference {
	w.t.Helper()
	differences, err := w.cluster.Compare(w.t.Context(), owner, []map[string]any{manifest})
	require.NoError(w.t, err)
	return differences
}

const pulumiManager = "pulumi-kubernetes-1a2b3c"

func TestCompareSeesWhatTheOwnerHasAndTheManifestHasNot(t *testing.T) {
	w := newWorld(t)
	w.apply(pulumiManager, configMap("compared", map[string]any{"a": "1", "extra": "2"}, map[string]any{"pulumi.com/waitFor": "x"}))
	rendered := configMap("compared", map[string]any{"a": "1"}, map[string]any{"argocd.argoproj.io/sync-wave": "1"})
	require.Equal(t, []live.Difference{{
		Object: "ConfigMap default/compared", Lines: []string{`data.extra: "2" now, nothing then`},
	}}, w.compare(live.Pulumi(), rendered))
	require.Empty(t, w.compare(live.ArgoCD(), rendered), "who does not have the field would leave it alone")

	w.apply(pulumiManager, configMap("compared", map[string]any{"a": "1"}, nil))
	require.Empty(t, w.compare(live.Pulumi(), rendered))
	before := w.get(rendered)
	changed := w.compare(live.Flux(), configMap("compared", map[string]any{"a": "2"}, nil))
	require.Equal(t, []string{`data.a: "1" now, "2" then`}, changed[0].Lines, "a conflict is what it would do, and no error")
	require.Equal(t, before, w.get(rendered), "a comparison changes nothing")
}

func TestCompareOfWhatIsNotThere(t *testing.T) {
	w := newWorld(t)
	require.Equal(t, []string{"is not in the cluster"}, w.compare(live.Pulumi(), configMap("absent", nil, nil))[0].Lines)
	unknown := map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "x", "namespace": "default"}}
	require.Equal(t, []string{"is not in the cluster"}, w.compare(live.Pulumi(), unknown)[0].Lines)
	items, err := w.cluster.List(t.Context(), "example.com/v1", "Thing", "default")
	require.NoError(t, err)
	require.Empty(t, items)
	for kind, want := range map[string]bool{"example.com/v1 Thing": false, "v1 Thing": false, "v1 ConfigMap": true} {
		apiVersion, name, _ := strings.Cut(kind, " ")
		served, err := w.cluster.Serves(apiVersion, name)
		require.NoError(t, err)
		require.Equal(t, want, served, kind)
	}
	require.Contains(t, w.compare(live.Pulumi(), map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "default"}, "nonsense": true,
	})[0].Lines[0], "nonsense")
}

func TestReleaseLeavesWhatTheNewOwnerHas(t *testing.T) {
	w := newWorld(t)
	both := configMap("released", map[string]any{"a": "1", "b": "2"}, nil)
	w.apply(pulumiManager, configMap("released", map[string]any{"a": "1", "b": "2", "mine": "3"}, map[string]any{"pulumi.com/skipAwait": "true"}))
	w.apply("argocd-controller", both)
	uid := w.get(both).GetUID()
	require.True(t, live.Pulumi().Holds(w.get(both)))
	require.True(t, live.ArgoCD().Holds(w.get(both)))
	for range 2 { // the second time it finds nothing to do
		require.NoError(t, w.cluster.Release(t.Context(), live.Pulumi(), both))
		object := w.get(both)
		require.Equal(t, map[string]any{"a": "1", "b": "2"}, object.Object["data"])
		require.Empty(t, object.GetAnnotations())
		require.Equal(t, uid, object.GetUID())
		require.False(t, live.Pulumi().Touches(object))
		require.True(t, live.ArgoCD().Holds(object))
	}
	w.apply("argocd-controller", configMap("released", map[string]any{"a": "1"}, nil))
	require.Equal(t, map[string]any{"a": "1"}, w.get(both).Object["data"], "a field that the one owner drops is gone")
}

func TestReleaseTakesWhatWasWrittenByUpdateToo(t *testing.T) {
	w := newWorld(t)
	role := func(verb string, annotations map[string]any) map[string]any {
		metadata := map[string]any{"name": "reconciled", "namespace": "default"}
		if annotations != nil {
			metadata["annotations"] = annotations
		}
		return map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
			"rules": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": []any{verb}}},
		}
	}
	// As Argo CD does with roles: it creates by update, and applies.
	marked := map[string]any{"argocd.argoproj.io/tracking-id": "x"}
	object := (&unstructured.Unstructured{Object: role("get", marked)}).DeepCopy()
	require.NoError(t, w.client.Create(t.Context(), object, client.FieldOwner("argocd-application-controller")))
	w.apply("argocd-controller", role("get", marked))
	w.apply(pulumiManager, role("get", nil))

	require.NoError(t, w.cluster.Release(t.Context(), live.ArgoCD(), role("get", nil)))
	released := w.get(role("get", nil))
	require.Empty(t, released.GetAnnotations())
	require.False(t, live.ArgoCD().Touches(released))
	require.True(t, slices.ContainsFunc(released.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == pulumiManager
	}))
	w.apply(pulumiManager, role("list", nil)) // which would conflict if anybody else had the rules
}

func TestReleaseMakesNothing(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.cluster.Release(t.Context(), live.Pulumi(), configMap("never-made", nil, nil)))
	require.Nil(t, w.get(configMap("never-made", nil, nil)))
}

func TestOnlyTheKeepersFinalizersAreTakenOff(t *testing.T) {
	w := newWorld(t)
	manifest := configMap("finalized", nil, nil)
	// The API server lets objects of its own kinds have no other names than such.
	const others, keepers = "example.com/still-needed", "resources-finalizer.argocd.argoproj.io/background"
	manifest["metadata"].(map[string]any)["finalizers"] = []any{keepers, others}
	w.apply("somebody", manifest)
	stale := w.get(manifest)
	manifest["data"] = map[string]any{"a": "b"}
	w.apply("somebody", manifest)

	require.NoError(t, w.cluster.LetGo(t.Context(), stale), "it is looked at again")
	require.Equal(t, []string{keepers, others}, w.get(manifest).GetFinalizers(), "it has changed since it was read")
	require.NoError(t, w.cluster.LetGo(t.Context(), w.get(manifest)))
	after := w.get(manifest)
	require.Equal(t, []string{others}, after.GetFinalizers())
	require.NoError(t, w.cluster.LetGo(t.Context(), after.DeepCopy()))
	require.Equal(t, after.GetResourceVersion(), w.get(manifest).GetResourceVersion(), "there was nothing to do")

	w.apply("other", configMap("gone", nil, nil))
	gone := w.get(configMap("gone", nil, nil))
	gone.SetFinalizers([]string{keepers})
	require.NoError(t, w.client.Delete(t.Context(), gone.DeepCopy()))
	require.NoError(t, w.cluster.LetGo(t.Context(), gone))
}
