package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// Create creates a znode and returns it as it then is. It fails with ErrNodeExists, and with ErrNoNode when the
// parent does not exist. An UnavailableError leaves open whether it was created.
func (s *Session) Create(ctx context.Context, key, path string, data []byte, acl []zktypes.ACL) (zktypes.Node, error) {
	return s.write(ctx, key, path, &creation{data, acl}, func(full string) error { return s.create(ctx, full, data, acl) })
}

// CreateBelow creates a znode, and first what is missing above it, each empty and with the list parents. It tries
// without first: most znodes have siblings.
func (s *Session) CreateBelow(ctx context.Context, key, path string, data []byte, acl, parents []zktypes.ACL) (zktypes.Node, error) {
	node, err := s.Create(ctx, key, path, data, acl)
	if !errors.Is(err, ErrNoNode) {
		return node, err
	}
	if err := s.EnsureParents(ctx, path, parents); err != nil {
		return zktypes.Node{}, err
	}
	return s.Create(ctx, key, path, data, acl)
}

// EnsureParents creates what is missing above a znode, the chroot included, each empty and with the access control
// list. Others may do the same at the same time.
func (s *Session) EnsureParents(ctx context.Context, path string, acl []zktypes.ACL) error {
	for _, parent := range zktypes.Ancestors(s.target.Connect.Full(path)) {
		_, err := do(ctx, s, "create", func(c *zk.Conn) (string, error) {
			// Asking first costs a read, and spares a transaction of the whole ensemble.
			if found, _, err := c.Exists(parent); err != nil || found {
				return "", err
			}
			return c.Create(parent, nil, zk.FlagPersistent, toACL(acl))
		})
		if err != nil && !errors.Is(err, ErrNodeExists) {
			return fmt.Errorf("create the parent %s: %w", parent, err)
		}
	}
	return nil
}

// ReplaceParentLists gives each znode above one that has exactly the first list the second one. What is not there, or may not be
// read or changed, is passed over.
func (s *Session) ReplaceParentLists(ctx context.Context, path string, from, to []zktypes.ACL) error {
	for _, parent := range zktypes.Ancestors(s.target.Connect.Full(path)) {
		is, err := s.list(ctx, parent)
		if err == nil && zktypes.EqualACL(fromACL(is.acl), from) {
			_, err = do(ctx, s, "setACL", func(c *zk.Conn) (*zk.Stat, error) { return c.SetACL(parent, toACL(to), is.stat.Aversion) })
		}
		if err != nil && !answered(err) {
			return fmt.Errorf("replace the access control list of the parent %s: %w", parent, err)
		}
	}
	return nil
}

// Set replaces the data of a znode whose data has the version, and returns the znode as it then is. Of a znode that is observed
// it fails with ErrBadVersion, too, when the connection was lost since it was last seen: another one can have the version.
func (s *Session) Set(ctx context.Context, key, path string, data []byte, version int32) (zktypes.Node, error) {
	still := s.seen(path)
	return s.write(ctx, key, path, nil, func(full string) error {
		_, err := doIf(ctx, s, still, "set", func(c *zk.Conn) (*zk.Stat, error) { return c.Set(full, data, version) })
		return err
	})
}

// SetACL replaces the access control list of a znode whose list has the version, and returns the znode as it then is. It fails
// as Set does.
func (s *Session) SetACL(ctx context.Context, key, path string, acl []zktypes.ACL, aversion int32) (zktypes.Node, error) {
	still := s.seen(path)
	return s.write(ctx, key, path, nil, func(full string) error {
		_, err := doIf(ctx, s, still, "setACL", func(c *zk.Conn) (*zk.Stat, error) { return c.SetACL(full, toACL(acl), aversion) })
		return err
	})
}

// seen returns what fails once the connection on which a znode was seen is lost. It returns nil for one that was never seen.
func (s *Session) seen(path string) func() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.watches.entries[s.target.Connect.Full(path)]
	if e == nil || !e.seen {
		return nil
	}
	return s.unbroken(e.epoch)
}

// unbroken returns what fails once a connection is lost.
func (s *Session) unbroken(epoch uint64) func() error {
	return func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.epoch != epoch {
			return fmt.Errorf("the connection was lost since the znode was seen: %w", ErrBadVersion)
		}
		return nil
	}
}

// DeleteCreated deletes a znode that the transaction czxid created, whose data has the version, and that has no children. It
// fails with ErrBadVersion for one that another transaction created, which it asks the server for: a version says nothing of
// that, and what is in memory may be from before an event that is on its way.
func (s *Session) DeleteCreated(ctx context.Context, key, path string, czxid int64, version int32) error {
	s.mu.Lock()
	still := s.unbroken(s.epoch)
	s.mu.Unlock()
	_, err := s.write(ctx, key, path, nil, func(full string) error {
		stat, err := s.stat(ctx, full)
		switch {
		case err != nil:
			return err
		case stat == nil:
			return fmt.Errorf("delete: %w", ErrNoNode)
		case stat.Czxid != czxid:
			return fmt.Errorf("delete: it was created by another transaction: %w", ErrBadVersion)
		}
		_, err = doIf(ctx, s, still, "delete", func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(full, version) })
		return err
	})
	return err
}

// Delete deletes a znode whose data has the version and that has no children.
func (s *Session) Delete(ctx context.Context, key, path string, version int32) error {
	_, err := s.write(ctx, key, path, nil, func(full string) error {
		_, err := do(ctx, s, "delete", func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(full, version) })
		return err
	})
	return err
}

// write makes one change and, when the znode is watched, reads it before anybody else is told: the writer need not
// be, and the event that its own write causes costs no second read. Made is what a create makes, else nil. Whatever the write came to (a conflict as well
// as an answer that was lost), what was known of the znode is outdated.
func (s *Session) write(ctx context.Context, key, path string, made *creation, call func(full string) error) (zktypes.Node, error) {
	full := s.target.Connect.Full(path)
	s.mu.Lock()
	e := s.watches.entries[full]
	if e != nil {
		e.writers++
	}
	s.mu.Unlock()
	err := call(full)
	if e == nil {
		return zktypes.Node{}, err
	}
	s.mu.Lock()
	e.outdate()
	s.mu.Unlock()
	var node zktypes.Node
	var unavailable *UnavailableError
	if !errors.As(err, &unavailable) {
		var readErr error
		if err != nil {
			made = nil
		}
		if node, readErr = s.current(ctx, e, key, made); err == nil {
			err = readErr
		}
	}
	s.mu.Lock()
	e.writers--
	// An event that came while we were writing left the read to us.
	late := e.writers == 0 && !e.known && e.reading == nil
	s.mu.Unlock()
	if late {
		go s.refresh(e)
	}
	return node, err
}
