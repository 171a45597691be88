package components

import (
	"github.com/holdfast-io/holdfast/crds"
)

// releaseGuardName is the name of the operator's Role in a namespace of Argo CD.
const (
	releaseGuardName       = "holdfast-release-guard"
	defaultArgoCDNamespace = "argocd"
)

// ReleaseGuardOperatorArgs lets the operator serve ReleaseGuards.
type ReleaseGuardOperatorArgs struct {
	// Namespaces of Argo CD, which must exist: ReleaseGuards and the Applications that they move are there, and the operator
	// may change Applications there and nowhere else. None takes "argocd".
	Namespaces []string `json:"namespaces,omitempty"`
	// Prometheus lists the URLs that checks may be asked of; the first is that of a guard which names none. None: guards
	// have no checks.
	Prometheus []string `json:"prometheus,omitempty"`
}

// section is nil for nil, so that the file has none.
func (a *ReleaseGuardOperatorArgs) section() *ReleaseGuardOperatorArgs {
	if a == nil {
		return nil
	}
	section := *a
	if len(section.Namespaces) == 0 {
		section.Namespaces = []string{defaultArgoCDNamespace}
	}
	return &section
}

// roles let the operator work in the namespaces of Argo CD.
func (a *ReleaseGuardOperatorArgs) roles(operatorNamespace string) []child {
	if a == nil {
		return nil
	}
	var out []child
	for _, namespace := range a.section().Namespaces {
		meta := objectMeta(namespace, releaseGuardName, operatorLabels())
		out = append(out,
			child{"releaseguard-role-" + namespace, role(meta, crds.ReleaseGuardRules())},
			child{"releaseguard-rolebinding-" + namespace, roleBinding(meta, operatorNamespace)},
		)
	}
	return out
}
