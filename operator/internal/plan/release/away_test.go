package release_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// An application that is away for a moment while a release goes on returns to what it had before that release, whether the
// release fails before it is there again or after.
func TestApplicationThatWasAwayReturnsToWhatItHad(t *testing.T) {
	for _, failing := range []string{"a", "b"} {
		t.Run(failing+" fails", func(t *testing.T) {
			w := released(t, func(s *v1alpha1.ReleaseGuardSpec) { s.Rings = []v1alpha1.ReleaseRing{ring("all", 30, "a", "b")} })
			w.spec.Rings[0].Applications, w.spec.Rings[0].Selector = nil, &metav1.LabelSelector{}
			w.fates[key(failing, "v2")] = degrades
			w.spec.Revision = "v2"
			w.until("a has v2", func() bool { return w.apps["a"].Target == "v2" })
			a := w.apps["a"]
			delete(w.apps, "a")
			w.pass(noCrash)
			if failing == "b" {
				w.until("the release failed", func() bool { return w.status().Phase == v1alpha1.ReleaseRolledBack })
			}
			require.Len(t, w.status().Applications, 2)
			require.Equal(t, int32(1), w.status().Rings[0].Applications, "it is no member now")
			w.apps["a"] = a
			w.settle(time.Hour)
			require.Equal(t, v1alpha1.ReleaseRolledBack, w.status().Phase)
			require.Equal(t, "v1", w.apps["a"].Target)
			require.NotContains(t, w.decisions(), "PutBack all", "nobody set anything")

			w.spec.Revision = "v3"
			delete(w.apps, "a")
			w.settle(time.Hour)
			require.Equal(t, v1alpha1.ReleaseComplete, w.status().Phase)
			require.Len(t, w.status().Applications, 1, "nothing is left to return to")
		})
	}
}
