package zookeeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// maxReads bounds the reads of a znode that changes between the two requests of each.
const maxReads = 16

// reading says how a znode is read.
type reading struct {
	// arm sets a watch along with it.
	arm bool
	// first tells that nothing is known of the znode, so that it may be looked at together with others.
	first bool
	// withData returns the content, not only its sum.
	withData bool
	// likely tells that the znode is likely to exist. Otherwise its existence is asked for first: that is one request
	// instead of three for each znode that is about to be created.
	likely bool
	// made is what the znode was just created as, by us.
	made *creation
}

// creation is a znode that we created.
type creation struct {
	data []byte
	acl  []zktypes.ACL
}

// plain tells whether the server keeps the list as it was sent: it does not of schemes that stand for something else.
func (c *creation) plain() bool {
	return c != nil && !slices.ContainsFunc(c.acl, func(entry zktypes.ACL) bool {
		return entry.Scheme != zktypes.SchemeDigest && entry.Scheme != zktypes.SchemeWorld
	})
}

// observed is what was read of a znode.
type observed struct {
	node zktypes.Node
	// assumed tells that the access control list in node was not read.
	assumed bool
	// unarmed tells that the watch is still to be set.
	unarmed bool
}

// read returns a znode.
func (s *session) read(ctx context.Context, full string, how reading) (observed, error) {
	switch {
	case how.made.plain():
		node, assumed, err := s.readCreated(ctx, full, how)
		if assumed || err != nil {
			return observed{node: node, assumed: assumed}, err
		}
		how.likely, how.arm = true, how.arm && !node.Exists
	case how.first && how.arm && !how.likely:
		seen := s.look(ctx, full)
		if seen.err != nil || seen.stat == nil {
			return observed{unarmed: !seen.armed}, seen.err
		}
		how.likely, how.arm = true, !seen.armed
	}
	node, err := s.readAny(ctx, full, how)
	return observed{node: node}, err
}

// readCreated reads a znode that we have just created, without its access control list: a znode with our bytes whose data
// and list are of the first version is ours, and has the list that it was created with. (It could be somebody else's, who
// deleted ours and created an equal one within this very moment; hence only assumed.) That is one request less of three for
// each znode that is made. When it is another the node is returned as far as it was read, and assumed is false.
func (s *session) readCreated(ctx context.Context, full string, how reading) (node zktypes.Node, assumed bool, err error) {
	got, err := do(ctx, s, "get", func(c *zk.Conn) (content, error) { return get(c, full, how.arm) })
	switch {
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNoAuth):
		return zktypes.Node{}, false, nil
	case err != nil:
		return zktypes.Node{}, false, err
	}
	node = observation(&got.stat)
	fresh := node.Version == 0 && node.Aversion == 0 && node.Mzxid == node.Czxid && bytes.Equal(got.data, how.made.data)
	if !fresh {
		return node, false, nil
	}
	node.Size, node.Sum, node.ACL = len(got.data), zktypes.SumOf(got.data), slices.Clone(how.made.acl)
	if how.withData {
		node.Data = got.data
	}
	return node, true, nil
}

// readAny returns a znode as it is.
func (s *session) readAny(ctx context.Context, full string, how reading) (zktypes.Node, error) {
	if !how.likely {
		node, settled, err := s.readHidden(ctx, full, how.arm, false)
		if settled || err != nil {
			return node, err
		}
		// It exists, and the watch is set: on its data, which is where the next read would set it.
		how.arm = false
	}
	for range maxReads {
		node, settled, err := s.readOnce(ctx, full, how.arm, how.withData)
		if settled || err != nil {
			return node, err
		}
	}
	return zktypes.Node{}, fmt.Errorf("read %s: it changed during each of %d reads", full, maxReads)
}

// content is what a read of data returns.
type content struct {
	data []byte
	stat zk.Stat
}

type listing struct {
	acl  []zk.ACL
	stat zk.Stat
}

// readOnce asks for data and access control list at once. The two answers belong together when they were given of
// the same znode with the same list; otherwise it is not settled.
func (s *session) readOnce(ctx context.Context, full string, arm, withData bool) (node zktypes.Node, settled bool, err error) {
	type aclResult struct {
		listing
		err error
	}
	aclDone := make(chan aclResult, 1)
	go func() {
		out, err := s.list(ctx, full)
		aclDone <- aclResult{out, err}
	}()
	got, err := do(ctx, s, "get", func(c *zk.Conn) (content, error) { return get(c, full, arm) })
	acl := <-aclDone
	switch {
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNoAuth):
		return s.readHidden(ctx, full, arm, errors.Is(err, zk.ErrNoAuth))
	case err != nil:
		return zktypes.Node{}, false, err
	case errors.Is(acl.err, zk.ErrNoNode):
		return zktypes.Node{}, false, nil
	case errors.Is(acl.err, zk.ErrNoAuth):
		node = observation(&got.stat)
		node.Hidden = true
		return node, true, nil
	case acl.err != nil:
		return zktypes.Node{}, false, acl.err
	case acl.stat.Czxid != got.stat.Czxid || acl.stat.Aversion != got.stat.Aversion:
		return zktypes.Node{}, false, nil
	}
	node = observation(&got.stat)
	node.Size, node.Sum, node.ACL = len(got.data), zktypes.SumOf(got.data), fromACL(acl.acl)
	if withData {
		node.Data = got.data
	}
	return node, true, nil
}

