package engine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the engine's Prometheus metrics.
type Metrics struct {
	batches  *prometheus.CounterVec
	ops      prometheus.Counter
	size     prometheus.Histogram
	seconds  prometheus.Histogram
	sessions *prometheus.CounterVec
	moves    *prometheus.CounterVec
	ended    *prometheus.CounterVec
}

// newMetrics registers the metrics.
func newMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		batches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_lease_commits_total", Help: "Transactions sent to the store, by result (ok or error).",
		}, []string{"result"}),
		ops: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_lease_commit_ops_total", Help: "Changes of names carried by those transactions.",
		}),
		size: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_lease_commit_batch_ops", Help: "Changes per transaction.", Buckets: prometheus.ExponentialBuckets(1, 2, 8),
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_lease_commit_seconds", Help: "How long a transaction took.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		sessions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_lease_store_session_events_total", Help: "Sessions with the store: opened, uncertain, lost.",
		}, []string{"event"}),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_lease_shard_moves_total", Help: "Shards taken over and given up by this replica.",
		}, []string{"direction"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_lease_ended_total", Help: "Holds that ended otherwise than by release, by reason.",
		}, []string{"reason"}),
	}
	registry.MustRegister(m.batches, m.ops, m.size, m.seconds, m.sessions, m.moves, m.ended)
	return m
}

// commit counts a transaction; what it returns is called with its outcome.
func (m *Metrics) commit(ops int) func(error) {
	start := time.Now()
	return func(err error) {
		m.seconds.Observe(time.Since(start).Seconds())
		if err != nil {
			m.batches.WithLabelValues("error").Inc()
			return
		}
		m.batches.WithLabelValues("ok").Inc()
		m.ops.Add(float64(ops))
		m.size.Observe(float64(ops))
	}
}

// registerGauges makes the engine's present state visible.
func (e *Engine) registerGauges(registry prometheus.Registerer) {
	gauge := func(name, help string, value func(Status) float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			return value(e.Status())
		}))
	}
	truth := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	gauge("holdfast_lease_active", "Holds served by this replica.", func(s Status) float64 { return float64(s.Holds) })
	gauge("holdfast_lease_waiters", "Requests waiting in line at this replica.", func(s Status) float64 { return float64(s.Waiters) })
	gauge("holdfast_lease_shards", "Shards served by this replica.", func(s Status) float64 { return float64(s.Shards) })
	gauge("holdfast_lease_leader", "1 if this replica assigns the shards.", func(s Status) float64 { return truth(s.Leading) })
	gauge("holdfast_lease_ready", "1 if the session with the store is certain.", func(s Status) float64 { return truth(s.Certain) })
	gauge("holdfast_lease_session_seconds", "For how long the session with the store is certain; negative: it is not.",
		func(s Status) float64 { return s.CertainFor.Seconds() })
}
