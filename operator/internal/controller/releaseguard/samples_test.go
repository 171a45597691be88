package releaseguard

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

func TestSamplesAskWhatIsDue(t *testing.T) {
	asked := map[string]int{}
	clock := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
	s := newSamples(func(_ context.Context, url, query string) ([]float64, error) {
		asked[url+" "+query]++
		return []float64{1}, nil
	}, clock)
	check := v1alpha1.ReleaseCheck{Name: "up", Query: "up", IntervalSeconds: 30}
	ask := func(guard, url string, checks ...v1alpha1.ReleaseCheck) int {
		require.Len(t, s.ask(t.Context(), guard, url, checks), len(checks))
		return asked[url+" "+check.Query]
	}
	require.Equal(t, 1, ask("argocd/a", "http://one", check))
	require.Equal(t, 1, ask("argocd/a", "http://one", check), "it is not due")
	require.Equal(t, 1, ask("argocd/a", "http://two", check), "an answer of another Prometheus is none")
	require.Equal(t, 2, ask("argocd/b", "http://two", check), "each guard has its own")
	clock.SetTime(time.Unix(1030, 0))
	require.Equal(t, 3, ask("argocd/a", "http://two", check))
	check.IntervalSeconds = 10
	clock.SetTime(time.Unix(1040, 0))
	require.Equal(t, 4, ask("argocd/a", "http://two", check), "another interval counts at once")
	require.NotContains(t, s.known, "argocd/b", "a guard that does not ask any more is forgotten")
	require.Len(t, s.known, 1)
	ask("argocd/a", "http://two")
	require.Empty(t, s.known, "nor is an answer kept to what is not asked any more")
}
