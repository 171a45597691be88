package leaseservice

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/controller/leaseservice/watch"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
)

// ear is a Listener that remembers what it was asked.
type ear struct {
	targets   []watch.Target
	listening map[types.UID]bool
}

func (e *ear) Observe(_ types.NamespacedName, uid types.UID, targets []watch.Target) map[string]watch.Report {
	e.targets = targets
	e.listening[uid] = true
	return map[string]watch.Report{}
}

func (e *ear) Forget(_ types.NamespacedName, uid types.UID) { delete(e.listening, uid) }

func reader(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) client.Reader {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, scheme.AddToScheme(s))
	require.NoError(t, v1alpha1.AddToScheme(s))
	return fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
}

func lease() *v1alpha1.LeaseService {
	return &v1alpha1.LeaseService{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "locks", UID: "ls"}}
}

func set(owner types.UID) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "locks", UID: "set",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "dist.system/v1alpha1", Kind: "LeaseService", Name: "locks", UID: owner, Controller: new(true)}},
		},
		Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3))},
	}
}

func podOf(name string, owner types.UID, ip string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: name, UID: types.UID(name), Labels: desired.SelectorLabels("locks"),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "locks", UID: owner, Controller: new(true)}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip},
	}
}

func TestGatherTakesItsOwnPodsOnly(t *testing.T) {
	listener := &ear{listening: map[types.UID]bool{}}
	g := newGatherer(listener, desired.Settings{}, Issuer{}, clocktesting.NewFakePassiveClock(now))
	starting := podOf("locks-1", "set", "")
	foreign := podOf("locks-2", "another set", "10.0.0.9")
	stray := podOf("claims-to-lead", "set", "10.0.0.8")
	stray.OwnerReferences = nil
	observed, err := g.gather(t.Context(), reader(t, interceptor.Funcs{}, lease(), set("ls"), podOf("locks-10", "set", "fd00::1"), podOf("locks-0", "set", "10.0.0.1"), starting, foreign, stray), lease())
	require.NoError(t, err)
	var names []string
	for _, p := range observed.Pods {
		names = append(names, p.Name)
	}
	require.Equal(t, []string{"locks-0", "locks-1", "locks-10"}, names, "labels alone do not make a pod ours")
	require.Equal(t, []watch.Target{
		{Pod: "locks-0", UID: "locks-0", Address: "10.0.0.1:7400"},
		{Pod: "locks-10", UID: "locks-10", Address: "[fd00::1]:7400"},
	}, listener.targets, "a pod without an address cannot be asked")
}

func TestGatherIgnoresTheSetOfSomebodyElse(t *testing.T) {
	listener := &ear{listening: map[types.UID]bool{}}
	g := newGatherer(listener, desired.Settings{}, Issuer{}, clocktesting.NewFakePassiveClock(now))
	observed, err := g.gather(t.Context(), reader(t, interceptor.Funcs{}, lease(), set("an earlier one"), podOf("locks-0", "set", "10.0.0.1")), lease())
	require.NoError(t, err)
	require.Nil(t, observed.Set)
	require.False(t, observed.Absent)
	require.Empty(t, observed.Pods)
	require.Empty(t, listener.targets)
	observed, err = g.gather(t.Context(), reader(t, interceptor.Funcs{}, lease()), lease())
	require.NoError(t, err)
	require.True(t, observed.Absent, "there is none of the name")
}

func TestMissingPodsAreTimed(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(now)
	g := newGatherer(&ear{listening: map[types.UID]bool{}}, desired.Settings{}, Issuer{}, clock)
	gather := func(pods ...client.Object) time.Time {
		observed, err := g.gather(t.Context(), reader(t, interceptor.Funcs{}, slices.Concat(pods, []client.Object{lease(), set("ls")})...), lease())
		require.NoError(t, err)
		return observed.MissingSince
	}
	all := []client.Object{podOf("locks-0", "set", ""), podOf("locks-1", "set", ""), podOf("locks-2", "set", "")}
	require.Equal(t, now, gather(all[:2]...))
	clock.SetTime(now.Add(time.Minute))
	require.Equal(t, now, gather(all[:1]...), "still missing, since the first time")
	require.Zero(t, gather(all...))
	require.Equal(t, now.Add(time.Minute), gather(all[:2]...), "missing again")
	g.forget(lease())
	clock.SetTime(now.Add(2 * time.Minute))
	require.Equal(t, now.Add(2*time.Minute), gather(all[:2]...), "an object that is gone leaves nothing behind")
}

// The object may be deleted, and forgotten, while a pass over it is under way: the pass must not leave connections
// to the pods behind.
func TestGatherOfADeletedObjectListensToNobody(t *testing.T) {
	for name, current := range map[string]*v1alpha1.LeaseService{
		"gone":      nil,
		"made anew": {ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "locks", UID: "another"}},
	} {
		t.Run(name, func(t *testing.T) {
			listener := &ear{listening: map[types.UID]bool{}}
			objects := []client.Object{set("ls"), podOf("locks-0", "set", "10.0.0.1")}
			if current != nil {
				objects = append(objects, current)
			}
			g := newGatherer(listener, desired.Settings{}, Issuer{}, clocktesting.NewFakePassiveClock(now))
			_, err := g.gather(t.Context(), reader(t, interceptor.Funcs{}, objects...), lease())
			require.NoError(t, err)
			require.Empty(t, listener.listening)
		})
	}
}

func TestGatherReportsWhatItCannotRead(t *testing.T) {
	broken := errors.New("the cache is not started")
	for name, funcs := range map[string]interceptor.Funcs{
		"reading the StatefulSet": {Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return broken
		}},
		"listing the pods": {List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return broken }},
		"reading the LeaseService again": {Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*v1alpha1.LeaseService); ok {
				return broken
			}
			return c.Get(ctx, key, obj, opts...)
		}},
	} {
		g := newGatherer(&ear{listening: map[types.UID]bool{}}, desired.Settings{}, Issuer{}, clocktesting.NewFakePassiveClock(now))
		_, err := g.gather(t.Context(), reader(t, funcs, lease(), set("ls")), lease())
		require.ErrorIs(t, err, broken)
		require.ErrorContains(t, err, name)
	}
}

func TestSlimPodKeepsWhatIsUsed(t *testing.T) {
	full := well().observed.Pods[0]
	full.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	full.Annotations = map[string]string{"a": "b"}
	full.Spec = corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c"}}}
	want := full.DeepCopy()
	out, err := slimPod(full)
	require.NoError(t, err)
	slim := out.(*corev1.Pod)
	require.Empty(t, slim.ManagedFields)
	require.Empty(t, slim.Spec.Containers)
	require.Equal(t, want.Status, slim.Status)
	require.Equal(t, want.Labels, slim.Labels)
	other, err := slimPod("a tombstone")
	require.NoError(t, err)
	require.Equal(t, "a tombstone", other)
}

func TestPodsStartPassesOverTheirOwner(t *testing.T) {
	requests := ownerOfPod(t.Context(), podOf("locks-0", "set", ""))
	require.Len(t, requests, 1)
	require.Equal(t, types.NamespacedName{Namespace: "team-a", Name: "locks"}, requests[0].NamespacedName)
	require.Empty(t, ownerOfPod(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "other"}}))
}
