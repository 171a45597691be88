package acceptance_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/argocd"
	"github.com/holdfast-io/holdfast/operator/internal/controller/releaseguard"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
)

func subject(t *testing.T) testkit.Subject {
	edit := func(name string, change func(*v1alpha1.ReleaseGuardSpec)) testkit.Edit {
		return testkit.Edit{Name: name, Apply: func(obj client.Object) { change(&obj.(*v1alpha1.ReleaseGuard).Spec) }}
	}
	return testkit.Subject{
		Scheme: newScheme(t),
		// The kit's clock moves at random, so nothing here may depend on how long something takes.
		Object: func() reconcile.Object {
			return &v1alpha1.ReleaseGuard{
				ObjectMeta: metav1.ObjectMeta{Name: "tenants"},
				Spec: v1alpha1.ReleaseGuardSpec{
					Revision: "v1", SyncTimeoutSeconds: 86400,
					Rings: []v1alpha1.ReleaseRing{
						{Name: "canary", Applications: []string{"a"}, SoakSeconds: new(int32(5))},
						{Name: "rest", Selector: &metav1.LabelSelector{}, SoakSeconds: new(int32(5))},
					},
				},
			}
		},
		Before: func(ctx context.Context, c client.Client, namespace string) error {
			for _, name := range []string{"a", "b"} {
				if err := createApplication(ctx, c, namespace, name, "v0"); err != nil {
					return err
				}
			}
			return nil
		},
		Edits: []testkit.Edit{
			edit("another revision", func(s *v1alpha1.ReleaseGuardSpec) { s.Revision = "v2" }),
			edit("another attempt", func(s *v1alpha1.ReleaseGuardSpec) { s.Attempt = 1 }),
			edit("one ring for all", func(s *v1alpha1.ReleaseGuardSpec) { s.Revision, s.Rings = "v3", s.Rings[1:] }),
		},
		Pause:      func(obj client.Object, paused bool) { obj.(*v1alpha1.ReleaseGuard).Spec.Paused = paused },
		Reads:      []client.Object{&argocd.Application{}},
		Simulators: []testkit.Simulator{argoCD(func(string, string) string { return "" })},
		Reconciler: func(d reconcile.Dependencies) (ctrlreconcile.Reconciler, error) {
			kind := releaseguard.NewKind(releaseguard.Parts{Query: noQuery, Clock: d.Clock}, releaseguard.Settings{})
			return reconcile.New(kind, d)
		},
		Outside: func(ctx context.Context, namespace string) (map[string]string, error) { return targets(ctx, namespace) },
		// What is begun is written down before the first application is moved.
		Records:  1,
		Volatile: []string{"runningSince", "decisions", "startedTime", "settledTime", "goodSince", "pendingSince"},
	}
}

// createApplication makes an Application as its owner does, with fields that the guard knows nothing of.
func createApplication(ctx context.Context, c client.Client, namespace, name, revision string) error {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"project": "tenants", "destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": name},
		"source": map[string]any{"repoURL": repository, "path": name, "targetRevision": revision},
	}}}
	obj.SetGroupVersionKind(argocd.GroupVersion.WithKind("Application"))
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return c.Create(ctx, obj, client.FieldOwner("somebody-else"))
}

func targets(ctx context.Context, namespace string) (map[string]string, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(argocd.GroupVersion.WithKind("ApplicationList"))
	if err := direct.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, item := range list.Items {
		source, _, _ := unstructured.NestedStringMap(item.Object, "spec", "source")
		project, _, _ := unstructured.NestedString(item.Object, "spec", "project")
		out["Application "+item.GetName()] = project + " " + source["path"] + " " + source["targetRevision"]
	}
	return out, nil
}

func TestKit(t *testing.T) { testkit.Run(t, env, subject(t)) }
