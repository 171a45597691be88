package namespaces

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// lookTimeout bounds a look at what a namespace has: an informer that has not synced would be waited for without end, and with
// it all other namespaces would be.
const lookTimeout = 5 * time.Second

// held adds the namespaces in which ZooKeeperConfigs have a finalizer of ours. Their markers may have gone while no operator
// ran, or before the last one stopped: adjust keeps them, as it does when a marker goes before its eyes.
//
// The finalizer does not say whose it is, and a cluster may have several operators: one that took another's namespace would
// look for the znodes in the wrong ensemble. So a namespace counts only where this operator still has its Role, which
// lets it list ConfigMaps.
func (c *Cache) held(ctx context.Context) error {
	found := map[string]string{}
	if err := c.finalizers(ctx, metav1.NamespaceAll, func(obj client.Object) { found[obj.GetNamespace()] = obj.GetName() }); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if c.Watches(name) {
			continue
		}
		own, err := c.mayList(ctx, name)
		if err != nil {
			return err
		}
		if !own {
			continue
		}
		if err := c.add(name); err != nil {
			return err
		}
		c.options.Log.Info("a namespace is watched, since there are finalizers in it", "namespace", name, "object", "ZooKeeperConfig "+found[name])
	}
	return nil
}

// holder names an object of a namespace that has a finalizer of ours, or is empty. Of ZooKeeperConfigs the API server is
// asked, since the cache has no kind before a controller asks for it, which only an operator that leads does.
func (c *Cache) holder(ctx context.Context, name string) (holder string, err error) {
	err = c.finalizers(ctx, name, func(obj client.Object) { holder = "ZooKeeperConfig " + obj.GetName() })
	if err != nil || holder != "" {
		return holder, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	c.mu.RLock()
	s := c.spaces[name]
	kinds := slices.Collect(maps.Values(c.kinds))
	c.mu.RUnlock()
	for _, each := range kinds {
		objects, err := c.last(ctx, s, each.obj)
		if err != nil {
			return "", err
		}
		for _, raw := range objects {
			if obj, ok := raw.(client.Object); ok && isHeld(obj) {
				return fmt.Sprintf("%T %s", obj, obj.GetName()), nil
			}
		}
	}
	return "", nil
}

// finalizers asks the API server for the ZooKeeperConfigs of a namespace, or of all, that have a finalizer of ours. It finds
// none where there is no such kind, or no right to list it.
func (c *Cache) finalizers(ctx context.Context, namespace string, found func(client.Object)) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	clients, err := metadata.NewForConfigAndClient(c.config, c.base.HTTPClient)
	if err != nil {
		return fmt.Errorf("list ZooKeeperConfigs: %w", err)
	}
	resource := clients.Resource(v1alpha1.GroupVersion.WithResource("zookeeperconfigs")).Namespace(namespace)
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return resource.List(ctx, options)
	})
	err = pages.EachListItem(ctx, metav1.ListOptions{}, func(raw runtime.Object) error {
		if obj, ok := raw.(client.Object); ok && isHeld(obj) {
			found(obj)
		}
		return nil
	})
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("list ZooKeeperConfigs: %w", err)
	}
	return nil
}

// mayList tells whether this operator may list the ConfigMaps of a namespace.
func (c *Cache) mayList(ctx context.Context, namespace string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	clients, err := metadata.NewForConfigAndClient(c.config, c.base.HTTPClient)
	if err != nil {
		return false, fmt.Errorf("list ConfigMaps of namespace %s: %w", namespace, err)
	}
	_, err = clients.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsForbidden(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list ConfigMaps of namespace %s: %w", namespace, err)
	}
	return true, nil
}

func isHeld(obj client.Object) bool {
	return slices.ContainsFunc(obj.GetFinalizers(), func(f string) bool { return strings.HasPrefix(f, v1alpha1.GroupVersion.Group+"/") })
}

// last are the objects of a kind that a namespace has, or had when it was dropped. It waits for the informer until ctx ends.
func (c *Cache) last(ctx context.Context, s *space, obj client.Object) ([]runtime.Object, error) {
	gvk, err := apiutil.GVKForObject(obj, c.base.Scheme)
	if err != nil {
		return nil, err
	}
	raw, err := c.base.Scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return nil, err
	}
	list, ok := raw.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%T is no list", raw)
	}
	if err := s.cache.List(ctx, list); err != nil {
		return nil, err
	}
	return meta.ExtractList(list)
}
