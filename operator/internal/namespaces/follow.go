package namespaces

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/holdfast-io/holdfast/crds"
)

// follow adds and drops namespaces as the markers say, until ctx ends.
func (c *Cache) follow(ctx context.Context) error {
	clients, err := kubernetes.NewForConfigAndClient(c.config, c.base.HTTPClient)
	if err != nil {
		return fmt.Errorf("watch for namespaces to watch: %w", err)
	}
	changed := make(chan struct{}, 1)
	factory, maps, err := c.markers(ctx, clients, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return fmt.Errorf("watch for namespaces to watch: %w", err)
	}
	defer factory.Shutdown()
	if !toolscache.WaitForCacheSync(ctx.Done(), maps.Informer().HasSynced) {
		return nil
	}
	record, loaded := newRecord(clients.CoreV1().ConfigMaps(c.options.Markers), c.options.Look), sync.Once{}
	unread := true // whether the record is still to be read
	for {
		var unknown error
		if unread {
			unknown = record.load(ctx)
			unread = unknown != nil
		}
		pending, err := c.adjust(ctx, maps.Lister(), record)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			loaded.Do(func() { close(c.loaded) })
		}
		if failed := errors.Join(unknown, err); failed != nil {
			pending = true
			c.options.Log.Error(failed, "which namespaces to watch is not settled; it is tried again", "after", c.options.Retry)
		}
		var again <-chan time.Time // nil: when a marker changes
		if pending {
			again = time.After(c.options.Retry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again:
		}
	}
}

// markers starts to read the markers. Changed is called when one comes, changes or goes.
func (c *Cache) markers(ctx context.Context, clients kubernetes.Interface, changed func()) (informers.SharedInformerFactory, coreinformers.ConfigMapInformer, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(c.options.Markers),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = crds.WatchLabel }))
	maps := factory.Core().V1().ConfigMaps()
	if _, err := maps.Informer().AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
	}); err != nil {
		return nil, nil, err
	}
	factory.StartWithContext(ctx)
	return factory, maps, nil
}

// adjust makes the namespaces those that were given and those that the markers name, and those of the record that still
// have a finalizer of ours: nobody else would remove that. Pending tells that it is to be called again although no marker changes.
func (c *Cache) adjust(ctx context.Context, markers listers.ConfigMapLister, record *record) (pending bool, err error) {
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
	left := record.names.Difference(want).Difference(have)
	for _, name := range sets.List(have.Difference(want)) {
		c.letGo(ctx, name, record)
		pending = true
	}
	for _, name := range sets.List(left) {
		again, err := c.lookAgain(ctx, name, record)
		if err != nil {
			return pending, err
		}
		pending = pending || again
	}
	if err := record.keep(ctx, sets.List(want)...); err != nil && ctx.Err() == nil {
		// Worse than a namespace that may be forgotten is one that is not served.
		pending = true
		c.options.Log.Error(err, "a restart may forget namespaces that are watched", "namespaces", sets.List(want.Difference(record.names)))
	}
	for _, name := range sets.List(want.Difference(have)) {
		if err := c.add(name); err != nil {
			return pending, err
		}
		c.options.Log.Info("a namespace is watched", "namespace", name)
	}
	return pending, nil
}

// letGo drops a namespace that no marker names any more, unless it is needed. It stays in the record: a pass that is under
// way may add a finalizer yet, which lookAgain finds.
func (c *Cache) letGo(ctx context.Context, name string, record *record) {
	holder, err := c.holder(ctx, name)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		c.options.Log.Info("a namespace that is no longer to be watched is watched until it can be told what is in it", "namespace", name, "cause", err.Error())
	case holder != "":
		c.options.Log.Info("a namespace that is no longer to be watched is watched until its finalizers are gone", "namespace", name, "object", holder)
	default:
		c.drop(ctx, name)
		record.rest(name, c.options.Retry/2)
		c.options.Log.Info("a namespace is no longer watched", "namespace", name)
	}
}

// lookAgain looks at a namespace of the record that is not watched: one that was dropped a while ago, or whose marker went
// while no operator ran. It is watched again if it has finalizers of ours, and else forgotten. Pending tells that it is neither.
func (c *Cache) lookAgain(ctx context.Context, name string, record *record) (pending bool, err error) {
	if record.rests(name) {
		return true, nil
	}
	holder, err := c.finalized(ctx, name)
	switch {
	case ctx.Err() != nil:
		return true, nil
	case err != nil:
		c.options.Log.Info("whether there are finalizers in a namespace that was watched cannot be told; it is looked at again", "namespace", name, "cause", err.Error())
		return true, nil
	case holder == "":
		if err := record.forget(ctx, name); err != nil {
			c.options.Log.Info("a namespace that was watched is not forgotten yet", "namespace", name, "cause", err.Error())
			return true, nil
		}
		return false, nil
	}
	c.options.Log.Info("a namespace is watched, since there are finalizers in it", "namespace", name, "object", holder)
	if err := c.add(name); err != nil {
		return true, err
	}
	if err := record.renew(ctx, name); err != nil {
		c.options.Log.Error(err, "a restart may forget a namespace that is watched", "namespace", name)
	}
	return true, nil
}
