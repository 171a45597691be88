// Package zookeeperconfig is the controller of the kind ZooKeeperConfig: it resolves what an object refers to, looks at
// its znode, decides by package plan/znode, and makes the one change that is next.
//
// Nothing here polls. Znodes are watched by the pooled sessions of package zookeeper, Secrets and ConfigMaps by the
// cache, and each wakes exactly the objects that use it.
package zookeeperconfig

import (
	"context"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/plan/znode"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// Session is what the controller needs of a *zookeeper.Session, whose documentation it shares.
type Session interface {
	Key() string
	Observe(ctx context.Context, path string, sub zookeeper.Subscription) (zktypes.Node, error)
	ForgetAll(key string)
	Forget(path, key string)
	CreateBelow(ctx context.Context, key, path string, data []byte, acl, parents []zktypes.ACL) (zktypes.Node, error)
	Set(ctx context.Context, key, path string, data []byte, version int32) (zktypes.Node, error)
	ReplaceParentLists(ctx context.Context, path string, from, to []zktypes.ACL) error
	SetACL(ctx context.Context, key, path string, acl []zktypes.ACL, aversion int32) (zktypes.Node, error)
	DeleteCreated(ctx context.Context, key, path string, czxid int64, version int32) error
}

// Sessions hands out sessions; a *zookeeper.Pool does, by PoolSessions.
type Sessions func(target zookeeper.Target) (Session, error)

// PoolSessions adapts a pool.
func PoolSessions(pool *zookeeper.Pool) Sessions {
	return func(target zookeeper.Target) (Session, error) { return pool.Session(target) }
}

// Settings are what the operator's configuration says about ZooKeeperConfigs.
type Settings struct {
	// Default returns the target of an object that names no connect string. The credential in it goes to that
	// ensemble alone: an object that names another ensemble does not get it, for it would be sent to whatever
	// server the object's author likes; so does the client certificate of its TLS. Nil, or an empty connect string: there is none.
	// An error is shared.ErrCredential, shared.ErrTLS, or both: that cannot be read, and the target has the rest. The component
	// takes the pool's when it is nil.
	Default func(namespace string) (zookeeper.Target, error)
	// Grants restrict which namespaces may write where. Empty: no restriction.
	Grants []znode.Grant
	// DeletionDeadline is how long the deletion of an object may wait for ZooKeeper before its znode is left
	// behind. Zero: 8 s.
	DeletionDeadline time.Duration
	// NamespaceSessions is the number of sessions that the objects of one namespace may use at a time, beside the operator's own:
	// nobody shall use up all that there may be. Zero: 32.
	NamespaceSessions int
	// MoveDeadline is the same for a znode that an object moved away from. Zero: 10 minutes.
	MoveDeadline time.Duration
}

// Parts are what the controller works with.
type Parts struct {
	// Sessions hands out sessions with ensembles.
	Sessions Sessions
	// Wake starts a pass over an object. It must not block.
	Wake func(namespace, name string)
	// Candidates returns the objects whose spec or record names one of the paths. Nil lists all objects.
	Candidates func(ctx context.Context, reader client.Reader, paths []string) ([]v1alpha1.ZooKeeperConfig, error)
	// Recorder takes the events of deletions; all others are the reconciler's. Nil: they are not told.
	Recorder events.EventRecorder
	// Clock tells the time. Nil: the real one.
	Clock clock.PassiveClock
}

// controller holds what outlasts a pass. It is safe for concurrent use.
type controller struct {
	Parts
	settings Settings
	memory   *memory
}

// NewKind is the kind as the reconciler sees it.
func NewKind(parts Parts, settings Settings) reconcile.Kind[*v1alpha1.ZooKeeperConfig, Observation] {
	return newController(parts, settings).kind()
}

func newController(parts Parts, settings Settings) *controller {
	if settings.DeletionDeadline == 0 {
		settings.DeletionDeadline = 8 * time.Second
	}
	if settings.NamespaceSessions == 0 {
		settings.NamespaceSessions = 32
	}
	if settings.MoveDeadline == 0 {
		settings.MoveDeadline = 10 * time.Minute
	}
	if parts.Clock == nil {
		parts.Clock = clock.RealClock{}
	}
	if parts.Candidates == nil {
		parts.Candidates = allObjects
	}
	return &controller{Parts: parts, settings: settings, memory: newMemory()}
}

func (c *controller) kind() reconcile.Kind[*v1alpha1.ZooKeeperConfig, Observation] {
	return reconcile.Kind[*v1alpha1.ZooKeeperConfig, Observation]{
		Name:   "zookeeperconfig",
		New:    func() *v1alpha1.ZooKeeperConfig { return &v1alpha1.ZooKeeperConfig{} },
		Gather: c.gather,
		Decide: c.decide,
		Paused: func(obj *v1alpha1.ZooKeeperConfig) bool { return obj.Spec.Paused },
		Finalizer: &reconcile.Finalizer[*v1alpha1.ZooKeeperConfig, Observation]{
			Name:       v1alpha1.FinalizerZnode,
			WithEffect: true,
			Finalize:   c.finalize,
		},
	}
}

func allObjects(ctx context.Context, reader client.Reader, _ []string) ([]v1alpha1.ZooKeeperConfig, error) {
	list := &v1alpha1.ZooKeeperConfigList{}
	if err := reader.List(ctx, list); err != nil {
		return nil, err
	}
	return list.Items, nil
}

// keyOf names an object to sessions and to the memory.
func keyOf(obj client.Object) string { return obj.GetNamespace() + "/" + obj.GetName() }
