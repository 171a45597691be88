package zookeeperconfig

import (
	"context"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// renewParents gives the parents that were created with the previous credential's list that of the present one: without it nothing
// could be created or deleted below them once the previous credential is shown no more. No object speaks of them. Whoever is first
// does it for all below the same parent; a restart does it once more, which costs a read each.
func (c *controller) renewParents(obj *v1alpha1.ZooKeeperConfig, o Observation) *reconcile.Effect {
	if len(o.want.Previous) == 0 {
		return nil
	}
	parent := zktypes.Parent(o.target.Connect.Full(obj.Spec.Path))
	place := o.session.Key() + " " + parent
	if parent == "/" || c.memory.isRenewed(place) {
		return nil
	}
	path, from, to := obj.Spec.Path, zktypes.Granting(o.want.Previous, zktypes.PermAll), o.want.ParentACL
	return &reconcile.Effect{
		What: "give the znodes above " + path + " the list of the present credential, where they have that of the previous one",
		Run: func(ctx context.Context) error {
			err := o.session.ReplaceParentLists(ctx, path, from, to)
			if err == nil {
				c.memory.setRenewed(place)
			}
			return typed(err, path)
		},
	}
}

func (m *memory) isRenewed(place string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.renewed[place]
}

func (m *memory) setRenewed(place string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renewed[place] = true
}
