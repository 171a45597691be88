package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

func (s *session) createOne(ctx context.Context, key, full string, data []byte, acl []zktypes.ACL) (zktypes.Node, error) {
	return s.write(ctx, key, full, &creation{data, acl}, func() error { return s.create(ctx, full, data, acl) })
}

// createBelow tries without the parents first: most znodes have siblings.
func (s *session) createBelow(ctx context.Context, key, full string, data []byte, acl, parents []zktypes.ACL) (zktypes.Node, error) {
	node, err := s.createOne(ctx, key, full, data, acl)
	if !errors.Is(err, ErrNoNode) {
		return node, err
	}
	if err := s.ensureParents(ctx, full, parents); err != nil {
		return zktypes.Node{}, err
	}
	return s.createOne(ctx, key, full, data, acl)
}

func (s *session) ensureParents(ctx context.Context, full string, acl []zktypes.ACL) error {
	for _, parent := range zktypes.Ancestors(full) {
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

func (s *session) replaceParentLists(ctx context.Context, full string, from, to []zktypes.ACL) error {
	for _, parent := range zktypes.Ancestors(full) {
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

func (s *session) set(ctx context.Context, key, full string, data []byte, version int32) (zktypes.Node, error) {
	still := s.seen(full)
	return s.write(ctx, key, full, nil, func() error {
		_, err := doIf(ctx, s, still, "set", func(c *zk.Conn) (*zk.Stat, error) { return c.Set(full, data, version) })
		return err
	})
}

func (s *session) setACL(ctx context.Context, key, full string, acl []zktypes.ACL, aversion int32) (zktypes.Node, error) {
	still := s.seen(full)
	return s.write(ctx, key, full, nil, func() error {
		_, err := doIf(ctx, s, still, "setACL", func(c *zk.Conn) (*zk.Stat, error) { return c.SetACL(full, toACL(acl), aversion) })
		return err
	})
}

// seen returns what fails once the connection on which a znode was seen is lost. It returns nil for one that was never seen.
func (s *session) seen(full string) func() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.watches.entries[full]
	if e == nil || !e.seen {
		return nil
	}
	return s.unbroken(e.epoch)
}

// unbroken returns what fails once a connection is lost.
func (s *session) unbroken(epoch uint64) func() error {
	return func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.epoch != epoch {
			return fmt.Errorf("the connection was lost since the znode was seen: %w", ErrBadVersion)
		}
		return nil
	}
}

func (s *session) deleteCreated(ctx context.Context, key, full string, czxid int64, version int32) error {
	s.mu.Lock()
	still := s.unbroken(s.epoch)
	s.mu.Unlock()
	_, err := s.write(ctx, key, full, nil, func() error {
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

func (s *session) remove(ctx context.Context, key, full string, version int32) error {
	_, err := s.write(ctx, key, full, nil, func() error {
		_, err := do(ctx, s, "delete", func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(full, version) })
		return err
	})
	return err
}

// write makes one change and, when the znode is watched, reads it before anybody else is told: the writer need not
// be, and the event that its own write causes costs no second read. Made is what a create makes, else nil. Whatever the write came to (a conflict as well
// as an answer that was lost), what was known of the znode is outdated.
func (s *session) write(ctx context.Context, key, full string, made *creation, call func() error) (zktypes.Node, error) {
	s.mu.Lock()
	e := s.watches.entries[full]
	if e != nil {
		e.writers++
	}
	s.mu.Unlock()
	err := call()
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
