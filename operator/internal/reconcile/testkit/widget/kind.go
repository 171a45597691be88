package widget

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

// Finalizer of a Widget.
const Finalizer = "test.dist.system/widget"

// Observation is what a Widget's decision looks at.
type Observation struct {
	// Set is the StatefulSet, or nil.
	Set *appsv1.StatefulSet
}

// Owns lists the types of the children.
func Owns() []client.Object {
	return []client.Object{&corev1.ConfigMap{}, &corev1.Service{}, &appsv1.StatefulSet{}}
}

// Kind returns the kind, without a finalizer.
func Kind() reconcile.Kind[*Widget, Observation] {
	return reconcile.Kind[*Widget, Observation]{
		Name:   "widget",
		New:    func() *Widget { return &Widget{} },
		Owns:   Owns(),
		Gather: gather,
		Decide: Decide,
		Paused: func(w *Widget) bool { return w.Spec.Paused },
	}
}

// KindWithFinalizer returns the kind with a finalizer that calls cleanUp.
func KindWithFinalizer(cleanUp func(*Widget) error) reconcile.Kind[*Widget, Observation] {
	kind := Kind()
	kind.Finalizer = &reconcile.Finalizer[*Widget, Observation]{
		Name:     Finalizer,
		Finalize: func(_ context.Context, w *Widget, _ Observation) error { return cleanUp(w) },
	}
	return kind
}

func gather(ctx context.Context, reader client.Reader, w *Widget) (Observation, error) {
	set := &appsv1.StatefulSet{}
	err := reader.Get(ctx, client.ObjectKeyFromObject(w), set)
	if apierrors.IsNotFound(err) {
		return Observation{}, nil
	}
	return Observation{Set: set}, err
}

// Decide is the decision of the kind.
func Decide(w *Widget, observed Observation, _ time.Time) reconcile.Plan[*Widget] {
	if w.Spec.Invalid {
		return reconcile.Plan[*Widget]{Unready: reconcile.Stalled("InvalidSpec", "spec.invalid is true; only false works")}
	}
	plan := reconcile.Plan[*Widget]{
		Children: []client.Object{configMap(w), service(w)},
		Prune:    Owns(),
		Message:  fmt.Sprintf("%d of %d replicas are ready", w.Spec.Size, w.Spec.Size),
	}
	var ready int32
	if w.Spec.Size > 0 {
		plan.Children = append(plan.Children, statefulSet(w))
		ready, plan.Unready = progress(w, observed.Set)
	}
	plan.Status = func(w *Widget) { w.Status.ReadyReplicas = ready }
	if before := w.Status.ReadyReplicas; before != ready {
		plan.Events = []reconcile.Event{{Type: corev1.EventTypeNormal, Reason: "Scaled", Message: fmt.Sprintf("from %d to %d", before, ready)}}
	}
	return plan
}

func progress(w *Widget, set *appsv1.StatefulSet) (int32, error) {
	if set == nil {
		return 0, reconcile.Wait(0, "Progressing", "the StatefulSet is not there yet")
	}
	ready := set.Status.ReadyReplicas
	if set.Status.ObservedGeneration < set.Generation || ready != w.Spec.Size {
		return ready, reconcile.Wait(0, "Progressing", "%d of %d replicas are ready", ready, w.Spec.Size)
	}
	return ready, nil
}

func meta(w *Widget) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: w.Name, Namespace: w.Namespace, Labels: map[string]string{"app": w.Name}}
}

func configMap(w *Widget) client.Object {
	return &corev1.ConfigMap{ObjectMeta: meta(w), Data: w.Spec.Data}
}

func service(w *Widget) client.Object {
	return &corev1.Service{ObjectMeta: meta(w), Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone,
		Selector:  map[string]string{"app": w.Name},
		// The protocol, which is part of the key of the list, is left to the server's default on purpose.
		Ports: []corev1.ServicePort{
			{Name: "a", Port: 1, TargetPort: intstr.FromInt32(1)},
			{Name: "b", Port: 2, TargetPort: intstr.FromString("b")},
		},
	}}
}

func statefulSet(w *Widget) client.Object {
	return &appsv1.StatefulSet{ObjectMeta: meta(w), Spec: appsv1.StatefulSetSpec{
		Replicas:    &w.Spec.Size,
		ServiceName: w.Name,
		Selector:    &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.Name}},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": w.Name}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", Image: "example.com/main:1",
				Ports: []corev1.ContainerPort{{Name: "a", ContainerPort: 1}},
				Env:   []corev1.EnvVar{{Name: "SIZE", Value: fmt.Sprint(w.Spec.Size)}},
			}}},
		},
	}}
}
