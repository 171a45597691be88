package zookeeperconfig

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The deletion of an object can be told after the next one of that name was passed over: that one stays subscribed.
func TestADeletionThatIsToldLate(t *testing.T) {
	w := newWorld(t)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrlreconcile.Request]())
	t.Cleanup(queue.ShutDown)
	tell := wakeRivals(w, w.c.memory)
	first := w.object("x", "/x")
	w.ready(first)
	second := w.object("x", "/x")
	second.Status = *first.Status.DeepCopy()
	w.ready(second)
	tell.Delete(t.Context(), event.DeleteEvent{Object: first}, queue)
	require.Empty(t, w.zk.forgotten)
	tell.Delete(t.Context(), event.DeleteEvent{Object: second}, queue)
	require.Equal(t, []string{"team/x"}, w.zk.forgotten)
}
