package namespaces

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

// lookAgain is the time to the next pass over an object that depends on what cannot be read.
const lookAgain = 2 * time.Second

// UnreadableError says that objects of a kind in a namespace cannot be told, since the API server does not let the operator
// list them. It is told apart by errors.As. To the reconciler it is a *reconcile.WaitError: a namespace whose Role has just
// been made can be read kind by kind.
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

// Unwrap returns the cause, and what it means to the reconciler.
func (e *UnreadableError) Unwrap() []error {
	return []error{e.Err, reconcile.Wait(lookAgain, v1alpha1.ReasonAPIError,
		"the operator may not read objects of kind %s in namespace %s, yet or any longer: its Role there is missing or incomplete", e.Kind, e.Namespace)}
}

// sight knows what cannot be read. It is safe for concurrent use.
type sight struct {
	log   logr.Logger
	gauge *prometheus.GaugeVec

	mu sync.Mutex
	// blind has the refusals, by namespace. A namespace that is watched has an entry.
	blind map[string]map[schema.GroupVersionKind]error
	// cleared has a channel for each namespace with an entry, which is closed, and replaced, when a kind can be read again.
	cleared map[string]chan struct{}
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
	return &sight{
		log: log, gauge: gauge, blind: map[string]map[schema.GroupVersionKind]error{}, cleared: map[string]chan struct{}{},
	}, nil
}

func (s *sight) add(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blind[namespace] = map[schema.GroupVersionKind]error{}
	s.cleared[namespace] = make(chan struct{})
	s.gauge.WithLabelValues(namespace).Set(1)
}

func (s *sight) drop(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.blind, namespace)
	delete(s.cleared, namespace)
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
	// The other kinds follow from the same cause, as a rule: whoever waits for one looks now.
	close(s.cleared[namespace])
	s.cleared[namespace] = make(chan struct{})
	if len(kinds) == 0 {
		s.gauge.WithLabelValues(namespace).Set(1)
		s.log.Info("a namespace can be read", "namespace", namespace)
	}
}

// hint is closed when a kind of a namespace can be read again. It is nil, and so never closed, for one that is not watched.
func (s *sight) hint(namespace string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cleared[namespace]
}

// whole tells whether all that is asked of a namespace can be read.
func (s *sight) whole(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.blind[namespace]) == 0
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
