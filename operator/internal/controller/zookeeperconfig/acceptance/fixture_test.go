package acceptance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/conditions"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
)

// object makes a ZooKeeperConfig of the path and the data, changed by the functions.
func (f *fixture) object(name, path, data string, change ...func(*v1alpha1.ZooKeeperConfigSpec)) *v1alpha1.ZooKeeperConfig {
	obj := &v1alpha1.ZooKeeperConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: name},
		Spec:       v1alpha1.ZooKeeperConfigSpec{Path: path, StringData: &data},
	}
	for _, each := range change {
		each(&obj.Spec)
	}
	return obj
}

func (f *fixture) create(obj client.Object) {
	f.Helper()
	require.NoError(f, f.client.Create(f.ctx, obj))
}

// get returns an object, or nil.
func (f *fixture) get(name string) *v1alpha1.ZooKeeperConfig {
	f.Helper()
	obj := &v1alpha1.ZooKeeperConfig{}
	err := f.client.Get(f.ctx, client.ObjectKey{Namespace: f.ns, Name: name}, obj)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(f, err)
	return obj
}

// edit changes the spec, as a user does.
func (f *fixture) edit(name string, change func(*v1alpha1.ZooKeeperConfigSpec)) {
	f.Helper()
	f.eventually("the edit of "+name, func() bool {
		obj := f.get(name)
		change(&obj.Spec)
		err := f.client.Update(f.ctx, obj)
		if apierrors.IsConflict(err) {
			return false
		}
		require.NoError(f, err)
		return true
	})
}

func (f *fixture) remove(name string) {
	f.Helper()
	require.NoError(f, f.client.Delete(f.ctx, &v1alpha1.ZooKeeperConfig{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: name}}))
}

func (f *fixture) eventually(what string, condition func() bool) {
	f.Helper()
	err := wait.PollUntilContextTimeout(f.ctx, 5*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		f.Fatalf("never: %s\nobjects:\n%s", what, f.describe())
	}
}

func (f *fixture) describe() string {
	list := &v1alpha1.ZooKeeperConfigList{}
	if err := f.client.List(context.WithoutCancel(f.ctx), list, client.InNamespace(f.ns)); err != nil {
		return err.Error()
	}
	var out bytes.Buffer
	for i := range list.Items {
		if i == 5 {
			break
		}
		item := &list.Items[i]
		fmt.Fprintf(&out, "%s: generation %d, deleted %v, annotations %v\n  %+v\n", item.Name, item.Generation, item.DeletionTimestamp, item.Annotations, item.Status)
	}
	return out.String()
}

// ready waits until an object is Ready for its present generation.
func (f *fixture) ready(name string) *v1alpha1.ZooKeeperConfig {
	f.Helper()
	var obj *v1alpha1.ZooKeeperConfig
	f.eventually(name+" is Ready", func() bool {
		obj = f.get(name)
		return obj != nil && obj.Status.ObservedGeneration == obj.Generation &&
			meta.IsStatusConditionTrue(obj.Status.Conditions, v1alpha1.ConditionReady)
	})
	require.NoError(f, conditions.Check(obj))
	require.Equal(f, v1alpha1.ZnodeSynced, obj.Status.State)
	return obj
}

// not waits until an object is not Ready for a reason.
func (f *fixture) not(name, reason string) *v1alpha1.ZooKeeperConfig {
	f.Helper()
	var obj *v1alpha1.ZooKeeperConfig
	f.eventually(name+" says "+reason, func() bool {
		obj = f.get(name)
		if obj == nil {
			return false
		}
		ready := conditions.Get(obj, v1alpha1.ConditionReady)
		return ready != nil && ready.Status != metav1.ConditionTrue && ready.Reason == reason && ready.ObservedGeneration == obj.Generation
	})
	require.NoError(f, conditions.Check(obj))
	return obj
}

func (f *fixture) gone(name string) {
	f.Helper()
	f.eventually(name+" is gone", func() bool { return f.get(name) == nil })
}

// catchUp makes the hand's server see everything that was done before: of several servers it may not be the operator's. A write
// is answered after all writes before it, also one that is refused.
func (f *fixture) catchUp() {
	f.Helper()
	err := f.hand.Delete(f.ctx, "", "/never-there", 0)
	var away *zookeeper.UnavailableError
	if !errors.As(err, &away) {
		require.ErrorIs(f, err, zookeeper.ErrNoNode)
	}
}

// znode reads a znode, which must exist.
func (f *fixture) znode(path string) zookeeper.Content {
	f.Helper()
	f.catchUp()
	var content zookeeper.Content
	f.eventually("reading "+path, func() bool {
		var err error
		content, err = f.hand.Get(f.ctx, path)
		var away *zookeeper.UnavailableError
		if errors.As(err, &away) {
			return false // the hand has not noticed yet that the server is back
		}
		require.NoError(f, err, path)
		return true
	})
	return content
}

func (f *fixture) holds(path, data string) zookeeper.Content {
	f.Helper()
	var content zookeeper.Content
	f.eventually(fmt.Sprintf("%s holds %q", path, data), func() bool {
		var err error
		content, err = f.hand.Get(f.ctx, path)
		return err == nil && string(content.Value) == data
	})
	return content
}

func (f *fixture) absent(path string) {
	f.Helper()
	f.catchUp()
	_, err := f.hand.Get(f.ctx, path)
	require.ErrorIs(f, err, zookeeper.ErrNoNode, path)
}

// events returns the reasons of the events about an object, in no order.
func (f *fixture) events(name string) map[string]int {
	f.Helper()
	list := &eventsv1.EventList{}
	require.NoError(f, f.client.List(f.ctx, list, client.InNamespace(f.ns)))
	out := map[string]int{}
	for _, event := range list.Items {
		if event.Regarding.Name == name {
			count := 1
			if event.Series != nil {
				count = int(event.Series.Count)
			}
			out[event.Reason] += count
		}
	}
	return out
}

func (f *fixture) secret(name string, data map[string]string) {
	f.Helper()
	f.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: name}, StringData: data})
}

// buffer takes logs from many goroutines.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// fixed is a default that is the same for every namespace.
func fixed(target zookeeper.Target) func(string) (zookeeper.Target, error) {
	return func(string) (zookeeper.Target, error) { return target, nil }
}

func (f *fixture) deleteSecret(name string) {
	f.Helper()
	require.NoError(f, f.client.Delete(f.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: name}}))
}
