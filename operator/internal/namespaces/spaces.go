package namespaces

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/holdfast-io/holdfast/crds"
)

// retryAdjust is the time to the next try when a namespace could not be added, or is still needed.
const retryAdjust = 10 * time.Second

// Start runs the cache until ctx ends.
func (c *Cache) Start(ctx context.Context) error {
	defer close(c.stopped)
	c.mu.Lock()
	c.running = ctx
	for _, s := range c.spaces {
		s.start(ctx)
	}
	c.mu.Unlock()
	if c.options.Markers == "" {
		close(c.loaded)
		<-ctx.Done()
	} else if err := c.follow(ctx); err != nil {
		return err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, s := range c.spaces {
		<-s.done
	}
	return nil
}

// WaitForCacheSync tells whether all namespaces are in the cache; those that cannot be read are, empty.
func (c *Cache) WaitForCacheSync(ctx context.Context) bool {
	select {
	case <-c.loaded:
	case <-ctx.Done():
		return false
	}
	c.mu.RLock()
	spaces := make([]*space, 0, len(c.spaces))
	for _, s := range c.spaces {
		spaces = append(spaces, s)
	}
	c.mu.RUnlock()
	for _, s := range spaces {
		if !s.cache.WaitForCacheSync(ctx) && c.space(s.name) == s {
			return false
		}
	}
	return true
}

// follow adds and drops namespaces as the markers say, until ctx ends.
func (c *Cache) follow(ctx context.Context) error {
	clients, err := kubernetes.NewForConfigAndClient(c.config, c.base.HTTPClient)
	if err != nil {
		return fmt.Errorf("watch for namespaces to watch: %w", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(c.options.Markers),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = crds.WatchLabel }))
	markers := factory.Core().V1().ConfigMaps()
	changed := make(chan struct{}, 1)
	wake := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	if _, err := markers.Informer().AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { wake() }, UpdateFunc: func(any, any) { wake() }, DeleteFunc: func(any) { wake() },
	}); err != nil {
		return fmt.Errorf("watch for namespaces to watch: %w", err)
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	if !toolscache.WaitForCacheSync(ctx.Done(), markers.Informer().HasSynced) {
		return nil
	}
	var loaded sync.Once
	told := false // whether it is known which namespaces were kept before
	for {
		again := time.NewTimer(retryAdjust)
		var unknown error
		if !told {
			unknown = c.held(ctx)
			told = unknown == nil
		}
		needed, err := c.adjust(ctx, markers.Lister())
		if ctx.Err() != nil {
			again.Stop()
			return nil
		}
		if err == nil {
			loaded.Do(func() { close(c.loaded) })
		}
		if failed := errors.Join(unknown, err); failed != nil {
			c.options.Log.Error(failed, "a namespace cannot be added; it is tried again", "after", retryAdjust)
		} else if !needed {
			again.Stop()
		}
		select {
		case <-ctx.Done():
			again.Stop()
			return nil
		case <-changed:
			again.Stop()
		case <-again.C:
		}
	}
}

// adjust makes the namespaces those that were given and those that the markers name. One that no marker names any more is
// kept while objects in it have a finalizer of ours: nobody else would remove that. Needed tells that there is such a one.
func (c *Cache) adjust(ctx context.Context, markers listers.ConfigMapLister) (needed bool, err error) {
	found, err := markers.List(labels.Everything())
	if err != nil {
		return false, err
	}
	want := sets.New(c.options.Given...)
	for _, marker := range found {
		want.Insert(marker.Labels[crds.WatchLabel])
	}
	want.Delete("")
	c.mu.RLock()
	have := sets.KeySet(c.spaces)
	c.mu.RUnlock()
	for _, name := range sets.List(have.Difference(want)) {
		holder, err := c.holder(ctx, name)
		switch {
		case ctx.Err() != nil:
			return needed, nil
		case err != nil:
			needed = true
			c.options.Log.Info("a namespace that is no longer to be watched is watched until it can be told what is in it", "namespace", name, "cause", err.Error())
		case holder != "":
			needed = true
			c.options.Log.Info("a namespace that is no longer to be watched is watched until its finalizers are gone", "namespace", name, "object", holder)
		default:
			c.drop(ctx, name)
			c.options.Log.Info("a namespace is no longer watched", "namespace", name)
		}
	}
	for _, name := range sets.List(want.Difference(have)) {
		if err := c.add(name); err != nil {
			return needed, err
		}
		c.options.Log.Info("a namespace is watched", "namespace", name)
	}
	return needed, nil
}

// add adds a namespace, with all that was asked of the others.
func (c *Cache) add(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	options := c.base
	options.DefaultNamespaces = map[string]cache.Config{name: {}}
	options.NewInformer = c.newInformer(name)
	inner, err := cache.New(c.config, options)
	if err != nil {
		return fmt.Errorf("cache of namespace %s: %w", name, err)
	}
	ctx := context.Background()
	if c.running != nil {
		ctx = c.running
	}
	s := &space{name: name, cache: inner}
	for _, each := range c.indexes {
		if err := inner.IndexField(ctx, each.obj, each.field, each.values); err != nil {
			return fmt.Errorf("cache of namespace %s: %w", name, err)
		}
	}
	for _, each := range c.kinds {
		if err := each.extend(ctx, s); err != nil {
			for _, extended := range c.kinds {
				extended.shrink(s)
			}
			return fmt.Errorf("cache of namespace %s: %w", name, err)
		}
	}
	c.sight.add(name)
	c.spaces[name] = s
	if c.running != nil {
		s.start(c.running)
	}
	return nil
}

func (s *space) start(ctx context.Context) {
	ctx, s.stop = context.WithCancel(ctx)
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		// It returns an error only when it is started twice.
		_ = s.cache.Start(ctx)
	}()
}

// drop takes a namespace out. To those who listen its objects are deleted: they will not hear of them again.
func (c *Cache) drop(ctx context.Context, name string) {
	c.mu.Lock()
	s := c.spaces[name]
	delete(c.spaces, name)
	c.sight.drop(name)
	kinds := make([]*informer, 0, len(c.kinds))
	handlers := map[*informer][]toolscache.ResourceEventHandler{}
	for _, each := range c.kinds {
		each.shrink(s)
		kinds = append(kinds, each)
		handlers[each] = each.listeners()
	}
	c.mu.Unlock()
	s.stop()
	<-s.done
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	for _, each := range kinds {
		objects, err := c.last(ctx, s, each.obj)
		if err != nil {
			// It never had any, or the operator stops.
			continue
		}
		for _, obj := range objects {
			for _, handler := range handlers[each] {
				handler.OnDelete(obj)
			}
		}
	}
}

// newInformer is what a namespace's cache makes informers by.
func (c *Cache) newInformer(namespace string) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(inner toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		gvk, err := apiutil.GVKForObject(obj, c.base.Scheme)
		if err != nil {
			// The cache that calls has looked the kind up before.
			return toolscache.NewSharedIndexInformer(inner, obj, resync, indexers)
		}
		return toolscache.NewSharedIndexInformer(&tolerant{
			inner: toolscache.ToListerWatcherWithContext(inner),
			empty: func() (runtime.Object, error) {
				return c.base.Scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
			},
			lost:  func(cause error) { c.sight.lost(namespace, gvk, cause) },
			found: func() { c.sight.found(namespace, gvk) },
			hint:  func() <-chan struct{} { return c.sight.hint(namespace) },
			first: c.options.ProbeFirst, most: c.options.ProbeMost,
		}, obj, resync, indexers)
	}
}
