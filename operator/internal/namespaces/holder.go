package namespaces

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

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

// holder names an object of a namespace that has a finalizer of ours, or is empty. Of ZooKeeperConfigs the API server is
// asked, since the cache has no kind before a controller asks for it, which only an operator that leads does. Where that
// is not allowed, the cache is taken at its word if it sees the whole namespace.
func (c *Cache) holder(ctx context.Context, name string) (string, error) {
	holder, err := c.finalized(ctx, name)
	if apierrors.IsForbidden(err) && c.sight.whole(name) {
		err = nil
	}
	if err != nil || holder != "" {
		return holder, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.Look)
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

// finalized asks the API server for a ZooKeeperConfig of a namespace that has a finalizer of ours, and is empty where there
// is none, or no such kind.
func (c *Cache) finalized(ctx context.Context, namespace string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Look)
	defer cancel()
	clients, err := metadata.NewForConfigAndClient(c.config, c.base.HTTPClient)
	if err != nil {
		return "", fmt.Errorf("list ZooKeeperConfigs: %w", err)
	}
	resource := clients.Resource(v1alpha1.GroupVersion.WithResource("zookeeperconfigs")).Namespace(namespace)
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return resource.List(ctx, options)
	})
	found := ""
	err = pages.EachListItem(ctx, metav1.ListOptions{}, func(raw runtime.Object) error {
		if obj, ok := raw.(client.Object); ok && isHeld(obj) {
			found = "ZooKeeperConfig " + obj.GetName()
		}
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("list ZooKeeperConfigs: %w", err)
	}
	return found, nil
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
