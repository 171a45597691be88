package zookeeperconfig

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// tree is an ensemble in memory: what the controller decides is tested against it, and what the sessions do against real ones.
type tree struct {
	mu    sync.Mutex
	name  string
	zxid  int64
	nodes map[string]zktypes.Node
	// children are the znodes that cannot be deleted, since they have some.
	children map[string]bool
	// deleted are the paths of those that were, in order, and deletedAs the same with the users that did it.
	deleted, deletedAs []string
	// forgotten are the parties whose subscriptions were ended.
	forgotten []string
	// fault, when it is set, is what every request comes to.
	fault func(ctx context.Context) error
}

func newTree(name string) *tree {
	return &tree{name: name, nodes: map[string]zktypes.Node{}, children: map[string]bool{}}
}

var errAway = errors.New("it is away")

// away is what an ensemble that refuses everything answers.
func (t *tree) away(context.Context) error {
	return &zookeeper.UnavailableError{Ensemble: t.name, Open: true, Err: errAway}
}

// at is the tree as a target shows it.
func (t *tree) at(target zookeeper.Target) Session { return view{t, target} }

// put makes a znode as somebody else does, in place of the one that is there, and returns it.
func (t *tree) put(full, data string, acl []zktypes.ACL) zktypes.Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.make(full, []byte(data), acl)
}

func (t *tree) make(full string, data []byte, acl []zktypes.ACL) zktypes.Node {
	t.zxid++
	node := zktypes.Node{
		Exists: true, Czxid: t.zxid, Mzxid: t.zxid, Size: len(data), Sum: zktypes.SumOf(data), ACL: slices.Clone(acl),
	}
	t.nodes[full] = node
	return node
}

// change changes a znode as somebody else does.
func (t *tree) change(full string, f func(*zktypes.Node)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	node := t.nodes[full]
	f(&node)
	t.nodes[full] = node
}

func (t *tree) paths() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.nodes))
}

type view struct {
	*tree
	target zookeeper.Target
}

func (v view) Key() string { return v.target.Key() }

// security says how the ensemble is spoken to.
func (v view) security() string {
	if v.target.TLS == nil {
		return ""
	}
	return " by TLS with " + v.target.TLS.ServerName
}

// do makes a request on a znode.
func (v view) do(ctx context.Context, path string, f func(full string, node zktypes.Node) error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.fault != nil {
		if err := v.fault(ctx); err != nil {
			return err
		}
	}
	full := v.target.Connect.Full(path)
	return f(full, v.nodes[full])
}

func (v view) Observe(ctx context.Context, path string, _ zookeeper.Subscription) (seen zktypes.Node, err error) {
	err = v.do(ctx, path, func(_ string, node zktypes.Node) error {
		seen = node
		return nil
	})
	return seen, err
}

func (v view) ForgetAll(key string) { v.forgotten = append(v.forgotten, key) }
func (v view) Forget(path, key string) {
	v.forgotten = append(v.forgotten, key+" of "+v.target.Connect.Full(path))
}

func (v view) CreateBelow(ctx context.Context, _, path string, data []byte, acl, _ []zktypes.ACL) (made zktypes.Node, err error) {
	err = v.do(ctx, path, func(full string, node zktypes.Node) error {
		if node.Exists {
			return zookeeper.ErrNodeExists
		}
		made = v.make(full, data, acl)
		return nil
	})
	return made, err
}

func (v view) ReplaceParentLists(ctx context.Context, path string, from, to []zktypes.ACL) error {
	for _, parent := range zktypes.Ancestors(v.target.Connect.Full(path)) {
		err := v.do(ctx, parent, func(full string, node zktypes.Node) error {
			if node.Exists && zktypes.EqualACL(node.ACL, from) {
				node.ACL, node.Aversion = to, node.Aversion+1
				v.nodes[full] = node
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (v view) Set(ctx context.Context, _, path string, data []byte, version int32) (set zktypes.Node, err error) {
	err = v.do(ctx, path, func(full string, node zktypes.Node) error {
		if err := matches(node, node.Version, version); err != nil {
			return err
		}
		v.zxid++
		node.Mzxid, node.Version, node.Size, node.Sum = v.zxid, node.Version+1, len(data), zktypes.SumOf(data)
		v.nodes[full], set = node, node
		return nil
	})
	return set, err
}

func (v view) SetACL(ctx context.Context, _, path string, acl []zktypes.ACL, aversion int32) (set zktypes.Node, err error) {
	err = v.do(ctx, path, func(full string, node zktypes.Node) error {
		if err := matches(node, node.Aversion, aversion); err != nil {
			return err
		}
		node.Aversion, node.ACL = node.Aversion+1, acl
		v.nodes[full], set = node, node
		return nil
	})
	return set, err
}

func (v view) DeleteCreated(ctx context.Context, _, path string, czxid int64, version int32) error {
	return v.do(ctx, path, func(full string, node zktypes.Node) error {
		switch err := matches(node, node.Version, version); {
		case err != nil:
			return err
		case node.Czxid != czxid:
			return zookeeper.ErrBadVersion
		case v.children[full]:
			return zookeeper.ErrNotEmpty
		}
		delete(v.nodes, full)
		v.deleted = append(v.deleted, full)
		v.deletedAs = append(v.deletedAs, full+" as "+v.target.Credential.User+v.security())
		return nil
	})
}

func matches(node zktypes.Node, is, should int32) error {
	switch {
	case !node.Exists:
		return zookeeper.ErrNoNode
	case is != should:
		return zookeeper.ErrBadVersion
	}
	return nil
}
