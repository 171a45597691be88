package components

import (
	"encoding/json"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/components/kube"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// limitObjects make the API server itself hold the limits of a namespace, whoever writes and with whatever tool.
// The subresource scale, by which an autoscaler writes, has a policy of its own: its object is no LeaseService but a
// Scale, on which an expression about another field than replicas fails.
func limitObjects(namespace string, args *TenantSpaceArgs) []child {
	if args.Limits == nil {
		return nil
	}
	labels := tenantLabels(args.Tenant)
	objects := limitPolicy(namespace, limitedResource{
		child: "limits", meta: objectMeta("", kube.Name(kube.MaxNameLength, "holdfast-limits", namespace), labels),
		resource: "leaseservices", operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		validations: args.Limits.validations(namespace),
	})
	if validations := args.Limits.scaleValidations(); len(validations) > 0 {
		objects = append(objects, limitPolicy(namespace, limitedResource{
			child: "scale-limits", meta: objectMeta("", kube.Name(kube.MaxNameLength, "holdfast-scale-limits", namespace), labels),
			resource: "leaseservices/scale", operations: []admissionv1.OperationType{admissionv1.Update},
			validations: validations,
		})...)
	}
	return objects
}

// limitedResource is a resource that a policy holds to limits.
type limitedResource struct {
	child       string
	meta        metav1.ObjectMeta
	resource    string
	operations  []admissionv1.OperationType
	validations []admissionv1.Validation
}

// limitPolicy is a policy, and the binding that puts it in effect in the namespace.
func limitPolicy(namespace string, limited limitedResource) []child {
	return []child{
		{limited.child, &admissionv1.ValidatingAdmissionPolicy{
			TypeMeta:   kube.Type(admissionv1.SchemeGroupVersion, "ValidatingAdmissionPolicy"),
			ObjectMeta: limited.meta,
			Spec: admissionv1.ValidatingAdmissionPolicySpec{
				FailurePolicy: new(admissionv1.Fail),
				MatchConstraints: &admissionv1.MatchResources{
					ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: limited.operations,
						Rule: admissionv1.Rule{
							APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{"*"},
							Resources: []string{limited.resource}, Scope: new(admissionv1.NamespacedScope),
						},
					}}},
					MatchPolicy: new(admissionv1.Equivalent),
				},
				// What was made within older limits can still be labelled, and deleted: taking a finalizer away is an update.
				MatchConditions: []admissionv1.MatchCondition{{
					Name: "spec-changes", Expression: "request.operation == 'CREATE' || object.spec != oldObject.spec",
				}},
				Validations: limited.validations,
			},
		}},
		{limited.child + "-binding", &admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta:   kube.Type(admissionv1.SchemeGroupVersion, "ValidatingAdmissionPolicyBinding"),
			ObjectMeta: limited.meta,
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        limited.meta.Name,
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
				MatchResources: &admissionv1.MatchResources{
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
				},
			},
		}},
	}
}

// validations are the limits in CEL. What the API server defaults is there when it validates.
func (l TenantLimits) validations(namespace string) []admissionv1.Validation {
	var list []admissionv1.Validation
	add := func(field, expression, allowed string) {
		list = append(list, limitValidation(field, expression, allowed))
	}
	addRange := func(field string, limit *Range) {
		if expression, allowed := limit.cel("object.spec." + field); expression != "" {
			add(field, expression, allowed)
		}
	}
	addRange("replicas", l.Replicas)
	addRange("leaseTTLSeconds", l.LeaseTTLSeconds)
	addLimit := func(field string, limit *Range) {
		if expression, allowed := limit.celLimit("object.spec.limits", field); expression != "" {
			add("limits."+field, expression, allowed)
		}
	}
	addLimit("leases", l.Leases)
	addLimit("acquiresPerSecond", l.AcquiresPerSecond)
	add("image", "!has(object.spec.image) || object.spec.image == '' || "+celImages(l.Images), l.allowedImages())
	if len(l.EtcdEndpoints) > 0 {
		add("etcdEndpoints", "!has(object.spec.etcdEndpoints) || object.spec.etcdEndpoints.all(e, e in "+celTexts(l.EtcdEndpoints)+")",
			"allowed: "+strings.Join(l.EtcdEndpoints, ", "))
	}
	add("etcd.prefix",
		"!has(object.spec.etcd) || !has(object.spec.etcd.prefix) || object.spec.etcd.prefix == '' || object.spec.etcd.prefix.startsWith("+celText(ownPrefix(namespace))+")",
		"it must begin with "+ownPrefix(namespace))
	add("scheduling.priorityClassName",
		"!has(object.spec.scheduling) || !has(object.spec.scheduling.priorityClassName) || object.spec.scheduling.priorityClassName == ''", leaveOut)
	add("scheduling.tolerations",
		"!has(object.spec.scheduling) || !has(object.spec.scheduling.tolerations) || size(object.spec.scheduling.tolerations) == 0", leaveOut)
	return list
}

// scaleValidations are the limits of a Scale. One without replicas does not get here: the schema refuses zero.
func (l TenantLimits) scaleValidations() []admissionv1.Validation {
	expression, allowed := l.Replicas.cel("object.spec.replicas")
	if expression == "" {
		return nil
	}
	return []admissionv1.Validation{limitValidation("replicas", expression, allowed)}
}

func limitValidation(field, expression, allowed string) admissionv1.Validation {
	return admissionv1.Validation{
		Expression: expression,
		Message:    fmt.Sprintf("spec.%s is outside of what the platform allows in this namespace: %s", field, allowed),
		Reason:     new(metav1.StatusReasonForbidden),
	}
}

func (r *Range) cel(value string) (expression, allowed string) {
	if r == nil {
		return "", ""
	}
	var terms, words []string
	if r.Min > 0 {
		terms, words = append(terms, fmt.Sprintf("%s >= %d", value, r.Min)), append(words, fmt.Sprintf("at least %d", r.Min))
	}
	if r.Max > 0 {
		terms, words = append(terms, fmt.Sprintf("%s <= %d", value, r.Max)), append(words, fmt.Sprintf("at most %d", r.Max))
	}
	return strings.Join(terms, " && "), strings.Join(words, ", ")
}

// celLimit is [Range.checkLimit] of a field that may not be there.
func (r *Range) celLimit(object, field string) (expression, allowed string) {
	bounds, allowed := r.cel(object + "." + field)
	given := fmt.Sprintf("has(%s) && has(%s.%s)", object, object, field)
	switch {
	case bounds == "":
		return "", ""
	case r.Max > 0:
		return given + " && " + bounds, "it has to be given, " + allowed
	default:
		return "!(" + given + ") || " + bounds, allowed
	}
}

func celImages(images []string) string {
	terms := make([]string, 0, len(images))
	for _, image := range images {
		if start, open := strings.CutSuffix(image, "*"); open {
			terms = append(terms, "object.spec.image.startsWith("+celText(start)+")")
		} else {
			terms = append(terms, "object.spec.image == "+celText(image))
		}
	}
	if len(terms) == 0 {
		return "false"
	}
	return strings.Join(terms, " || ")
}

func celTexts(texts []string) string {
	quoted := make([]string, 0, len(texts))
	for _, text := range texts {
		quoted = append(quoted, celText(text))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// celText is a text as CEL writes it: JSON's escapes are among CEL's.
func celText(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		return `""` // a string always has a JSON form
	}
	return string(quoted)
}
