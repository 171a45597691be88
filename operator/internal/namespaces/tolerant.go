package namespaces

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// tolerant lists and watches one type in one namespace for an informer. A refusal (Forbidden) before the first list is
// answered with an empty one, so that the informer counts as synced. A later one keeps what the informer has: losing the
// right to read says nothing about the objects. In either case the informer then hangs in a watch that never tells anything,
// until a probe succeeds and it is sent to list again.
type tolerant struct {
	inner toolscache.ListerWatcherWithContext
	// empty makes an empty list of the type.
	empty func() (runtime.Object, error)
	// lost and found are told what was answered.
	lost  func(error)
	found func()
	// hint is closed when it is likely that a probe succeeds.
	hint func() <-chan struct{}
	// first and most are the least and the greatest time between probes.
	first, most time.Duration

	mu sync.Mutex
	// seen tells that the type was listed once; blind that the last request was refused.
	seen, blind bool
}

// List implements toolscache.ListerWatcher.
func (t *tolerant) List(options metav1.ListOptions) (runtime.Object, error) {
	return t.ListWithContext(context.Background(), options)
}

// Watch implements toolscache.ListerWatcher.
func (t *tolerant) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return t.WatchWithContext(context.Background(), options)
}

// ListWithContext implements toolscache.ListerWatcherWithContext.
func (t *tolerant) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := t.inner.ListWithContext(ctx, options)
	if t.note(err, false) {
		return t.empty()
	}
	if apierrors.IsForbidden(err) && t.await(ctx, func() bool { return false }) {
		list, err = t.inner.ListWithContext(ctx, options)
		t.note(err, false)
	}
	return list, err
}

// WatchWithContext implements toolscache.ListerWatcherWithContext.
func (t *tolerant) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	streams := options.SendInitialEvents != nil && *options.SendInitialEvents
	if !streams && t.isBlind() {
		return t.hold(ctx), nil
	}
	w, err := t.inner.WatchWithContext(ctx, options)
	if streams && err != nil {
		// The reflector lists instead.
		return nil, err
	}
	if streams {
		return passOn(w, func() { t.note(nil, true) }), nil
	}
	t.note(err, true)
	if apierrors.IsForbidden(err) {
		return t.hold(ctx), nil
	}
	return w, err
}

// note takes the outcome of a request, and tells whether it is a refusal before anything was seen. Errors of other kinds
// say nothing about rights. That the type can be read is only told once the informer has the objects, as one that watches
// after a list has: before, who reads would find nothing, and take it for what is there.
func (t *tolerant) note(err error, delivered bool) (never bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.seen, t.blind = true, false
		if delivered {
			t.found()
		}
	case apierrors.IsForbidden(err):
		t.blind = true
		t.lost(err)
		return !t.seen
	}
	return false
}

func (t *tolerant) isBlind() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.blind
}

// hold is a watch that is silent until the type can be read again; then it ends as one that has expired does, after which
// the reflector lists.
func (t *tolerant) hold(ctx context.Context) watch.Interface {
	w := watch.NewRaceFreeFake()
	go func() {
		if t.await(ctx, w.IsStopped) {
			expired := apierrors.NewResourceExpired("the objects can be read now")
			w.Error(&expired.ErrStatus)
		}
	}()
	return w
}

// await probes until listing and watching are allowed. It returns false when ctx ended or the caller gave up before.
func (t *tolerant) await(ctx context.Context, givenUp func() bool) bool {
	hint := t.hint()
	backoff := wait.Backoff{Duration: t.first, Factor: 1.5, Jitter: 0.2, Steps: 1 << 30, Cap: t.most}
	for {
		timer := time.NewTimer(backoff.Step())
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-hint:
			timer.Stop()
			hint = t.hint()
		case <-timer.C:
		}
		if givenUp() {
			return false
		}
		if t.probe(ctx) == nil {
			return true
		}
	}
}

func (t *tolerant) probe(ctx context.Context) error {
	if _, err := t.inner.ListWithContext(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return err
	}
	w, err := t.inner.WatchWithContext(ctx, metav1.ListOptions{TimeoutSeconds: new(int64(1))})
	if err != nil {
		return err
	}
	w.Stop()
	return nil
}
