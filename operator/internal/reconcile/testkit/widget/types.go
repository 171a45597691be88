// Package widget is a small kind that the tests of the reconciler and of its test kit work with: a Widget makes a
// ConfigMap, a Service and, unless its size is zero, a StatefulSet.
package widget

import (
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// GroupVersion of the kind.
var GroupVersion = schema.GroupVersion{Group: "test.dist.system", Version: "v1"}

// Spec of a Widget.
type Spec struct {
	// Data is what the ConfigMap has.
	Data map[string]string `json:"data,omitempty"`
	// Size is the number of replicas of the StatefulSet; zero means that there is none.
	Size int32 `json:"size,omitempty"`
	// Paused holds the controller back.
	Paused bool `json:"paused,omitempty"`
	// Invalid makes a spec that cannot work.
	Invalid bool `json:"invalid,omitempty"`
}

// Status of a Widget.
type Status struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	ReadyReplicas      int32              `json:"readyReplicas,omitempty"`
}

// Widget is the kind.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec,omitempty"`
	Status Status `json:"status,omitempty"`
}

// List is a list of Widgets.
type List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Widget `json:"items"`
}

// GetConditions returns the conditions of the status.
func (w *Widget) GetConditions() []metav1.Condition { return w.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (w *Widget) SetConditions(conditions []metav1.Condition) { w.Status.Conditions = conditions }

// GetObservedGeneration returns status.observedGeneration.
func (w *Widget) GetObservedGeneration() int64 { return w.Status.ObservedGeneration }

// SetObservedGeneration sets status.observedGeneration.
func (w *Widget) SetObservedGeneration(generation int64) { w.Status.ObservedGeneration = generation }

// DeepCopyInto copies into another Widget.
func (w *Widget) DeepCopyInto(out *Widget) {
	*out = *w
	w.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Data = maps.Clone(w.Spec.Data)
	out.Status.Conditions = slices.Clone(w.Status.Conditions)
}

// DeepCopy returns a copy.
func (w *Widget) DeepCopy() *Widget {
	out := new(Widget)
	w.DeepCopyInto(out)
	return out
}

// DeepCopyObject returns a copy.
func (w *Widget) DeepCopyObject() runtime.Object { return w.DeepCopy() }

// DeepCopyObject returns a copy.
func (l *List) DeepCopyObject() runtime.Object {
	out := &List{TypeMeta: l.TypeMeta, Items: make([]Widget, len(l.Items))}
	out.ListMeta = *l.ListMeta.DeepCopy()
	for i := range l.Items {
		l.Items[i].DeepCopyInto(&out.Items[i])
	}
	return out
}

// Scheme returns the scheme of the Kubernetes types and the Widget.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	scheme.AddKnownTypeWithName(GroupVersion.WithKind("Widget"), &Widget{})
	scheme.AddKnownTypeWithName(GroupVersion.WithKind("WidgetList"), &List{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return scheme, nil
}

// CRD returns the definition of the kind.
func CRD() *apiextensionsv1.CustomResourceDefinition {
	anything := true
	open := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + GroupVersion.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: GroupVersion.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: GroupVersion.Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": open, "status": open},
				}},
			}},
		},
	}
}
