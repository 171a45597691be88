package releaseguard

import (
	"testing"

	"github.com/stretchr/testify/require"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

// Whoever may make a guard must not have the operator ask any URL.
func TestAGuardAsksWhomTheConfigurationLists(t *testing.T) {
	const one, two, metadata = "http://one:9090", "http://two:9090", "http://169.254.169.254/"
	for _, each := range []struct {
		name    string
		allowed []string
		checks  int
		url     string
		want    string
		refusal string
	}{
		{name: "a guard without checks asks nobody", allowed: []string{one}, url: metadata},
		{name: "one that names nobody asks the first", allowed: []string{one, two}, checks: 1, want: one},
		{name: "one that is listed", allowed: []string{one, two}, checks: 1, url: two, want: two},
		{
			name: "one that is not listed", allowed: []string{one, two}, checks: 1, url: metadata,
			refusal: "spec.prometheus.url: " + metadata + " is not one that the operator's configuration lists (releaseGuard.prometheus): " + one + ", " + two,
		},
		{
			name: "one that begins like one that is listed", allowed: []string{one}, checks: 1, url: one + ".example.com",
			refusal: "spec.prometheus.url: " + one + ".example.com is not one that the operator's configuration lists (releaseGuard.prometheus): " + one,
		},
		{
			name: "none is listed", checks: 1, url: one,
			refusal: "spec.prometheus.url: " + one + " is not one that the operator's configuration lists (releaseGuard.prometheus): none",
		},
		{
			name: "none is listed, and none named", checks: 1,
			refusal: "spec.checks: the operator's configuration lists no Prometheus (releaseGuard.prometheus)",
		},
	} {
		t.Run(each.name, func(t *testing.T) {
			guard := &v1alpha1.ReleaseGuard{}
			guard.Spec.Checks = make([]v1alpha1.ReleaseCheck, each.checks)
			if each.url != "" {
				guard.Spec.Prometheus = &v1alpha1.ReleasePrometheus{URL: each.url}
			}
			c := &controller{settings: Settings{Prometheus: each.allowed}}
			url, err := c.prometheus(guard)
			require.Equal(t, each.want, url)
			if each.refusal == "" {
				require.NoError(t, err)
				return
			}
			var stalled *reconcile.StalledError
			require.ErrorAs(t, err, &stalled)
			require.Equal(t, v1alpha1.ReasonInvalidSpec, stalled.Reason)
			require.Equal(t, each.refusal, stalled.Message)
		})
	}
}
