package namespaces

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Options say what is watched.
type Options struct {
	// Given are namespaces that are watched for as long as the operator runs.
	Given []string
	// Markers is the namespace of the ConfigMaps that name further ones, see crds.WatchLabel. Empty: there are none.
	Markers string
	// Log takes what a person would ask about.
	Log logr.Logger
	// Registerer takes the metric holdfast_namespace_readable.
	Registerer prometheus.Registerer
	// ProbeFirst and ProbeMost are the least and the greatest time between probes of what cannot be read. Zero: 1 s, 15 s.
	ProbeFirst, ProbeMost time.Duration
	// Retry is the time to the next look at a namespace that could not be added, or is not watched for its marker's sake.
	// It is longer than a pass takes. Zero: 10 s.
	Retry time.Duration
	// Look bounds a look at what a namespace has: an informer that has not synced would be waited for without end, and with it
	// all other namespaces would be. Zero: 5 s.
	Look time.Duration
}

// Cache is a cache over namespaces, of namespaced types alone. It is safe for concurrent use; New makes one.
type Cache struct {
	options Options
	config  *rest.Config
	base    cache.Options
	sight   *sight
	// loaded is closed once the namespaces of all markers were added, stopped when Start returns.
	loaded, stopped chan struct{}

	mu sync.RWMutex
	// running is what Start was called with; nil before.
	running context.Context
	spaces  map[string]*space
	kinds   map[schema.GroupVersionKind]*informer
	indexes []index
}

// space is one namespace.
type space struct {
	name  string
	cache cache.Cache
	// stop ends it, and done is closed when it has ended; nil before it was started.
	stop context.CancelFunc
	done chan struct{}
}

type index struct {
	obj    client.Object
	field  string
	values client.IndexerFunc
}

var _ cache.Cache = (*Cache)(nil)

// New makes a cache of the namespaces of the options; it is a cache.NewCacheFunc but for them. What base says of namespaces is
// not looked at.
func New(config *rest.Config, base cache.Options, options Options) (*Cache, error) {
	if options.ProbeFirst == 0 {
		options.ProbeFirst = time.Second
	}
	if options.ProbeMost == 0 {
		options.ProbeMost = 15 * time.Second
	}
	if options.Retry == 0 {
		options.Retry = 10 * time.Second
	}
	if options.Look == 0 {
		options.Look = 5 * time.Second
	}
	seen, err := newSight(options.Log, options.Registerer)
	if err != nil {
		return nil, err
	}
	c := &Cache{
		options: options, config: config, base: base, sight: seen,
		loaded: make(chan struct{}), stopped: make(chan struct{}),
		spaces: map[string]*space{}, kinds: map[schema.GroupVersionKind]*informer{},
	}
	for _, name := range options.Given {
		if err := c.add(name); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Watches tells whether a namespace is watched now.
func (c *Cache) Watches(namespace string) bool { return c.space(namespace) != nil }

func (c *Cache) space(name string) *space {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.spaces[name]
}

// Get implements client.Reader. In a namespace that is not watched (any longer) there is nothing.
func (c *Cache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(obj, c.base.Scheme)
	if err != nil {
		return err
	}
	s := c.space(key.Namespace)
	if s == nil {
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
	}
	if err := c.sight.check(key.Namespace, gvk); err != nil {
		return err
	}
	return s.cache.Get(ctx, key, obj, opts...)
}

// List implements client.Reader. A list of all namespaces leaves out those that cannot be read.
func (c *Cache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	if options.Namespace == "" {
		return c.listAll(ctx, list, options)
	}
	gvk, err := c.elementOf(list)
	if err != nil {
		return err
	}
	s := c.space(options.Namespace)
	if s == nil {
		return fmt.Errorf("list objects of kind %s: namespace %s is not watched", gvk.Kind, options.Namespace)
	}
	if err := c.sight.check(options.Namespace, gvk); err != nil {
		return err
	}
	return s.cache.List(ctx, list, opts...)
}

// elementOf is the kind of a list's elements.
func (c *Cache) elementOf(list client.ObjectList) (schema.GroupVersionKind, error) {
	gvk, err := apiutil.GVKForObject(list, c.base.Scheme)
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	return gvk, err
}

func (c *Cache) listAll(ctx context.Context, list client.ObjectList, options *client.ListOptions) error {
	if options.Limit > 0 || options.Continue != "" {
		return errors.New("a list of all namespaces comes whole: limit and continue are not supported")
	}
	c.mu.RLock()
	spaces := slices.Collect(maps.Values(c.spaces))
	c.mu.RUnlock()
	var all []runtime.Object
	for _, s := range spaces {
		part, ok := list.DeepCopyObject().(client.ObjectList)
		if !ok {
			return fmt.Errorf("%T is no list", list)
		}
		if err := s.cache.List(ctx, part, options); err != nil {
			return err
		}
		items, err := meta.ExtractList(part)
		if err != nil {
			return err
		}
		all = append(all, items...)
	}
	return meta.SetList(list, all)
}

// IndexField implements client.FieldIndexer, also for the namespaces that come later.
func (c *Cache) IndexField(ctx context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spaces {
		if err := s.cache.IndexField(ctx, obj, field, values); err != nil {
			return err
		}
	}
	c.indexes = append(c.indexes, index{obj: obj, field: field, values: values})
	return nil
}
