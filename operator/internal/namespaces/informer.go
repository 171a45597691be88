package namespaces

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// informer tells of the objects of one kind in all namespaces. The cache's mutex guards it.
type informer struct {
	owner    *Cache
	obj      client.Object
	parts    map[*space]cache.Informer
	handlers map[*registration]struct{}
	indexers []toolscache.Indexers
	synced   *doneWhen
}

// registration is one listener.
type registration struct {
	handler toolscache.ResourceEventHandler
	options toolscache.HandlerOptions
	parts   map[*space]toolscache.ResourceEventHandlerRegistration
	synced  *doneWhen
}

// doneWhen is closed once all of the first parts are.
type doneWhen struct {
	name string
	done chan struct{}
}

// Name implements toolscache.DoneChecker.
func (d *doneWhen) Name() string { return d.name }

// Done implements toolscache.DoneChecker.
func (d *doneWhen) Done() <-chan struct{} { return d.done }

func (d *doneWhen) is() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// after closes the channel when the markers' namespaces were added and the parts that there are then are done.
func (c *Cache) after(name string, parts func() []toolscache.DoneChecker) *doneWhen {
	d := &doneWhen{name: name, done: make(chan struct{})}
	go func() {
		select {
		case <-c.loaded:
		case <-c.stopped:
			return
		}
		c.mu.RLock()
		all := parts()
		c.mu.RUnlock()
		for _, part := range all {
			select {
			case <-part.Done():
			case <-c.stopped:
				return
			}
		}
		close(d.done)
	}()
	return d
}

// GetInformer implements cache.Informers. It does not wait until the informer has synced.
func (c *Cache) GetInformer(ctx context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	gvk, err := apiutil.GVKForObject(obj, c.base.Scheme)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.kinds[gvk]; ok {
		return found, nil
	}
	i := &informer{owner: c, obj: obj, parts: map[*space]cache.Informer{}, handlers: map[*registration]struct{}{}}
	for _, s := range c.spaces {
		if err := i.extend(ctx, s); err != nil {
			return nil, err
		}
	}
	i.synced = c.after(gvk.String(), func() []toolscache.DoneChecker {
		out := make([]toolscache.DoneChecker, 0, len(i.parts))
		for _, part := range i.parts {
			out = append(out, part.HasSyncedChecker())
		}
		return out
	})
	c.kinds[gvk] = i
	return i, nil
}

// GetInformerForKind implements cache.Informers.
func (c *Cache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	raw, err := c.base.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	obj, ok := raw.(client.Object)
	if !ok {
		return nil, errors.New(gvk.String() + " is no kind of objects")
	}
	return c.GetInformer(ctx, obj, opts...)
}

// RemoveInformer implements cache.Informers.
func (c *Cache) RemoveInformer(ctx context.Context, obj client.Object) error {
	gvk, err := apiutil.GVKForObject(obj, c.base.Scheme)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kinds, gvk)
	for _, s := range c.spaces {
		if err := s.cache.RemoveInformer(ctx, obj); err != nil {
			return err
		}
	}
	return nil
}

// extend adds a namespace, with all listeners and indexers.
func (i *informer) extend(ctx context.Context, s *space) error {
	part, err := s.cache.GetInformer(ctx, i.obj, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	for _, each := range i.indexers {
		if err := part.AddIndexers(each); err != nil {
			return err
		}
	}
	for r := range i.handlers {
		if r.parts[s], err = part.AddEventHandlerWithOptions(r.handler, r.options); err != nil {
			return err
		}
	}
	i.parts[s] = part
	return nil
}

// shrink takes a namespace out.
func (i *informer) shrink(s *space) {
	delete(i.parts, s)
	for r := range i.handlers {
		delete(r.parts, s)
	}
}

func (i *informer) listeners() []toolscache.ResourceEventHandler {
	out := make([]toolscache.ResourceEventHandler, 0, len(i.handlers))
	for r := range i.handlers {
		out = append(out, r.handler)
	}
	return out
}

// AddEventHandler implements cache.Informer.
func (i *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i *informer) AddEventHandlerWithResyncPeriod(handler toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, toolscache.HandlerOptions{ResyncPeriod: &resync})
}

// AddEventHandlerWithOptions implements cache.Informer. The handler hears of namespaces that come later too.
func (i *informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	i.owner.mu.Lock()
	defer i.owner.mu.Unlock()
	r := &registration{handler: handler, options: options, parts: map[*space]toolscache.ResourceEventHandlerRegistration{}}
	for s, part := range i.parts {
		var err error
		if r.parts[s], err = part.AddEventHandlerWithOptions(handler, options); err != nil {
			return nil, err
		}
	}
	i.handlers[r] = struct{}{}
	r.synced = i.owner.after("handler", func() []toolscache.DoneChecker {
		out := make([]toolscache.DoneChecker, 0, len(r.parts))
		for _, part := range slices.Collect(maps.Values(r.parts)) {
			out = append(out, part.HasSyncedChecker())
		}
		return out
	})
	return r, nil
}

// RemoveEventHandler implements cache.Informer.
func (i *informer) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*registration)
	if !ok {
		return errors.New("the registration is of another informer")
	}
	i.owner.mu.Lock()
	defer i.owner.mu.Unlock()
	delete(i.handlers, r)
	var faults []error
	for s, part := range r.parts {
		faults = append(faults, i.parts[s].RemoveEventHandler(part))
	}
	return errors.Join(faults...)
}

// AddIndexers implements cache.Informer.
func (i *informer) AddIndexers(indexers toolscache.Indexers) error {
	i.owner.mu.Lock()
	defer i.owner.mu.Unlock()
	for _, part := range i.parts {
		if err := part.AddIndexers(indexers); err != nil {
			return err
		}
	}
	i.indexers = append(i.indexers, indexers)
	return nil
}

// HasSynced implements cache.Informer: it speaks of the namespaces that there were first.
func (i *informer) HasSynced() bool { return i.synced.is() }

// HasSyncedChecker implements cache.Informer.
func (i *informer) HasSyncedChecker() toolscache.DoneChecker { return i.synced }

// IsStopped implements cache.Informer.
func (i *informer) IsStopped() bool {
	select {
	case <-i.owner.stopped:
		return true
	default:
		return false
	}
}

// HasSynced implements toolscache.ResourceEventHandlerRegistration.
func (r *registration) HasSynced() bool { return r.synced.is() }

// HasSyncedChecker implements toolscache.ResourceEventHandlerRegistration.
func (r *registration) HasSyncedChecker() toolscache.DoneChecker { return r.synced }
