package zookeeperconfig

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// The indexes of the cache over ZooKeeperConfigs.
const (
	indexSecrets    = ".zookeeperconfig.secrets"
	indexConfigMaps = ".zookeeperconfig.configmaps"
	// indexPaths has the paths that an object wants or has, each as it is written: below its chroot.
	indexPaths = ".zookeeperconfig.paths"
	// indexSuffixes has those paths, and each without its first parts. A path below a chroot is the end of the full
	// one; which chroot that is may stand in a ConfigMap, so it cannot be part of an index.
	indexSuffixes = ".zookeeperconfig.suffixes"
)

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for name, values := range map[string]func(*v1alpha1.ZooKeeperConfig) []string{
		indexSecrets: secretsOf, indexConfigMaps: configMapsOf, indexPaths: pathsOf, indexSuffixes: suffixesOf,
	} {
		index := func(obj client.Object) []string { return values(obj.(*v1alpha1.ZooKeeperConfig)) }
		if err := indexer.IndexField(ctx, &v1alpha1.ZooKeeperConfig{}, name, index); err != nil {
			return fmt.Errorf("index ZooKeeperConfigs by %s: %w", name, err)
		}
	}
	return nil
}

func secretsOf(obj *v1alpha1.ZooKeeperConfig) []string {
	var out []string
	add := func(ref *v1alpha1.ObjectReference) {
		if ref != nil {
			out = append(out, ref.Name)
		}
	}
	if from := obj.Spec.DataFrom; from != nil && from.SecretKeyRef != nil {
		out = append(out, from.SecretKeyRef.Name)
	}
	if connection := obj.Spec.Connection; connection != nil {
		add(connection.AuthSecretRef)
		if connection.TLS != nil {
			add(connection.TLS.SecretRef)
		}
	}
	for _, entry := range obj.Spec.ACL {
		add(entry.SecretRef)
	}
	return out
}

func configMapsOf(obj *v1alpha1.ZooKeeperConfig) []string {
	var out []string
	if from := obj.Spec.DataFrom; from != nil && from.ConfigMapKeyRef != nil {
		out = append(out, from.ConfigMapKeyRef.Name)
	}
	if connection := obj.Spec.Connection; connection != nil && connection.ConnectStringFrom != nil {
		out = append(out, connection.ConnectStringFrom.Name)
	}
	return out
}

func pathsOf(obj *v1alpha1.ZooKeeperConfig) []string {
	out := []string{obj.Spec.Path}
	if obj.Status.Znode != nil {
		out = append(out, obj.Status.Znode.Path)
	}
	for _, superseded := range obj.Status.Superseded {
		out = append(out, superseded.Znode.Path)
	}
	if claim, ok := claimOf(obj); ok {
		out = append(out, claim.Path)
	}
	return out
}

func suffixesOf(obj *v1alpha1.ZooKeeperConfig) []string {
	var out []string
	for _, path := range pathsOf(obj) {
		out = append(out, suffixes(path)...)
	}
	return out
}

// candidates are the objects that want or have one of the paths.
func candidates(ctx context.Context, reader client.Reader, paths []string) ([]v1alpha1.ZooKeeperConfig, error) {
	var out []v1alpha1.ZooKeeperConfig
	seen := map[types.UID]bool{}
	for _, path := range paths {
		list := &v1alpha1.ZooKeeperConfigList{}
		if err := reader.List(ctx, list, client.MatchingFields{indexPaths: path}); err != nil {
			return nil, fmt.Errorf("list the ZooKeeperConfigs of path %s: %w", path, err)
		}
		for _, found := range list.Items {
			if !seen[found.UID] {
				seen[found.UID] = true
				out = append(out, found)
			}
		}
	}
	return out, nil
}

// wakeUsers wakes the objects that refer to a Secret or a ConfigMap.
func wakeUsers(reader client.Reader, index string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []ctrlreconcile.Request {
		list := &v1alpha1.ZooKeeperConfigList{}
		if err := reader.List(ctx, list, client.InNamespace(obj.GetNamespace()), client.MatchingFields{index: obj.GetName()}); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "finding the users of an object failed", "index", index, "object", client.ObjectKeyFromObject(obj))
			return nil
		}
		out := make([]ctrlreconcile.Request, 0, len(list.Items))
		for i := range list.Items {
			out = append(out, ctrlreconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
		return out
	})
}

// wakeRivals wakes the other objects that are after a znode of an object that came, went or changed its mind, and forgets
// an object that is gone.
func wakeRivals(reader client.Reader, memory *memory) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]
	wake := func(ctx context.Context, obj *v1alpha1.ZooKeeperConfig, q queue) {
		for _, request := range rivals(ctx, reader, obj) {
			q.Add(request)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			// Those of the first list are all in the queue.
			if obj, ok := e.Object.(*v1alpha1.ZooKeeperConfig); ok && !e.IsInInitialList {
				wake(ctx, obj, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, ok1 := e.ObjectOld.(*v1alpha1.ZooKeeperConfig)
			after, ok2 := e.ObjectNew.(*v1alpha1.ZooKeeperConfig)
			if ok1 && ok2 && !reflect.DeepEqual(pathsOf(before), pathsOf(after)) {
				wake(ctx, before, q)
				wake(ctx, after, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			memory.forget(keyOf(e.Object), e.Object.GetUID())
			if obj, ok := e.Object.(*v1alpha1.ZooKeeperConfig); ok {
				wake(ctx, obj, q)
			}
		},
	}
}

func rivals(ctx context.Context, reader client.Reader, obj *v1alpha1.ZooKeeperConfig) []ctrlreconcile.Request {
	var out []ctrlreconcile.Request
	add := func(index, path string) {
		list := &v1alpha1.ZooKeeperConfigList{}
		if err := reader.List(ctx, list, client.MatchingFields{index: path}); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "finding the rivals of an object failed", "path", path)
			return
		}
		for i := range list.Items {
			if keyOf(&list.Items[i]) != keyOf(obj) {
				out = append(out, ctrlreconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
	}
	for _, path := range pathsOf(obj) {
		add(indexSuffixes, path)
		for _, suffix := range suffixes(path)[1:] {
			add(indexPaths, suffix)
		}
	}
	return out
}
