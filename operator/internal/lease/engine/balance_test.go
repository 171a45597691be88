package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
)

func TestBalance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.IntRange(1, 64).Draw(t, "shards")
		current := make([]store.SessionID, shards)
		for i := range current {
			current[i] = store.SessionID(rapid.IntRange(0, 5).Draw(t, "owner"))
		}
		var members []store.Member
		takers := map[store.SessionID]int{}
		for id := store.SessionID(1); id <= 4; id++ {
			if rapid.Bool().Draw(t, "alive") {
				m := store.Member{Session: id, Draining: rapid.Bool().Draw(t, "draining")}
				members = append(members, m)
				if !m.Draining {
					takers[id] = 0
				}
			}
		}
		next := balance(members, current)
		if len(takers) == 0 {
			require.Equal(t, current, next, "with nobody to take them, shards stay")
			return
		}
		moved, movable := 0, 0
		for i, owner := range next {
			require.Contains(t, takers, owner)
			takers[owner]++
			if owner != current[i] {
				moved++
			}
		}
		counts := map[store.SessionID]int{}
		for _, owner := range current {
			counts[owner]++
		}
		low, high, larger := shards/len(takers), (shards+len(takers)-1)/len(takers), shards%len(takers)
		for id, n := range takers {
			require.GreaterOrEqual(t, n, low)
			require.LessOrEqual(t, n, high)
			if counts[id] > low && larger > 0 {
				larger--
				movable += counts[id] - high
				continue
			}
			movable += max(0, counts[id]-low)
		}
		for owner, n := range counts {
			if _, ok := takers[owner]; !ok {
				movable += n
			}
		}
		require.LessOrEqual(t, moved, movable, "no shard moves that need not")
		require.Equal(t, next, balance(members, next), "a balanced assignment stays")
	})
}
