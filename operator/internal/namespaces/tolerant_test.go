package namespaces

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// source is an API server that can refuse.
type source struct {
	mu      sync.Mutex
	refuses bool
	names   []string
	watches []*watch.RaceFreeFakeWatcher
}

var refused = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no Role"))

func (s *source) list(context.Context, metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses {
		return nil, refused
	}
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	for _, name := range s.names {
		list.Items = append(list.Items, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "7"}})
	}
	return list, nil
}

func (s *source) watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses {
		return nil, refused
	}
	if options.SendInitialEvents != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil) // an API server that has no streamed lists
	}
	w := watch.NewRaceFreeFake()
	s.watches = append(s.watches, w)
	return w, nil
}

// turn makes it refuse, or not, with these objects, and ends all watches as a server does after a while.
func (s *source) turn(refuses bool, names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses, s.names = refuses, names
	expired := apierrors.NewResourceExpired("old")
	for _, w := range s.watches {
		w.Error(&expired.ErrStatus)
	}
	s.watches = nil
}

func TestARightThatIsLostEmptiesNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := &source{names: []string{"kept"}}
	var mu sync.Mutex
	blind := false
	set := func(to bool) { mu.Lock(); defer mu.Unlock(); blind = to }
	is := func() bool { mu.Lock(); defer mu.Unlock(); return blind }
	informer := toolscache.NewSharedIndexInformer(&tolerant{
		inner: &toolscache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch},
		empty: func() (runtime.Object, error) { return &corev1.ConfigMapList{}, nil },
		lost:  func(error) { set(true) }, found: func() { set(false) },
		hint:  func() <-chan struct{} { return nil },
		first: 10 * time.Millisecond, most: 50 * time.Millisecond,
	}, &corev1.ConfigMap{}, 0, nil)
	done := make(chan struct{})
	go func() { defer close(done); informer.RunWithContext(ctx) }()
	defer func() { cancel(); <-done }()
	until := func(what string, condition func() bool) {
		t.Helper()
		require.NoError(t, wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, func(context.Context) (bool, error) { return condition(), nil }), what)
	}
	keys := func() []string { return informer.GetStore().ListKeys() }
	until("the first list", func() bool { return informer.HasSynced() && len(keys()) == 1 && !is() })

	s.turn(true)
	until("the refusal is noticed", is)
	require.Equal(t, []string{"kept"}, keys())

	s.turn(false, "kept", "new")
	until("it lists again", func() bool { return !is() && len(keys()) == 2 })
}

// A type counts as readable when the informer has its objects, and not when a request for them is granted.
func TestReadableIsWhatTheInformerHas(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := &source{refuses: true, names: []string{"there"}}
	streamed := watch.NewRaceFreeFake()
	changes := make(chan bool, 10) // whether it can be read
	tolerates := &tolerant{
		inner: &toolscache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if options.SendInitialEvents != nil {
				return streamed, nil
			}
			return s.watch(ctx, options)
		}},
		empty: func() (runtime.Object, error) { return &corev1.ConfigMapList{}, nil },
		lost:  func(error) { changes <- false }, found: func() { changes <- true },
		hint:  func() <-chan struct{} { return nil },
		first: time.Hour, most: time.Hour,
	}
	refuse := func() {
		s.turn(true)
		_, err := tolerates.ListWithContext(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		require.False(t, <-changes)
	}
	refuse()
	w, err := tolerates.WatchWithContext(ctx, metav1.ListOptions{SendInitialEvents: new(true)})
	require.NoError(t, err)
	streamed.Add(&corev1.ConfigMap{})
	require.Equal(t, watch.Added, (<-w.ResultChan()).Type)
	streamed.Action(watch.Bookmark, &corev1.ConfigMap{})
	require.Equal(t, watch.Bookmark, (<-w.ResultChan()).Type)
	require.Empty(t, changes, "the stream has not told all yet")
	streamed.Action(watch.Bookmark, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})
	require.Empty(t, changes, "nobody has taken the end of the stream yet")
	require.Equal(t, watch.Bookmark, (<-w.ResultChan()).Type)
	require.True(t, <-changes)
	w.Stop()
	_, open := <-w.ResultChan()
	require.False(t, open)

	s.turn(false, "there")
	_, err = tolerates.ListWithContext(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, changes, "the informer has not taken the list yet")
	_, err = tolerates.WatchWithContext(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.True(t, <-changes)
}
