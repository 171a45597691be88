package gitops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner of what the package applies.
const fieldOwner = client.FieldOwner("holdfast-test")

func connect(tb testing.TB, kubeconfig string) client.Client {
	tb.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		tb.Fatalf("kubeconfig: %v", err)
	}
	config.QPS, config.Burst = 100, 200
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			tb.Fatalf("scheme: %v", err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		tb.Fatalf("client: %v", err)
	}
	return c
}

// install applies the CRDs of a folder, waits until the API server serves them, and makes the namespace.
func install(tb testing.TB, c client.Client, crds, namespace string) {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no CRDs in %s: %v", crds, err)
	}
	var names []string
	for _, file := range files {
		for _, object := range decode(tb, file) {
			apply(tb, c, object)
			names = append(names, object.GetName())
		}
	}
	for _, name := range names {
		poll(tb, startTimeout, "CRD "+name+" is established", func(ctx context.Context) (bool, error) {
			var crd apiextensionsv1.CustomResourceDefinition
			if err := c.Get(ctx, types.NamespacedName{Name: name}, &crd); err != nil {
				return false, err
			}
			for _, condition := range crd.Status.Conditions {
				if condition.Type == apiextensionsv1.Established {
					return condition.Status == apiextensionsv1.ConditionTrue, nil
				}
			}
			return false, nil
		})
	}
	err = c.Create(tb.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		tb.Fatalf("create namespace %s: %v", namespace, err)
	}
}

func decode(tb testing.TB, file string) []*unstructured.Unstructured {
	tb.Helper()
	content, err := os.Open(file)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	defer content.Close()
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(content, 1<<16)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); err != nil {
			if errors.Is(err, io.EOF) {
				return objects
			}
			tb.Fatalf("decode %s: %v", file, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// apply applies an object server-side.
func apply(tb testing.TB, c client.Client, object *unstructured.Unstructured) {
	tb.Helper()
	err := c.Apply(tb.Context(), client.ApplyConfigurationFromUnstructured(object), fieldOwner, client.ForceOwnership)
	if err != nil {
		tb.Fatalf("apply %s %s: %v", object.GetKind(), object.GetName(), err)
	}
}

// annotate sets an annotation of an object.
func annotate(ctx context.Context, c client.Client, apiVersion, kind, namespace, name, key, value string) error {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
	return c.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))
}

func poll(tb testing.TB, timeout time.Duration, what string, check wait.ConditionWithContextFunc) {
	tb.Helper()
	if err := wait.PollUntilContextTimeout(tb.Context(), 50*time.Millisecond, timeout, true, check); err != nil {
		tb.Fatalf("%s, within %s: %v", what, timeout, err)
	}
}
