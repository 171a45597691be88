package namespaces

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

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
	ctx, cancel := context.WithTimeout(ctx, c.options.Look)
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
