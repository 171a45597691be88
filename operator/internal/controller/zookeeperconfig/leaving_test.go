package zookeeperconfig

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
)

// What somebody deletes and creates again between the look and the deletion has the version that was seen, and is not ours.
func TestADeletionThatComesTooLate(t *testing.T) {
	w := newWorld(t)
	obj := w.object("x", "/x")
	w.ready(obj)
	obj.DeletionTimestamp = new(metav1.NewTime(w.clock.Now()))
	observed, err := w.c.gather(t.Context(), w, obj)
	require.NoError(t, err)
	require.Len(t, observed.leaving, 1)
	w.zk.put("/x", "v", mine)
	require.NoError(t, w.c.finalize(t.Context(), obj, observed))
	require.Equal(t, []string{"/x"}, w.zk.paths())
}

// hangs makes the ensemble one that accepts requests and answers none, and returns what each had left when it was made.
func (w *world) hangs(answered int) *[]time.Duration {
	left := &[]time.Duration{}
	w.zk.fault = func(ctx context.Context) error {
		if answered--; answered >= 0 {
			return nil
		}
		deadline, bounded := ctx.Deadline()
		require.True(w, bounded)
		*left = append(*left, time.Until(deadline))
		return &zookeeper.UnavailableError{Ensemble: w.zk.name, Err: ctx.Err()}
	}
	return left
}

// A server that hangs keeps no object for longer than the deadline and a moment, however long a request may take: neither the look
// nor the deletion outlasts it.
func TestADeletionOutlastsNoHangingServer(t *testing.T) {
	for answered, what := range []string{"nothing is answered", "the look is answered", "and the one after it"} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			obj := w.object("x", "/x")
			w.ready(obj)
			for _, pass := range []struct {
				after, most time.Duration
				gone        bool
			}{
				{0, w.c.settings.DeletionDeadline, false},
				{w.c.settings.DeletionDeadline - 200*time.Millisecond, leastPatience, false},
				{w.c.settings.DeletionDeadline, leastPatience, true},
			} {
				left := w.hangs(answered)
				w.clock.SetTime(begin.Add(pass.after))
				require.Equal(t, pass.gone, w.remove(obj))
				require.True(t, pass.gone || len(*left) > 0, "it was tried")
				for _, each := range *left {
					require.LessOrEqual(t, each, pass.most)
				}
			}
			require.Equal(t, []string{"/x"}, w.zk.paths())
		})
	}
}

// An operator that comes when the deadline is over has a while to find its session.
func TestADeletionWhileTheOperatorWasAway(t *testing.T) {
	w := newWorld(t)
	obj := w.object("x", "/x")
	w.ready(obj)
	obj.DeletionTimestamp = new(metav1.NewTime(begin))
	w.restart()
	w.clock.SetTime(begin.Add(time.Hour))
	left := w.hangs(0)
	require.True(t, w.remove(obj))
	require.Greater(t, (*left)[0], leastPatience)
	require.LessOrEqual(t, (*left)[0], firstPatience)
}
