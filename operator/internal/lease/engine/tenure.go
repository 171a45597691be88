package engine

import (
	"time"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
)

// lookClaims takes note of the shards that have come to another owner.
func (e *Engine) lookClaims(c *store.Cluster) {
	now := int64(e.opts.Clock())
	slots := e.table()
	for shard := range min(len(slots), len(c.Claims)) {
		if s := &slots[shard]; s.seen != c.Claims[shard] {
			s.seen = c.Claims[shard]
			s.claimed.Store(now)
		}
	}
}

// Tenure returns for how long the present owner of a name has been serving it, as far as this replica knows; 0 when it knows nothing.
func (e *Engine) Tenure(name string) time.Duration {
	s, err := e.at(name)
	if err != nil {
		return 0
	}
	return e.opts.Clock().Sub(core.Instant(s.claimed.Load()))
}
