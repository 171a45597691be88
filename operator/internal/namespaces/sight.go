package namespaces

import (
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// UnreadableError says that objects of a kind in a namespace cannot be told, since the API server does not let the operator
// list them. It is told apart by errors.As.
type UnreadableError struct {
	// Namespace and Kind are what was asked for.
	Namespace, Kind string
	// Err is the API server's refusal.
	Err error
}

// Error names the kind, the namespace and the cause.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("the operator may not read objects of kind %s in namespace %s: %v", e.Kind, e.Namespace, e.Err)
}

// Unwrap returns the cause.
func (e *UnreadableError) Unwrap() error { return e.Err }

// sight knows what cannot be read. It is safe for concurrent use.
type sight struct {
	log   logr.Logger
	gauge *prometheus.GaugeVec

	mu sync.Mutex
	// blind has the refusals, by namespace. A namespace that is watched has an entry.
	blind map[string]map[schema.GroupVersionKind]error
}

// newSight registers the metric, or finds it when an earlier call registered it.
func newSight(log logr.Logger, registerer prometheus.Registerer) (*sight, error) {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "holdfast_namespace_readable",
		Help: "1 for a watched namespace in which the operator may read all that it needs, 0 for another.",
	}, []string{"namespace"})
	var already prometheus.AlreadyRegisteredError
	if err := registerer.Register(gauge); errors.As(err, &already) {
		if registered, ok := already.ExistingCollector.(*prometheus.GaugeVec); ok {
			gauge = registered
		}
	} else if err != nil {
		return nil, fmt.Errorf("metric holdfast_namespace_readable: %w", err)
	}
	return &sight{log: log, gauge: gauge, blind: map[string]map[schema.GroupVersionKind]error{}}, nil
}

func (s *sight) add(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blind[namespace] = map[schema.GroupVersionKind]error{}
	s.gauge.WithLabelValues(namespace).Set(1)
}

func (s *sight) drop(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.blind, namespace)
	s.gauge.DeleteLabelValues(namespace)
}

// lost notes that a kind cannot be read. It tells of the first kind of a namespace: the others follow from the same cause.
func (s *sight) lost(namespace string, gvk schema.GroupVersionKind, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kinds, watched := s.blind[namespace]
	if !watched || kinds[gvk] != nil {
		return
	}
	kinds[gvk] = cause
	if len(kinds) == 1 {
		s.gauge.WithLabelValues(namespace).Set(0)
		s.log.Info("a namespace cannot be read, yet or any longer; it is tried again, and the others are not held up",
			"namespace", namespace, "cause", cause.Error())
	}
}

func (s *sight) found(namespace string, gvk schema.GroupVersionKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kinds := s.blind[namespace]
	if kinds[gvk] == nil {
		return
	}
	delete(kinds, gvk)
	if len(kinds) == 0 {
		s.gauge.WithLabelValues(namespace).Set(1)
		s.log.Info("a namespace can be read", "namespace", namespace)
	}
}

// check returns an UnreadableError for what cannot be read.
func (s *sight) check(namespace string, gvk schema.GroupVersionKind) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cause := s.blind[namespace][gvk]; cause != nil {
		return &UnreadableError{Namespace: namespace, Kind: gvk.Kind, Err: cause}
	}
	return nil
}
