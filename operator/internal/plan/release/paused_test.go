package release_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/plan/release"
)

func TestPausedDecidesNothing(t *testing.T) {
	w := released(t)
	w.spec.Revision, w.spec.Paused = "v2", true
	w.pass(noCrash)
	require.Equal(t, release.Held, w.outcome.Verdict)
	require.Equal(t, "paused: would decide ReleaseStarted: v2 is wanted: 2 rings, 2 applications", w.outcome.Message)
	require.Equal(t, "v1", w.status().Release.Revision)

	w.spec.Paused = false
	w.until("rolling", func() bool { return w.phase("canary") == v1alpha1.RingRolling })
	w.spec.Paused = true
	w.pass(noCrash)
	w.now = w.now.Add(time.Hour)
	w.pass(noCrash)
	w.spec.Paused = false
	w.pass(noCrash)
	require.Equal(t, v1alpha1.ReleaseRolling, w.status().Phase, "the clocks stood still")
	w.settle(time.Hour)
	require.Equal(t, v1alpha1.ReleaseComplete, w.status().Phase)
}

// pause makes a pass with the guard paused, and has time go by.
func (w *world) pause(length time.Duration) {
	w.spec.Paused = true
	w.pass(noCrash)
	w.now = w.now.Add(length)
	w.pass(noCrash)
	w.spec.Paused = false
}

// After a pause an application has the whole time anew, and no more.
func TestTheTimeoutBeginsAnewAfterAPause(t *testing.T) {
	w := released(t)
	w.fates[key("a", "v2")] = neverReady
	w.spec.Revision = "v2"
	w.until("rolling", func() bool { return w.phase("canary") == v1alpha1.RingRolling && w.apps["a"].Target == "v2" })
	w.now = w.now.Add(170 * time.Second)
	w.pass(noCrash)
	w.pause(time.Hour)
	require.Nil(t, w.status().RunningSince)
	resumed := w.now
	w.until("rolled back", func() bool { return w.status().Phase == v1alpha1.ReleaseRolledBack })
	require.Equal(t, v1alpha1.FailureSyncTimeout, w.status().BadRevision.Reason)
	require.InDelta(t, 180, w.status().BadRevision.Time.Sub(resumed).Seconds(), 2)
}

// A sync that fails in this attempt is a failure, also when the guard is paused afterwards: only one of an earlier attempt is tried again.
func TestAPauseMakesNoEarlierAttemptOfThisOne(t *testing.T) {
	w := released(t)
	w.fates[key("a", "v2")] = syncFails
	w.spec.Revision = "v2"
	w.until("the sync failed", func() bool { op := w.apps["a"].Operation; return op.Target == "v2" && op.Phase == "Failed" })
	w.pass(noCrash)
	w.pause(time.Minute)
	require.Equal(t, "the sync ended as Failed", w.status().Applications[0].State)
	w.until("rolled back", func() bool { return w.status().Phase == v1alpha1.ReleaseRolledBack })
	require.Equal(t, v1alpha1.FailureHealth, w.status().BadRevision.Reason)
	require.Empty(t, w.syncs)
}

// What failed in an earlier attempt is still known to have done so while the guard is paused.
func TestAnEarlierAttemptIsKnownThroughAPause(t *testing.T) {
	w := released(t)
	w.fates[key("a", "v2")] = syncFails
	w.spec.Revision = "v2"
	w.settle(time.Hour)
	require.Equal(t, v1alpha1.ReleaseRolledBack, w.status().Phase)

	w.fates, w.returned, w.spec.Attempt = map[string]fate{}, map[string]bool{}, 1
	for w.apps["a"].Target != "v2" || w.apps["a"].Sync.Target != "v2" {
		w.pass(noCrash)
		w.argo("a")
		w.now = w.now.Add(time.Second)
	}
	w.pause(time.Minute)
	require.Equal(t, release.Held, w.outcome.Verdict)
	require.Equal(t, "paused: would sync Application a", w.outcome.Message)
	w.settle(time.Hour)
	require.Equal(t, v1alpha1.ReleaseComplete, w.status().Phase)
	require.Equal(t, []string{"a"}, w.syncs)
}
