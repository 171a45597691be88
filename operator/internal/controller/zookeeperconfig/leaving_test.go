package zookeeperconfig

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
