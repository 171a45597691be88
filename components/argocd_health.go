package components

import (
	_ "embed"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/components/kube"
	"github.com/holdfast-io/holdfast/crds"
)

// healthScript serves all kinds, since all report by one contract.
//
//go:embed health/health.lua
var healthScript string

// ArgoCDHealth is what Argo CD's ConfigMap argocd-cm needs to know the health of this project's kinds: its keys and their
// values, one for each kind that there is.
func ArgoCDHealth() map[string]string {
	data := map[string]string{}
	for _, crd := range crds.All() {
		data[fmt.Sprintf("resource.customizations.health.%s_%s", crd.Spec.Group, crd.Spec.Names.Kind)] = healthScript
	}
	return data
}

// newArgoHealth adds the health of our kinds to the ConfigMap that Argo CD's installation made, and nothing else.
func newArgoHealth(own children, namespace string) (*kube.Resource, error) {
	meta := objectMeta(namespace, "argocd-cm", nil)
	meta.Annotations = map[string]string{annotationPatchForce: "true"}
	return kube.Patch(own.ctx, own.name+"-argocd-cm", &corev1.ConfigMap{
		TypeMeta: kube.Type(corev1.SchemeGroupVersion, "ConfigMap"), ObjectMeta: meta, Data: ArgoCDHealth(),
	}, pulumi.Parent(own.parent))
}
