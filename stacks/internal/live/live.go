// Package live compares manifests with the objects of a cluster, and moves the ownership of their fields.
package live

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Owner is who writes objects, known by its field managers.
type Owner struct {
	// Name for people.
	Name string
	// Apply is the field manager of its server-side applies. For Pulumi it is the beginning of it, which the provider
	// completes at random.
	Apply string
	// Update are other field managers of its own; Argo CD reconciles roles by update.
	Update []string
}

// Pulumi is the owner by the Kubernetes provider of Pulumi.
func Pulumi() Owner { return Owner{Name: "Pulumi", Apply: "pulumi-kubernetes"} }

// ArgoCD is the owner by Argo CD's application controller.
func ArgoCD() Owner {
	return Owner{Name: "Argo CD", Apply: "argocd-controller", Update: []string{"argocd-application-controller"}}
}

// Flux is the owner by Flux's kustomize-controller.
func Flux() Owner { return Owner{Name: "Flux", Apply: "kustomize-controller"} }

func (o Owner) applies(entry metav1.ManagedFieldsEntry) bool {
	return entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" &&
		strings.HasPrefix(entry.Manager, o.Apply)
}

func (o Owner) updates(entry metav1.ManagedFieldsEntry) bool {
	return entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == "" &&
		slices.Contains(o.Update, entry.Manager)
}

// Holds reports whether the owner has applied the object and not let go of it since.
func (o Owner) Holds(object *unstructured.Unstructured) bool {
	return object != nil && slices.ContainsFunc(object.GetManagedFields(), o.applies)
}

// Touches reports whether the owner still has any field of the object.
func (o Owner) Touches(object *unstructured.Unstructured) bool {
	return o.Holds(object) || (object != nil && slices.ContainsFunc(object.GetManagedFields(), o.updates))
}

// manager is the one field manager under which the owner has applied the object; empty when there is none, or several.
func (o Owner) manager(object *unstructured.Unstructured) string {
	names := sets.New[string]()
	for _, entry := range object.GetManagedFields() {
		if o.applies(entry) {
			names.Insert(entry.Manager)
		}
	}
	if names.Len() != 1 {
		return ""
	}
	return names.UnsortedList()[0]
}

// Cluster is a connection to an API server. It is safe for concurrent use.
type Cluster struct{ client client.Client }

// Connect connects to the cluster that a stack's configuration chooses, as Pulumi's provider does: by a kubeconfig (the path
// of a file, or its content; empty: that of KUBECONFIG) and the name of a context (empty: the current one).
func Connect(kubeconfig, kubeContext string) (*Cluster, error) {
	overrides := &clientcmd.ConfigOverrides{CurrentContext: kubeContext}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	load := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	if _, err := os.Stat(kubeconfig); err == nil {
		rules.ExplicitPath = kubeconfig
	} else if kubeconfig != "" {
		content, err := clientcmd.Load([]byte(kubeconfig))
		if err != nil {
			return nil, fmt.Errorf("kubernetes:kubeconfig is neither a file nor the content of one: %w", err)
		}
		load = clientcmd.NewDefaultClientConfig(*content, overrides)
	}
	config, err := load.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return ForConfig(config)
}

// ForConfig connects to the cluster of a configuration.
func ForConfig(config *rest.Config) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	c, err := client.New(config, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return &Cluster{client: c}, nil
}

// Get reads the object that a manifest describes; nil when there is none, or no such kind.
func (c *Cluster) Get(ctx context.Context, manifest map[string]any) (*unstructured.Unstructured, error) {
	object := identity(manifest)
	err := c.client.Get(ctx, client.ObjectKeyFromObject(object), object)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", Name(manifest), err)
	}
	return object, nil
}

// missing covers the kinds whose definition is not there either.
func missing(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// DryRun is what the object would be if the owner applied the manifest, taking over what conflicts. An owner that holds the
// object loses what the manifest no longer has.
func (c *Cluster) DryRun(
	ctx context.Context, owner Owner, now *unstructured.Unstructured, manifest map[string]any,
) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(manifest)}
	manager := owner.manager(now)
	if manager == "" {
		manager = owner.Apply
	}
	err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
		client.FieldOwner(manager), client.ForceOwnership, client.DryRunAll)
	if err != nil {
		return nil, fmt.Errorf("dry run of %s: %w", Name(manifest), err)
	}
	return object, nil
}

// Release makes the owner let go of the object: fields that somebody else applied too stay as they are, those that only the
// owner had go, its marks among them. It does nothing to an object that the owner does not touch.
func (c *Cluster) Release(ctx context.Context, owner Owner, manifest map[string]any) error {
	object, err := c.Get(ctx, manifest)
	if err != nil || object == nil {
		return err
	}
	if patch, err := updatesToApplies(owner, object); err != nil {
		return fmt.Errorf("%s: field managers: %w", Name(manifest), err)
	} else if patch != nil {
		if err := c.client.Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch)); err != nil {
			return fmt.Errorf("%s: release %s: %w", Name(manifest), owner.Name, err)
		}
	}
	for _, entry := range object.GetManagedFields() {
		if !owner.applies(entry) {
			continue
		}
		// An apply of nothing. The UID keeps it from creating an object that has just been deleted.
		empty := identity(manifest)
		empty.SetUID(object.GetUID())
		err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(empty), client.FieldOwner(entry.Manager))
		if err != nil {
			return fmt.Errorf("%s: release %s: %w", Name(manifest), entry.Manager, err)
		}
	}
	return nil
}

// updatesToApplies is the patch that gives the fields which the owner wrote by update to its applies, which can let go of
// them; nil when there are none.
func updatesToApplies(owner Owner, object *unstructured.Unstructured) ([]byte, error) {
	names := sets.New[string]()
	for _, entry := range object.GetManagedFields() {
		if owner.updates(entry) {
			names.Insert(entry.Manager)
		}
	}
	if names.Len() == 0 {
		return nil, nil
	}
	return csaupgrade.UpgradeManagedFieldsPatch(object, names, owner.Apply)
}

// List reads the objects of a kind in a namespace; none when there is no such kind.
func (c *Cluster) List(ctx context.Context, apiVersion, kind, namespace string) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(apiVersion)
	list.SetKind(kind + "List")
	err := c.client.List(ctx, list, client.InNamespace(namespace))
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the %ss of namespace %s: %w", kind, namespace, err)
	}
	return list.Items, nil
}

// Serves reports whether the cluster knows the kind.
func (c *Cluster) Serves(apiVersion, kind string) (bool, error) {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return false, err
	}
	_, err = c.client.RESTMapper().RESTMapping(version.WithKind(kind).GroupKind(), version.Version)
	if missing(err) {
		return false, nil
	}
	return err == nil, err
}

// Annotate sets an annotation of an object.
func (c *Cluster) Annotate(ctx context.Context, object *unstructured.Unstructured, key, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
	if err := c.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("annotate %s: %w", Name(object.Object), err)
	}
	return nil
}

// identity is an object with nothing but what finds it.
func identity(manifest map[string]any) *unstructured.Unstructured {
	from := &unstructured.Unstructured{Object: manifest}
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(from.GetAPIVersion())
	object.SetKind(from.GetKind())
	object.SetNamespace(from.GetNamespace())
	object.SetName(from.GetName())
	return object
}

// Name is kind, namespace and name of an object, for people.
func Name(manifest map[string]any) string {
	object := &unstructured.Unstructured{Object: manifest}
	if object.GetNamespace() == "" {
		return object.GetKind() + " " + object.GetName()
	}
	return object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
}
