package zookeeper

import (
	"context"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// Session is a session with one ensemble under one credential, whose paths are below the chroot of its target. Those that differ
// in nothing but the chroot share a connection. It reconnects by itself, within the server's session while that lives and with a
// new one after. It is safe for concurrent use; Pool.Session makes one.
//
// Key, in what follows, names the party that makes a request: everybody else who is subscribed to the znode is told of it.
type Session struct {
	on     *session
	target Target
}

// Target returns what the session was made for.
func (s *Session) Target() Target { return s.target }

// Key identifies the connection, which sessions with other chroots may share; it holds no secret.
func (s *Session) Key() string { return s.on.key }

// Established tells whether requests can be sent now.
func (s *Session) Established() bool { return s.on.Established() }

func (s *Session) full(path string) string { return s.target.Connect.Full(path) }

// Observe returns what is known of a znode, and from then on keeps it current for the subscriber: the first call
// reads it and sets a watch (a moment later when many look at once and it is not there), later ones answer from memory, which is
// compared first after a connection was lost. While the ensemble is away it fails with UnavailableError, and the subscriber is
// notified when that ends.
func (s *Session) Observe(ctx context.Context, path string, sub Subscription) (zktypes.Node, error) {
	return s.on.observe(ctx, s.full(path), sub)
}

// Forget ends a party's subscription to a znode.
func (s *Session) Forget(path, key string) { s.on.forgetOne(s.full(path), key) }

// ForgetAll ends all subscriptions of a party on the connection.
func (s *Session) ForgetAll(key string) { s.on.forgetAll(key) }

// Get reads a znode without watching it. It fails with ErrNoNode for one that does not exist and ErrNoAuth for one
// that may not be read.
func (s *Session) Get(ctx context.Context, path string) (Content, error) {
	return s.on.content(ctx, s.full(path))
}

// Children returns the names of a znode's children, in no order.
func (s *Session) Children(ctx context.Context, path string) ([]string, error) {
	return s.on.children(ctx, s.full(path))
}

// Create creates a znode and returns it as it then is. It fails with ErrNodeExists, and with ErrNoNode when the
// parent does not exist. An UnavailableError leaves open whether it was created.
func (s *Session) Create(ctx context.Context, key, path string, data []byte, acl []zktypes.ACL) (zktypes.Node, error) {
	return s.on.createOne(ctx, key, s.full(path), data, acl)
}

// CreateBelow creates a znode, and first what is missing above it, each empty and with the list parents.
func (s *Session) CreateBelow(ctx context.Context, key, path string, data []byte, acl, parents []zktypes.ACL) (zktypes.Node, error) {
	return s.on.createBelow(ctx, key, s.full(path), data, acl, parents)
}

// EnsureParents creates what is missing above a znode, the chroot included, each empty and with the access control
// list. Others may do the same at the same time.
func (s *Session) EnsureParents(ctx context.Context, path string, acl []zktypes.ACL) error {
	return s.on.ensureParents(ctx, s.full(path), acl)
}

// ReplaceParentLists gives each znode above one, those of the chroot included, that has exactly the first list the second one.
// What is not there, or may not be read or changed, is passed over.
func (s *Session) ReplaceParentLists(ctx context.Context, path string, from, to []zktypes.ACL) error {
	return s.on.replaceParentLists(ctx, s.full(path), from, to)
}

// Set replaces the data of a znode whose data has the version, and returns the znode as it then is. Of a znode that is observed
// it fails with ErrBadVersion, too, when the connection was lost since it was last seen: another one can have the version.
func (s *Session) Set(ctx context.Context, key, path string, data []byte, version int32) (zktypes.Node, error) {
	return s.on.set(ctx, key, s.full(path), data, version)
}

// SetACL replaces the access control list of a znode whose list has the version, and returns the znode as it then is. It fails
// as Set does.
func (s *Session) SetACL(ctx context.Context, key, path string, acl []zktypes.ACL, aversion int32) (zktypes.Node, error) {
	return s.on.setACL(ctx, key, s.full(path), acl, aversion)
}

// DeleteCreated deletes a znode that the transaction czxid created, whose data has the version, and that has no children. It
// fails with ErrBadVersion for one that another transaction created, which it asks the server for: a version says nothing of
// that, and what is in memory may be from before an event that is on its way.
func (s *Session) DeleteCreated(ctx context.Context, key, path string, czxid int64, version int32) error {
	return s.on.deleteCreated(ctx, key, s.full(path), czxid, version)
}

// Delete deletes a znode whose data has the version and that has no children.
func (s *Session) Delete(ctx context.Context, key, path string, version int32) error {
	return s.on.remove(ctx, key, s.full(path), version)
}
