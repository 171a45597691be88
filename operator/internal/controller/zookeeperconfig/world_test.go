package zookeeperconfig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

var (
	own   = zookeeper.Credential{User: "operator", Password: "secret"}
	mine  = []zktypes.ACL{{Scheme: zktypes.SchemeDigest, ID: zktypes.DigestID(own.User, own.Password), Perms: zktypes.PermAll}}
	begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// world is a controller with the objects and the ensembles that it works on, all in memory and in steps that the test takes.
type world struct {
	*testing.T
	c       *controller
	clock   *clocktesting.FakePassiveClock
	trees   map[string]*tree
	zk      *tree // that of the operator's own connect string
	objects map[string]*v1alpha1.ZooKeeperConfig
	secrets map[string]*corev1.Secret
	count   int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		T: t, clock: clocktesting.NewFakePassiveClock(begin), trees: map[string]*tree{},
		objects: map[string]*v1alpha1.ZooKeeperConfig{}, secrets: map[string]*corev1.Secret{},
	}
	w.zk = w.tree("zk:2181")
	w.restart()
	return w
}

// restart makes another operator, which remembers nothing.
func (w *world) restart() {
	connect, err := zktypes.ParseConnectString("zk:2181")
	require.NoError(w, err)
	w.c = newController(Parts{
		Sessions: func(target zookeeper.Target) (Session, error) {
			return w.tree(target.Connect.Ensemble()).at(target), nil
		},
		Wake: func(string, string) {}, Clock: w.clock,
	}, Settings{
		Default: func(string) (zookeeper.Target, error) {
			return zookeeper.Target{Connect: connect, Credential: own, Own: true}, nil
		},
	})
}

func (w *world) tree(ensemble string) *tree {
	if w.trees[ensemble] == nil {
		w.trees[ensemble] = newTree(ensemble)
		w.trees[ensemble].zxid = int64(len(w.trees)) << 32
	}
	return w.trees[ensemble]
}

// Get and List make it the reader.
func (w *world) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if secret, ok := into.(*corev1.Secret); ok && w.secrets[key.Name] != nil {
		w.secrets[key.Name].DeepCopyInto(secret)
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", into)}, key.Name)
}

func (w *world) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	list, ok := into.(*v1alpha1.ZooKeeperConfigList)
	if !ok {
		return fmt.Errorf("nothing lists %T", into)
	}
	for _, obj := range w.objects {
		list.Items = append(list.Items, *obj.DeepCopy())
	}
	return nil
}

// object adds an object with a znode at a path.
func (w *world) object(name, path string, change ...func(*v1alpha1.ZooKeeperConfigSpec)) *v1alpha1.ZooKeeperConfig {
	w.count++
	data := "v"
	obj := &v1alpha1.ZooKeeperConfig{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID(fmt.Sprintf("uid-%d", w.count)),
			CreationTimestamp: metav1.NewTime(begin.Add(time.Duration(w.count) * time.Second)),
		},
		Spec: v1alpha1.ZooKeeperConfigSpec{Path: path, StringData: &data},
	}
	for _, each := range change {
		each(&obj.Spec)
	}
	w.objects[name] = obj
	return obj
}

// decided gathers and decides.
func (w *world) decided(obj *v1alpha1.ZooKeeperConfig) plan {
	w.Helper()
	observed, err := w.c.gather(w.Context(), w, obj)
	require.NoError(w, err)
	return w.c.decide(obj, observed, w.clock.Now())
}

// work makes the effects of one pass, as the reconciler does, and returns the last plan and what an effect failed with.
func (w *world) work(obj *v1alpha1.ZooKeeperConfig) (plan, error) {
	w.Helper()
	p := w.decided(obj)
	for range 8 {
		if p.Effect == nil || obj.Spec.Paused {
			return p, nil
		}
		controllerutil.AddFinalizer(obj, v1alpha1.FinalizerZnode)
		if obj.Annotations == nil {
			obj.Annotations = map[string]string{}
		}
		maps.Copy(obj.Annotations, p.Effect.Claim)
		if err := p.Effect.Run(w.Context()); err != nil {
			return p, err
		}
		p = w.decided(obj)
	}
	w.Fatalf("no end of effects: %s", p.Effect.What)
	return p, nil
}

// pass makes a pass, and returns its plan.
func (w *world) pass(obj *v1alpha1.ZooKeeperConfig) plan {
	w.Helper()
	p, err := w.work(obj)
	require.NoError(w, err)
	p.Status(obj)
	return p
}

// ready makes passes until the object is Ready.
func (w *world) ready(obj *v1alpha1.ZooKeeperConfig) plan {
	w.Helper()
	var p plan
	for range 5 {
		if p = w.pass(obj); p.Unready == nil {
			require.Equal(w, v1alpha1.ZnodeSynced, obj.Status.State)
			return p
		}
		w.clock.SetTime(w.clock.Now().Add(time.Second))
	}
	w.Fatalf("it is never ready: %v", p.Unready)
	return p
}

// stalled asserts that a pass ends with a reason.
func (w *world) stalled(obj *v1alpha1.ZooKeeperConfig, reason string) plan {
	w.Helper()
	p := w.pass(obj)
	var about *reconcile.StalledError
	require.ErrorAs(w, p.Unready, &about)
	require.Equal(w, reason, about.Reason)
	return p
}

// remove deletes an object, and tells whether it went.
func (w *world) remove(obj *v1alpha1.ZooKeeperConfig) bool {
	w.Helper()
	if obj.DeletionTimestamp == nil {
		obj.DeletionTimestamp = new(metav1.NewTime(w.clock.Now()))
	}
	if !controllerutil.ContainsFinalizer(obj, v1alpha1.FinalizerZnode) {
		delete(w.objects, obj.Name)
		return true
	}
	observed, err := w.c.gather(w.Context(), w, obj)
	require.NoError(w, err)
	err = w.c.finalize(w.Context(), obj, observed)
	var wait *reconcile.WaitError
	if errors.As(err, &wait) {
		return false
	}
	require.NoError(w, err)
	delete(w.objects, obj.Name)
	return true
}

// secret adds a Secret with a credential.
func (w *world) secret(name, user, password string) {
	w.secrets[name] = &corev1.Secret{Data: map[string][]byte{"username": []byte(user), "password": []byte(password)}}
}
