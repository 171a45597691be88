package server

import (
	"sync/atomic"

	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
)

// refusals counts the requests that were refused because of a limit on single requests. The zero value is ready.
type refusals struct{ value, ttlMin, ttlMax atomic.Int64 }

// count counts what is wrong with a request; low says that its TTL is too short, if that is wrong.
func (r *refusals) count(c *checker, low bool) {
	for _, v := range c.violations {
		switch {
		case v.Field == "value":
			r.value.Add(1)
		case v.Field == "ttl" && low:
			r.ttlMin.Add(1)
		case v.Field == "ttl":
			r.ttlMax.Add(1)
		}
	}
}

// requestQuotas are the limits on single requests.
func (s *Server) requestQuotas() []*leasestatus.QuotaStatus {
	return []*leasestatus.QuotaStatus{
		{Name: engine.QuotaValueBytes, Limit: int64(s.maxValue()), Refused: s.refused.value.Load()},
		{Name: "ttl_min_seconds", Limit: int64(s.opts.TTLs.Min.Seconds()), Refused: s.refused.ttlMin.Load()},
		{Name: "ttl_max_seconds", Limit: int64(s.opts.TTLs.Max.Seconds()), Refused: s.refused.ttlMax.Load()},
	}
}
