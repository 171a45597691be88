// Package argocdtest has what tests need in place of an Argo CD.
package argocdtest

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CRD is Argo CD's definition of an Application as far as this project is concerned: no status subresource, and fields that
// package argocd does not have.
func CRD() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "applications.argoproj.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "argoproj.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "applications", Singular: "application", Kind: "Application", ListKind: "ApplicationList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1alpha1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true), Required: []string{"spec"},
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {Type: "object", XPreserveUnknownFields: new(true), Required: []string{"destination", "project"}, Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"project": {Type: "string"}, "destination": {Type: "object", XPreserveUnknownFields: new(true)},
							"source": {Type: "object", XPreserveUnknownFields: new(true), Required: []string{"repoURL"}, Properties: map[string]apiextensionsv1.JSONSchemaProps{
								"repoURL": {Type: "string"}, "targetRevision": {Type: "string"},
							}},
						}},
					},
				}},
			}},
		},
	}
}