// list reads an access control list.
func (s *session) list(ctx context.Context, full string) (listing, error) {
	return do(ctx, s, "getACL", func(c *zk.Conn) (listing, error) {
		acl, stat, err := c.GetACL(full)
		if err != nil {
			return listing{}, err
		}
		return listing{acl, *stat}, nil
	})
}

// readHidden tells whether a znode exists that was not found, or that may not be read: that takes no permission.
func (s *session) readHidden(ctx context.Context, full string, arm, hidden bool) (node zktypes.Node, settled bool, err error) {
	stat, err := do(ctx, s, "exists", func(c *zk.Conn) (*zk.Stat, error) { return exists(c, full, arm) })
	switch {
	case err != nil:
		return zktypes.Node{}, false, err
	case stat == nil:
		return zktypes.Node{}, true, nil
	case !hidden:
		return zktypes.Node{}, false, nil // it was created just now
	}
	node = observation(stat)
	node.Hidden = true
	return node, true, nil
}

func get(c *zk.Conn, full string, arm bool) (content, error) {
	var (
		data []byte
		stat *zk.Stat
		err  error
	)
	if arm {
		data, stat, _, err = c.GetW(full)
	} else {
		data, stat, err = c.Get(full)
	}
	if err != nil {
		return content{}, err
	}
	return content{data, *stat}, nil
}

// exists returns nil for a znode that does not exist.
func exists(c *zk.Conn, full string, arm bool) (*zk.Stat, error) {
	var (
		found bool
		stat  *zk.Stat
		err   error
	)
	if arm {
		found, stat, _, err = c.ExistsW(full)
	} else {
		found, stat, err = c.Exists(full)
	}
	if err != nil || !found {
		return nil, err
	}
	return stat, nil
}

func (s *session) stat(ctx context.Context, full string) (*zk.Stat, error) {
	return do(ctx, s, "exists", func(c *zk.Conn) (*zk.Stat, error) { return exists(c, full, false) })
}

// container is the owner that the server gives container znodes, and ttlMask marks those with a time to live.
const (
	container = -1 << 63
	ttlMask   = -1 << 56
)

func observation(stat *zk.Stat) zktypes.Node {
	owner := stat.EphemeralOwner
	return zktypes.Node{
		Exists: true, Czxid: stat.Czxid, Mzxid: stat.Mzxid, Version: stat.Version, Aversion: stat.Aversion,
		Children: stat.NumChildren, Ephemeral: owner != 0 && owner != container && owner&ttlMask != ttlMask,
	}
}

func fromACL(list []zk.ACL) []zktypes.ACL {
	out := make([]zktypes.ACL, 0, len(list))
	for _, entry := range list {
		out = append(out, zktypes.ACL{Scheme: entry.Scheme, ID: entry.ID, Perms: zktypes.Perms(entry.Perms)})
	}
	return out
}

func toACL(list []zktypes.ACL) []zk.ACL {
	out := make([]zk.ACL, 0, len(list))
	for _, entry := range list {
		out = append(out, zk.ACL{Scheme: entry.Scheme, ID: entry.ID, Perms: int32(entry.Perms)})
	}
	return out
}

// Content is a znode with its data.
type Content struct {
	zktypes.Node
	// Value is the data.
	Value []byte
}

func (s *session) content(ctx context.Context, full string) (Content, error) {
	node, err := s.readAny(ctx, full, reading{withData: true, likely: true})
	switch {
	case err != nil:
		return Content{}, err
	case !node.Exists:
		return Content{}, fmt.Errorf("get %s: %w", full, ErrNoNode)
	case node.Hidden:
		return Content{}, fmt.Errorf("get %s: %w", full, ErrNoAuth)
	}
	out := Content{Node: node, Value: node.Data}
	out.Data = nil
	return out, nil
}

func (s *session) children(ctx context.Context, full string) ([]string, error) {
	return do(ctx, s, "getChildren", func(c *zk.Conn) ([]string, error) {
		names, _, err := c.Children(full)
		return names, err
	})
}
