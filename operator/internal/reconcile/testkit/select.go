package testkit

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

// selects tells whether a list with these options has an object in it. The only field selector that a kind has is the
// index of controllers.
func selects(options *client.ListOptions, obj client.Object) bool {
	if options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set(obj.GetLabels())) {
		return false
	}
	if options.FieldSelector == nil {
		return true
	}
	for _, requirement := range options.FieldSelector.Requirements() {
		values := reconcile.IndexController(obj)
		if !strings.HasPrefix(requirement.Field, reconcile.ControllerIndex("")) || len(values) == 0 || values[0] != requirement.Value {
			return false
		}
	}
	return true
}

func compare(a, b ref) int {
	return cmp.Or(strings.Compare(a.kind.String(), b.kind.String()), strings.Compare(a.name.String(), b.name.String()))
}
