package engine

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
)

// Limits bound what the service does for its tenant. 0 is no limit. Leases, Waiters and Rate are for the whole
// service: each replica enforces a share of them, that of the shards it serves, without asking the others.
type Limits struct {
	// Leases is how many holds there may be.
	Leases int64
	// Waiters is how many requests may wait in line, WaitersPerName how many of them for one name.
	Waiters        int64
	WaitersPerName int64
	// Rate is how many acquires may come a second; twice as many may come at once after a pause.
	Rate int64
}

// Quota is a limit as this replica enforces it.
type Quota struct {
	Name                 string
	Limit, Used, Refused int64
}

// QuotaError says that a limit is reached.
type QuotaError struct {
	// Quota is the name of the limit, as in Status.
	Quota string
	// Limit is this replica's share of it.
	Limit int64
	// RetryAfter is when trying again may help.
	RetryAfter time.Duration
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("the quota %q is used up: this replica's share is %d", e.Quota, e.Limit)
}

// QuotaValueBytes is the name of the limit that is on the size of a request.
const QuotaValueBytes = "value_bytes"

const (
	quotaLeases         = "leases"
	quotaWaiters        = "waiters"
	quotaWaitersPerName = "waiters_per_name"
	quotaRate           = "rate"
	// quotaRetry is the retry time when it depends on others to let go.
	quotaRetry = time.Second
)

// limiter counts refusals and paces acquires.
type limiter struct {
	limits  Limits
	refused [4]atomic.Int64 // leases, waiters, waiters_per_name, rate
	pace    *rate.Limiter
}

func newLimiter(limits Limits) *limiter {
	return &limiter{limits: limits, pace: rate.NewLimiter(rate.Limit(limits.Rate), int(2*limits.Rate))}
}

// take takes one acquire from a share of the rate, or says when there will be one.
func (l *limiter) take(now time.Time, share int64) (time.Duration, bool) {
	if l.pace.Limit() != rate.Limit(share) {
		l.pace.SetLimitAt(now, rate.Limit(share))
		l.pace.SetBurstAt(now, int(2*share))
	}
	reservation := l.pace.ReserveN(now, 1)
	wait := reservation.DelayFrom(now)
	if wait > 0 {
		reservation.CancelAt(now)
	}
	return wait, wait == 0
}

// share is this replica's part of a limit; at least 1, so that no replica refuses everything.
func (e *Engine) share(limit int64) int64 {
	total, own := int64(len(e.table())), e.owned.Load()
	if total == 0 || limit == 0 {
		return limit
	}
	return max(1, (limit*own+total-1)/total)
}

// admit refuses an acquire of a shard that is over a limit. A request that is known already is not new and always admitted.
func (e *Engine) admit(shard *core.Shard, now core.Instant, req *core.AcquireRequest) error {
	l := &e.limiter.limits
	if *l == (Limits{}) {
		return nil
	}
	line := shard.Line(req.Name, req.RequestID)
	if line.Known {
		return nil
	}
	if l.Rate > 0 {
		share := e.share(l.Rate)
		if after, ok := e.limiter.take(e.epoch.Add(time.Duration(now)), share); !ok {
			return e.refuse(3, &QuotaError{Quota: quotaRate, Limit: share, RetryAfter: after})
		}
	}
	// Who waits for an exclusive lease takes the place of its holder, and adds none.
	replaces := req.Wait && req.Mode == core.Exclusive && line.Holds > 0
	if l.Leases > 0 && !replaces {
		if limit := e.share(l.Leases); e.promised.Load() >= limit {
			return e.refuse(0, &QuotaError{Quota: quotaLeases, Limit: limit, RetryAfter: quotaRetry})
		}
	}
	if !req.Wait {
		return nil
	}
	if l.Waiters > 0 {
		if limit := e.share(l.Waiters); e.waiters.Load() >= limit {
			return e.refuse(1, &QuotaError{Quota: quotaWaiters, Limit: limit, RetryAfter: quotaRetry})
		}
	}
	if l.WaitersPerName > 0 && int64(line.Waiters) >= l.WaitersPerName {
		return e.refuse(2, &QuotaError{Quota: quotaWaitersPerName, Limit: l.WaitersPerName, RetryAfter: quotaRetry})
	}
	return nil
}

// admitTo returns what decides on each grant of a slot that makes the holds more: also of those that were let in when there were fewer, or
// that wait. It takes their place at once, since many are decided before one is committed. Nil: there is no limit. The slot's lock is held.
func (e *Engine) admitTo(s *slot) func() error {
	l := e.limiter.limits.Leases
	if l == 0 {
		return nil
	}
	return func() error {
		limit := e.share(l)
		if e.promised.Add(1) > limit {
			e.promised.Add(-1)
			return e.refuse(0, &QuotaError{Quota: quotaLeases, Limit: limit, RetryAfter: quotaRetry})
		}
		s.promised++
		return nil
	}
}

func (e *Engine) refuse(quota int, err *QuotaError) error {
	e.limiter.refused[quota].Add(1)
	return err
}

func (e *Engine) quotas() []Quota {
	l := &e.limiter.limits
	quotas := []Quota{
		{Name: quotaLeases, Limit: e.share(l.Leases), Used: e.holds.Load()},
		{Name: quotaWaiters, Limit: e.share(l.Waiters), Used: e.waiters.Load()},
		{Name: quotaWaitersPerName, Limit: l.WaitersPerName},
		{Name: quotaRate, Limit: e.share(l.Rate)},
	}
	for i := range quotas {
		quotas[i].Refused = e.limiter.refused[i].Load()
	}
	return quotas
}
