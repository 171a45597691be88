// Package acceptance holds the tests of the kind LeaseService that need a real API server: the schema and its rules,
// the reconciler's test kit, and the controller in a manager with the permissions that it is installed with.
package acceptance_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/crds"
	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
)

var env *testkit.Environment // set once, by TestMain

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, &env, crds.All()...)) }

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, scheme.AddToScheme(s))
	require.NoError(t, v1alpha1.AddToScheme(s))
	return s
}

func newClient(t testing.TB) client.Client {
	t.Helper()
	c, err := client.New(env.Config, client.Options{Scheme: newScheme(t)})
	require.NoError(t, err)
	return c
}

func newNamespace(t testing.TB, c client.Client) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-"}}
	require.NoError(t, c.Create(testkit.Context(t), namespace))
	return namespace.Name
}

// example reads a manifest of the documentation, as a user would apply it.
func example(t testing.TB, file, namespace string) *unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "..", "docs", "examples", file))
	require.NoError(t, err)
	return manifest(t, content, namespace)
}

func manifest(t testing.TB, content []byte, namespace string) *unstructured.Unstructured {
	t.Helper()
	require.False(t, bytes.Contains(content, []byte("\n---")), "one object a file")
	u := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(content, &u.Object))
	u.SetNamespace(namespace)
	return u
}

// minimal is a manifest with a name and the given lines of YAML as its spec.
func minimal(t testing.TB, namespace, name, spec string) *unstructured.Unstructured {
	t.Helper()
	return manifest(t, fmt.Appendf(nil, "apiVersion: dist.system/v1alpha1\nkind: LeaseService\nmetadata: {name: %q}\nspec: %s\n", name, spec), namespace)
}
