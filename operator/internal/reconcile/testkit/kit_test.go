package testkit_test

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit/widget"
)

var env *testkit.Environment // set once, by TestMain

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, &env, widget.CRD())) }

func subject(t testing.TB) testkit.Subject {
	scheme, err := widget.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	return testkit.Subject{
		Scheme: scheme,
		Object: func() reconcile.Object {
			return &widget.Widget{
				ObjectMeta: metav1.ObjectMeta{Name: "w"},
				Spec:       widget.Spec{Data: map[string]string{"a": "1", "b": "2"}, Size: 2},
			}
		},
		Edits: []testkit.Edit{
			{Name: "a field less and one changed", Apply: func(obj client.Object) {
				obj.(*widget.Widget).Spec.Data = map[string]string{"a": "changed"}
			}},
			{Name: "a child less", Apply: func(obj client.Object) { obj.(*widget.Widget).Spec.Size = 0 }},
			{Name: "a bigger child", Apply: func(obj client.Object) { obj.(*widget.Widget).Spec.Size = 3 }},
		},
		Pause:      func(obj client.Object, paused bool) { obj.(*widget.Widget).Spec.Paused = paused },
		Owns:       widget.Owns(),
		Reads:      []client.Object{&corev1.Pod{}},
		Simulators: []testkit.Simulator{testkit.StatefulSets(nil)},
		MaxWrites:  9,
		Reconciler: func(d reconcile.Dependencies) (ctrlreconcile.Reconciler, error) {
			return reconcile.New(widget.Kind(), d)
		},
	}
}

func TestKindPasses(t *testing.T) { testkit.Run(t, env, subject(t)) }

func TestKindWithFinalizerPasses(t *testing.T) {
	s := subject(t)
	s.Reconciler = func(d reconcile.Dependencies) (ctrlreconcile.Reconciler, error) {
		return reconcile.New(widget.KindWithFinalizer(func(*widget.Widget) error { return nil }), d)
	}
	s.MaxWrites++
	testkit.Run(t, env, s)
}
