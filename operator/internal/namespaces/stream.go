package namespaces

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// stream is a watch that begins with all objects, and tells when the last of them was passed on. watch.Filter tells before,
// and hangs when nobody takes what it has.
type stream struct {
	inner  watch.Interface
	result chan watch.Event
	done   chan struct{}
	once   sync.Once
}

// passOn wraps a watch. whole is called once the consumer has taken the bookmark that ends the initial events.
func passOn(inner watch.Interface, whole func()) watch.Interface {
	s := &stream{inner: inner, result: make(chan watch.Event), done: make(chan struct{})}
	go s.run(whole)
	return s
}

func (s *stream) run(whole func()) {
	defer close(s.result)
	for event := range s.inner.ResultChan() {
		select {
		case s.result <- event:
		case <-s.done:
			return
		}
		if endsInitialEvents(event) {
			whole()
		}
	}
}

func endsInitialEvents(event watch.Event) bool {
	if event.Type != watch.Bookmark {
		return false
	}
	obj, err := meta.Accessor(event.Object)
	return err == nil && obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.result }

// Stop implements watch.Interface.
func (s *stream) Stop() {
	s.once.Do(func() { close(s.done) })
	s.inner.Stop()
}
