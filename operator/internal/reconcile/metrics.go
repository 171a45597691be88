package reconcile

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the counters that the reconcilers of a binary share. A nil *Metrics counts nothing.
type Metrics struct {
	writes   *prometheus.CounterVec
	verdicts *prometheus.CounterVec
	decided  *prometheus.CounterVec
}

// NewMetrics registers the counters, or finds them when an earlier call registered them there.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	writes, err := counter(registerer, "holdfast_reconcile_writes_total",
		"Writes to the API server, by the kind that was reconciled, the verb and the resource that was written.", "kind", "verb", "resource")
	if err != nil {
		return nil, err
	}
	verdicts, err := counter(registerer, "holdfast_reconcile_verdicts_total",
		"Passes, by the kind that was reconciled and what the pass came to.", "kind", "verdict")
	if err != nil {
		return nil, err
	}
	decided, err := counter(registerer, "holdfast_decisions_total",
		"Decisions that a person would ask about, by the kind and the namespace of the object, and the reason of the event that tells of it.", "kind", "namespace", "reason")
	if err != nil {
		return nil, err
	}
	return &Metrics{writes: writes, verdicts: verdicts, decided: decided}, nil
}

func counter(registerer prometheus.Registerer, name, help string, labels ...string) (*prometheus.CounterVec, error) {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	err := registerer.Register(vec)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if registered, ok := already.ExistingCollector.(*prometheus.CounterVec); ok {
			return registered, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("register metric %s: %w", name, err)
	}
	return vec, nil
}

func (m *Metrics) wrote(kind, verb, resource string) {
	if m != nil {
		m.writes.WithLabelValues(kind, verb, resource).Inc()
	}
}

func (m *Metrics) judged(kind string, verdict Verdict) {
	if m != nil {
		m.verdicts.WithLabelValues(kind, string(verdict)).Inc()
	}
}

func (m *Metrics) told(kind, namespace, reason string) {
	if m != nil {
		m.decided.WithLabelValues(kind, namespace, reason).Inc()
	}
}
