package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/stacks/internal/handover"
	"github.com/holdfast-io/holdfast/stacks/internal/live"
	"github.com/holdfast-io/holdfast/stacks/platform"
)

// controllerGrace is how long the controllers of Argo CD or Flux get to do what is theirs before it is done for them: they
// may be down, or gone for good.
const controllerGrace = 15 * time.Second

// spare waits until nothing that keeps the objects would delete them when it goes itself. The ApplicationSet controller
// takes that off the Applications which it generates once their set says so; without it this command does.
func (m *mover) spare(ctx context.Context, config *platform.Config) error {
	begun := time.Now()
	return m.await(ctx, withdrawTimeout, func(ctx context.Context) ([]string, error) {
		keepers, err := m.keepers(ctx, config)
		if err != nil {
			return nil, err
		}
		keepers = slices.DeleteFunc(keepers, func(keeper live.Keeper) bool { return !keeper.Cascades })
		for i := range keepers {
			if time.Since(begun) > controllerGrace {
				m.say("  %s is not taken care of by its controller: its finalizer is taken off here", keepers[i].Name)
				if err := m.cluster.LetGo(ctx, keepers[i].Object()); err != nil {
					return nil, err
				}
			}
			keepers[i].Name += " would delete what it keeps, and"
		}
		return keeperNames(keepers), nil
	})
}

// letGo looks after what kept the objects while an update deletes it, until the function is called that it returns. Flux has a
// finalizer on each of its objects, and an update would wait for a controller that does not run. Taking it off does what the
// controller would do, for nothing cascades any more.
func (m *mover) letGo(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		waiting, grace := map[string]time.Time{}, controllerGrace
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				for _, keeper := range m.what.Shared {
					if m.overdue(ctx, keeper, waiting, now, grace) {
						grace = 0 // one controller keeps them all
					}
				}
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// overdue lets go of a keeper that has been in deletion for longer than the grace, and reports whether it did. The update
// that waits for the deletion says what went wrong, if anything did.
func (m *mover) overdue(
	ctx context.Context, keeper handover.Resource, waiting map[string]time.Time, now time.Time, grace time.Duration,
) bool {
	object, err := m.cluster.Get(ctx, keeper.Fields)
	if err != nil || object == nil || object.GetDeletionTimestamp() == nil {
		return false
	}
	since, seen := waiting[keeper.URN]
	if !seen {
		since, waiting[keeper.URN] = now, now
	}
	if now.Sub(since) < grace {
		return false
	}
	m.say("  %s is not let go by its controller: its finalizer is taken off here", live.Name(keeper.Fields))
	if err := m.cluster.LetGo(ctx, object); err != nil {
		m.say("  %v", err)
		return false
	}
	return true
}
