package engine

import (
	"cmp"
	"slices"

	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
)

// balance decides who shall own each shard: every member that is not draining gets an equal share, give or
// take one, and as few shards as possible change their owner. With nobody to take them over, the shards
// of draining members stay where they are. Members are ordered by age; that makes the result the same
// whoever computes it.
func balance(members []store.Member, current []store.SessionID) []store.SessionID {
	var takers []store.SessionID
	for _, m := range members {
		if !m.Draining {
			takers = append(takers, m.Session)
		}
	}
	next := slices.Clone(current)
	if len(takers) == 0 {
		return next
	}
	owned := map[store.SessionID]int{}
	for _, owner := range current {
		owned[owner]++
	}
	// Those that own most get the larger shares, if the shares differ.
	slices.SortStableFunc(takers, func(a, b store.SessionID) int { return cmp.Compare(owned[b], owned[a]) })
	share := map[store.SessionID]int{}
	for i, taker := range takers {
		share[taker] = len(current) / len(takers)
		if i < len(current)%len(takers) {
			share[taker]++
		}
	}
	var free []int
	for shard, owner := range current {
		if share[owner] > 0 {
			share[owner]--
			continue
		}
		free = append(free, shard)
	}
	for _, taker := range takers {
		for ; share[taker] > 0; share[taker]-- {
			next[free[0]] = taker
			free = free[1:]
		}
	}
	return next
}
