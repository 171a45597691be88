package config

import (
	"net/url"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ReleaseGuard configures the kind ReleaseGuard.
type ReleaseGuard struct {
	// Namespaces have ReleaseGuards and the Applications that they move: those of Argo CD. Empty: the operator has no
	// release guard.
	Namespaces []string `json:"namespaces"`
	// Prometheus lists the URLs that checks may be asked of. A guard that names none uses the first. Empty: guards have
	// no checks.
	Prometheus []string `json:"prometheus"`
	// MaxConcurrentReconciles is the number of objects that are worked on at once, 1 to 64. Default 2.
	MaxConcurrentReconciles int `json:"maxConcurrentReconciles"`
}

func defaultReleaseGuard() ReleaseGuard { return ReleaseGuard{MaxConcurrentReconciles: 2} }

func (r ReleaseGuard) validate(path *field.Path) field.ErrorList {
	var faults field.ErrorList
	seen := map[string]bool{}
	for i, name := range r.Namespaces {
		at := path.Child("namespaces").Index(i)
		faults = append(faults, namespace(at, name)...)
		if seen[name] {
			faults = append(faults, field.Duplicate(at, name))
		}
		seen[name] = true
	}
	for i, text := range r.Prometheus {
		parsed, err := url.Parse(text)
		if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "" || parsed.User != nil {
			faults = append(faults, field.Invalid(path.Child("prometheus").Index(i), text, `must be a URL such as "http://prometheus.monitoring:9090", without a user`))
		}
	}
	if n := r.MaxConcurrentReconciles; n < 1 || n > 64 {
		faults = append(faults, field.Invalid(path.Child("maxConcurrentReconciles"), n, "must be 1 to 64"))
	}
	return faults
}
