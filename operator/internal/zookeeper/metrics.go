package zookeeper

import (
	"errors"
	"strconv"

	"github.com/go-zookeeper/zk"
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the Prometheus metrics of a Pool. A nil *Metrics counts nothing.
type Metrics struct {
	latency  *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	watched  *prometheus.GaugeVec
	open     *prometheus.GaugeVec
	openings *prometheus.CounterVec
	probes   *prometheus.CounterVec
	events   *prometheus.CounterVec
	session  *prometheus.GaugeVec
}

// NewMetrics makes the metrics and registers them. It fails when the registry has others under the same names.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	const ns, sub = "holdfast", "zookeeper"
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help}, labels)
	}
	m := &Metrics{
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: sub, Name: "request_duration_seconds",
			Help:    "Time from sending a request to its answer, by operation and by what was answered.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"ensemble", "op", "code"}),
		inFlight: gauge("requests_in_flight", "Requests that wait for an answer.", "ensemble"),
		watched:  gauge("watched_znodes", "Znodes that are kept current in memory.", "ensemble"),
		open:     gauge("breaker_open", "Circuit breakers of the ensemble that refuse requests; there is one for each TLS setting.", "ensemble"),
		openings: counter("breaker_openings_total", "Times that the circuit breaker opened.", "ensemble"),
		probes:   counter("breaker_probes_total", "Probes of an ensemble whose circuit breaker is open.", "ensemble"),
		events:   counter("watch_events_total", "Watch events received, by type.", "ensemble", "type"),
		session:  gauge("session_info", "1 for each session that is established, with its id.", "ensemble", "session"),
	}
	for _, collector := range []prometheus.Collector{
		m.latency, m.inFlight, m.watched, m.open, m.openings, m.probes, m.events, m.session,
	} {
		if err := registry.Register(collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// code names the outcome of a request with few distinct values.
func code(err error) string {
	var unavailable *UnavailableError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &unavailable) || connectivity(err):
		return "unavailable"
	case errors.Is(err, zk.ErrNoNode):
		return "no_node"
	case errors.Is(err, zk.ErrNodeExists):
		return "node_exists"
	case errors.Is(err, zk.ErrBadVersion):
		return "bad_version"
	case errors.Is(err, zk.ErrNotEmpty):
		return "not_empty"
	case errors.Is(err, zk.ErrNoAuth):
		return "no_auth"
	}
	return "error"
}

func (m *Metrics) request(ensemble, op string, err error, seconds float64) {
	if m != nil {
		m.latency.WithLabelValues(ensemble, op, code(err)).Observe(seconds)
	}
}

func (m *Metrics) flying(ensemble string, delta float64) {
	if m != nil {
		m.inFlight.WithLabelValues(ensemble).Add(delta)
	}
}

func (m *Metrics) watching(ensemble string, delta int) {
	if m != nil {
		m.watched.WithLabelValues(ensemble).Add(float64(delta))
	}
}

func (m *Metrics) breaker(ensemble string, open bool) {
	if m == nil {
		return
	}
	if open {
		m.openings.WithLabelValues(ensemble).Inc()
		m.open.WithLabelValues(ensemble).Inc()
		return
	}
	m.open.WithLabelValues(ensemble).Dec()
}

func (m *Metrics) probe(ensemble string) {
	if m != nil {
		m.probes.WithLabelValues(ensemble).Inc()
	}
}

func (m *Metrics) event(ensemble string, event zk.EventType) {
	if m != nil {
		m.events.WithLabelValues(ensemble, event.String()).Inc()
	}
}

func sessionLabel(id int64) string { return "0x" + strconv.FormatUint(uint64(id), 16) }

// sessionUp and sessionDown mark a session as established and as gone.
func (m *Metrics) sessionUp(ensemble string, id int64) {
	if m != nil {
		m.session.WithLabelValues(ensemble, sessionLabel(id)).Set(1)
	}
}

func (m *Metrics) sessionDown(ensemble string, id int64) {
	if m != nil {
		m.session.DeleteLabelValues(ensemble, sessionLabel(id))
	}
}
