package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
)

const (
	// moveParallel is how many shards move at a time.
	moveParallel = 8
	// collectEvery is how often the leader looks for what dead replicas left behind.
	collectEvery = 10 * time.Second
)

// reconcile makes this replica own what is assigned to it and nothing else, and assigns if it leads, each
// time the cluster changes, until the session is lost.
func (e *Engine) reconcile(ctx context.Context, s *session) error {
	announced := false // draining
	var garbage collector
	collect := time.NewTicker(collectEvery)
	defer collect.Stop()
	for {
		changed := e.changed.wait()
		err := e.pass(ctx, s, &announced)
		switch {
		case errors.Is(err, store.ErrSessionLost):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			e.opts.Log.Warn("the cluster is not as it should be; trying again", "error", err)
			if !sleep(ctx, retryAfter) {
				return ctx.Err()
			}
			continue
		}
		select {
		case <-changed:
		case <-collect.C:
			garbage.collect(ctx, e, s)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// collector lets the leader remove what dead replicas left behind. It asks the store only after the members have changed, until nothing is left.
type collector struct {
	members []store.SessionID // as they were when nothing was left
}

func (k *collector) collect(ctx context.Context, e *Engine, s *session) {
	cluster := e.cluster.Load()
	if cluster == nil || cluster.Leader.Session != s.id {
		return
	}
	var members []store.SessionID
	for _, m := range cluster.Members {
		members = append(members, m.Session)
	}
	if slices.Equal(members, k.members) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	collected, left, err := e.opts.Store.Collect(ctx)
	if err != nil {
		e.opts.Log.Warn("what dead replicas left behind is not removed yet", "error", err)
		return
	}
	if left == 0 {
		k.members = members
	}
	if collected > 0 {
		e.opts.Log.Info("removed what dead replicas left behind", "sessions", collected)
	}
}

func (e *Engine) pass(ctx context.Context, s *session, announced *bool) error {
	cluster := e.cluster.Load()
	if !knows(cluster, s.id) {
		return nil // what is known is older than the session
	}
	if e.draining.Load() && !*announced {
		call, cancel := context.WithTimeout(ctx, storeTimeout)
		_, err := e.opts.Store.Join(call, e.member(s.id), false)
		cancel()
		if err != nil {
			return err
		}
		*announced = true
	}
	if err := e.lead(ctx, s, cluster); err != nil {
		return err
	}
	return e.move(ctx, s, cluster)
}

// lead claims the leadership if nobody has it, and assigns the shards if this replica has it.
func (e *Engine) lead(ctx context.Context, s *session, cluster *store.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	leader := cluster.Leader
	if leader.Session == 0 && (!e.draining.Load() || !others(cluster, s.id)) {
		claim, ok, err := e.opts.Store.Lead(ctx, s.id)
		if err != nil || !ok {
			return err
		}
		leader = claim
		e.opts.Log.Info("leading")
	}
	if leader.Session != s.id {
		return nil
	}
	next := balance(cluster.Members, cluster.Assigned)
	if slices.Equal(next, cluster.Assigned) {
		return nil
	}
	_, err := e.opts.Store.Assign(ctx, leader, next)
	return err
}

// move takes over and gives up shards.
func (e *Engine) move(ctx context.Context, s *session, cluster *store.Cluster) error {
	var group errgroup.Group
	group.SetLimit(moveParallel)
	slots := e.table()
	for shard := range slots {
		slot := &slots[shard]
		mine, claim := cluster.Assigned[shard] == s.id, cluster.Claims[shard]
		own, serving := slot.serving()
		if serving && claim != own && cluster.Revision >= own.Revision {
			// Only a hand in the store can do that while the session lives. What of the shard is under way cannot be called
			// back but by giving the session up.
			return fmt.Errorf("the claim of shard %d was taken away although the session lived: %w", shard, store.ErrSessionLost)
		}
		switch {
		case mine && !serving && (claim.Session == 0 || claim.Session == s.id):
			group.Go(func() error { return e.takeOver(ctx, s, slot) })
		case !mine && serving && cluster.Assigned[shard] != 0:
			group.Go(func() error { return e.giveUp(ctx, s, slot) })
		case !mine && !serving && claim.Session == s.id:
			// A claim whose removal failed, or whose answer was lost.
			group.Go(func() error { return e.unclaim(ctx, slot, claim) })
		}
	}
	return group.Wait()
}

// takeOver claims a shard, if it is free, and serves it as the store has it.
func (e *Engine) takeOver(ctx context.Context, s *session, slot *slot) error {
	call, cancel := context.WithTimeout(ctx, storeTimeout)
	claim, ok, err := e.opts.Store.Claim(call, s.id, slot.index)
	cancel()
	if err != nil || !ok {
		return err
	}
	if claim == slot.givenUp {
		// Its removal, of which no answer came, may still be on its way and must not find it in use. Once it is removed for
		// certain, which is heard of as a change, the shard is claimed anew.
		return e.unclaim(ctx, slot, claim)
	}
	start := time.Now()
	records, err := e.opts.Store.Load(ctx, slot.index, claim)
	if err != nil {
		return err
	}
	now := e.opts.Clock()
	slot.take(e, s, claim, core.NewShard(now, e.epoch, records))
	e.metrics.moves.WithLabelValues("in").Inc()
	e.opts.Log.Debug("took a shard over", "shard", slot.index, "holds", len(records), "took", time.Since(start).String())
	e.changed.send()
	return nil
}

// giveUp stops serving a shard once what is in flight is committed, and frees it for its new owner.
func (e *Engine) giveUp(ctx context.Context, s *session, slot *slot) error {
	claim, drained := slot.freeze()
	select {
	case <-drained:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := s.committer.settle(ctx, slot.index, claim); err != nil {
		return err
	}
	slot.drop(e)
	e.metrics.moves.WithLabelValues("out").Inc()
	e.changed.send()
	return e.unclaim(ctx, slot, claim)
}

func (e *Engine) unclaim(ctx context.Context, slot *slot, claim store.Claim) error {
	slot.givenUp = claim
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return e.opts.Store.Unclaim(ctx, slot.index, claim)
}
