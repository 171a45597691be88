package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast/operator/internal/config"
)

func TestReleaseGuard(t *testing.T) {
	got, err := config.Parse([]byte(head + `
namespaces: []
releaseGuard: {namespaces: [argocd], prometheus: ["http://prometheus.monitoring:9090", "https://metrics.example.com/prometheus"]}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := config.ReleaseGuard{
		Namespaces: []string{"argocd"}, Prometheus: []string{"http://prometheus.monitoring:9090", "https://metrics.example.com/prometheus"},
		MaxConcurrentReconciles: 2,
	}
	if diff := cmp.Diff(want, got.ReleaseGuard); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if off := config.Default().ReleaseGuard.Namespaces; len(off) > 0 {
		t.Errorf("the release guard is on by default: %v", off)
	}
}

func TestReleaseGuardRefusals(t *testing.T) {
	for section, want := range map[string]string{
		"namespaces: [Argo]":                          "releaseGuard.namespaces[0]",
		"namespaces: [argocd, argocd]":                "releaseGuard.namespaces[1]: Duplicate",
		"prometheus: [prometheus]":                    "releaseGuard.prometheus[0]",
		"prometheus: ['file:///etc/passwd']":          "releaseGuard.prometheus[0]",
		"prometheus: ['http://user:secret@host:1/']":  "without a user",
		"namespaces: [a], maxConcurrentReconciles: 0": "releaseGuard.maxConcurrentReconciles",
	} {
		_, err := config.Parse([]byte(head + "namespaces: []\nreleaseGuard: {" + section + "}\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", section, err, want)
		}
	}
}
