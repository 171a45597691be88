package components

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/components/kube"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// Labels that the objects of all components carry.
const (
	labelName      = "app.kubernetes.io/name"
	labelInstance  = "app.kubernetes.io/instance"
	labelComponent = "app.kubernetes.io/component"
	labelPartOf    = "app.kubernetes.io/part-of"
	labelTenant    = "dist.system/tenant"
	partOf         = "holdfast"
)

// Annotations that the Pulumi Kubernetes provider reads.
const (
	annotationSkipAwait  = "pulumi.com/skipAwait"
	annotationWaitFor    = "pulumi.com/waitFor"
	annotationPatchForce = "pulumi.com/patchForce"
)

// children registers the objects that belong to one component.
type children struct {
	ctx    *pulumi.Context
	name   string
	parent pulumi.Resource
	// made gets every object that is added; nil when nobody asks.
	made *[]pulumi.Resource
}

// child is an object with the suffix of its logical name, which begins with the component's name.
type child struct {
	suffix string
	object any
}

func (c children) add(suffix string, object any, opts ...pulumi.ResourceOption) (*kube.Resource, error) {
	opts = append([]pulumi.ResourceOption{pulumi.Parent(c.parent)}, opts...)
	res, err := kube.New(c.ctx, c.name+"-"+suffix, object, opts...)
	if err == nil && c.made != nil {
		*c.made = append(*c.made, res)
	}
	return res, err
}

func (c children) addAll(list []child, opts ...pulumi.ResourceOption) ([]pulumi.Resource, error) {
	resources := make([]pulumi.Resource, 0, len(list))
	for _, item := range list {
		res, err := c.add(item.suffix, item.object, opts...)
		if err != nil {
			return nil, err
		}
		resources = append(resources, res)
	}
	return resources, nil
}

func objectMeta(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
}

// checkMetadata refuses metadata by which a custom resource cannot be found again.
func checkMetadata(kind, name string, meta metav1.ObjectMeta) error {
	if meta.Name == "" || meta.Namespace == "" {
		return fmt.Errorf("%s %s: metadata.name %q and metadata.namespace %q must both be set", kind, name, meta.Name, meta.Namespace)
	}
	return nil
}

// awaited is the metadata by which an update waits until the object's condition Ready is True, or does not wait.
func awaited(meta metav1.ObjectMeta, wait bool) metav1.ObjectMeta {
	meta = *meta.DeepCopy()
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	if wait {
		meta.Annotations[annotationWaitFor] = "condition=" + v1alpha1.ConditionReady
	} else {
		meta.Annotations[annotationSkipAwait] = "true"
	}
	return meta
}

func timeouts(create, update, remove string) pulumi.ResourceOption {
	return pulumi.Timeouts(&pulumi.CustomTimeouts{Create: create, Update: update, Delete: remove})
}

// after is value, known once res is created and up to date, and depending on it.
func after(res pulumi.CustomResource, value string) pulumi.StringOutput {
	return res.ID().ApplyT(func(pulumi.ID) string { return value }).(pulumi.StringOutput)
}

func orDefault(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}
