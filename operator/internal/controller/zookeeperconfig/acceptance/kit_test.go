package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/controller/zookeeperconfig"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// gated is a session of which the kit counts and disturbs the writes. Several operators share the session below it, each
// under names of its own.
type gated struct {
	*zookeeper.Session
	prefix  string
	through testkit.Through
}

func (g gated) Observe(ctx context.Context, path string, sub zookeeper.Subscription) (zktypes.Node, error) {
	sub.Key = g.prefix + sub.Key
	return g.Session.Observe(ctx, path, sub)
}

func (g gated) Forget(path, key string) { g.Session.Forget(path, g.prefix+key) }
func (g gated) ForgetAll(key string)    { g.Session.ForgetAll(g.prefix + key) }

func (g gated) CreateBelow(ctx context.Context, key, path string, data []byte, acl, parents []zktypes.ACL) (node zktypes.Node, err error) {
	err = g.through(ctx, "create "+path, func() error {
		node, err = g.Session.CreateBelow(ctx, g.prefix+key, path, data, acl, parents)
		return err
	})
	return node, err
}

func (g gated) Set(ctx context.Context, key, path string, data []byte, version int32) (node zktypes.Node, err error) {
	err = g.through(ctx, "set "+path, func() error {
		node, err = g.Session.Set(ctx, g.prefix+key, path, data, version)
		return err
	})
	return node, err
}

func (g gated) SetACL(ctx context.Context, key, path string, acl []zktypes.ACL, aversion int32) (node zktypes.Node, err error) {
	err = g.through(ctx, "setACL "+path, func() error {
		node, err = g.Session.SetACL(ctx, g.prefix+key, path, acl, aversion)
		return err
	})
	return node, err
}

func (g gated) DeleteCreated(ctx context.Context, key, path string, czxid int64, version int32) error {
	return g.through(ctx, "delete "+path, func() error { return g.Session.DeleteCreated(ctx, g.prefix+key, path, czxid, version) })
}

func subject(t *testing.T) testkit.Subject {
	pool := zookeeper.New(poolOptions())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		require.NoError(t, pool.Close(ctx))
	})
	target := func(namespace string) zookeeper.Target {
		return targetAt(t, shared.ConnectString()+"/"+namespace, operatorCredential)
	}
	var operators atomic.Int64
	edit := func(name string, change func(*spec)) testkit.Edit {
		return testkit.Edit{Name: name, Apply: func(obj client.Object) { change(&obj.(*v1alpha1.ZooKeeperConfig).Spec) }}
	}
	wide := []v1alpha1.ZnodeACL{
		{Scheme: "digest", ID: digest(operatorCredential, "a").ID, Perms: "cdrwa"}, {Scheme: "world", ID: "anyone", Perms: "r"},
	}
	return testkit.Subject{
		Scheme: newScheme(t),
		Object: func() reconcile.Object {
			return &v1alpha1.ZooKeeperConfig{
				ObjectMeta: metav1.ObjectMeta{Name: "flag"},
				Spec:       v1alpha1.ZooKeeperConfigSpec{Path: "/flags/checkout", StringData: new("off"), ACL: wide},
			}
		},
		Edits: []testkit.Edit{
			edit("other data, and the default list", func(s *spec) { s.StringData, s.ACL = new("on"), nil }),
			edit("another path", func(s *spec) { s.Path = "/flags/payment" }),
		},
		Pause: func(obj client.Object, paused bool) { obj.(*v1alpha1.ZooKeeperConfig).Spec.Paused = paused },
		Reads: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}},
		Effects: func(d reconcile.Dependencies, through testkit.Through) (ctrlreconcile.Reconciler, error) {
			prefix := fmt.Sprintf("%d:", operators.Add(1))
			kind := zookeeperconfig.NewKind(zookeeperconfig.Parts{
				Sessions: func(target zookeeper.Target) (zookeeperconfig.Session, error) {
					session, err := pool.Session(target)
					return gated{session, prefix, through}, err
				},
				Wake: func(string, string) {}, Clock: d.Clock,
			}, zookeeperconfig.Settings{
				Default: func(namespace string) (zookeeper.Target, error) { return target(namespace), nil },
			})
			return reconcile.New(kind, d)
		},
		Outside: func(ctx context.Context, namespace string) (map[string]string, error) {
			session, err := pool.Session(target(namespace))
			if err != nil {
				return nil, err
			}
			return tree(ctx, session, "/flags")
		},
		// The finalizer with the claim, the znode, and the status.
		MaxWrites: 3,
		Volatile:  []string{"czxid", "lastSyncedTime", v1alpha1.AnnotationZnodeClaim, "version", "aclVersion", "uid"},
	}
}

// tree is the znodes below a path, with data and lists.
func tree(ctx context.Context, session *zookeeper.Session, path string) (map[string]string, error) {
	out := map[string]string{}
	names, err := session.Children(ctx, path)
	if errors.Is(err, zookeeper.ErrNoNode) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		content, err := session.Get(ctx, path+"/"+name)
		if err != nil {
			return nil, err
		}
		out[path+"/"+name] = fmt.Sprintf("%q %s", content.Value, strings.Join(zktypes.ACLStrings(content.ACL), " "))
	}
	return out, nil
}

func TestKit(t *testing.T) { testkit.Run(t, env, subject(t)) }
