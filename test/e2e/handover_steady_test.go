//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// steadyKept is how long the handed-over stack is watched for a flap: $HOLDFAST_STEADY, or three minutes.
func steadyKept(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("HOLDFAST_STEADY")
	if text == "" {
		return 3 * time.Minute
	}
	kept, err := time.ParseDuration(text)
	require.NoError(t, err, "HOLDFAST_STEADY")
	return kept
}

// steady watches the stack while it is kept from Git. In every sample, and in every state between them, all of it is in effect
// and healthy at the commit; and nobody writes to any of the objects.
func (j *handoverJob) steady(t *testing.T) {
	commit, kept := j.git.Head(), steadyKept(t)
	eventually(t, syncTimeout, "the cluster is as Git says", func(ctx context.Context) string { return j.keeper.unsettled(ctx, commit) })
	versions := j.versions(t)
	watched := j.watchKeepers(t, commit)
	samples, putOff := 0, map[string]int{} // by name, for how many samples on end
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(kept); time.Now().Before(end); samples++ {
		<-tick.C
		for _, kind := range j.keeper.kinds() {
			list, err := j.cluster.list(t.Context(), kind, "")
			require.NoError(t, err)
			for i := range list {
				require.Empty(t, j.keeper.flap(&list[i], commit), "sample %d", samples)
				name := list[i].GetName()
				if putOff[name]++; !postponed(&list[i]) {
					putOff[name] = 0
				}
				require.Less(t, putOff[name], 20, "%s is put off again and again", name)
			}
		}
	}
	changes, flaps := watched()
	require.Empty(t, flaps)
	require.Greater(t, samples, int(kept.Seconds()))
	require.Positive(t, changes, "they did not look at it once in %s", kept)
	require.Equal(t, versions, j.versions(t), "an object was written to")
	require.Empty(t, j.keeper.unsettled(t.Context(), commit))
	j.requireUnchanged(t)
	j.stack.preview("--expect-no-changes").must(t)
	t.Logf("%s: %d samples and %d changes of what keeps the objects, no flap, no write to the %d objects", kept, samples, changes, len(versions))
}

// versions are the resource versions of the objects: each write makes another one.
func (j *handoverJob) versions(t *testing.T) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, object := range j.objects(t) {
		versions[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()] = object.GetResourceVersion()
	}
	return versions
}

// watchKeepers looks at every state that what keeps the objects goes through, until the function is called that it returns.
// That tells how many there were, and which were flaps.
func (j *handoverJob) watchKeepers(t *testing.T, commit string) (stop func() (changes int, flaps []string)) {
	t.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	var watchers []watch.Interface
	changes, flaps, stopped := 0, []string(nil), false
	note := func(flap string) {
		mu.Lock()
		defer mu.Unlock()
		if flap != "" && !stopped {
			flaps = append(flaps, flap)
		}
	}
	for _, kind := range j.keeper.kinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		require.NoError(t, j.cluster.client.List(t.Context(), list))
		// What there is already is no change.
		from := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
		watcher, err := j.cluster.client.Watch(t.Context(), list, from)
		require.NoError(t, err)
		watchers = append(watchers, watcher)
		group.Go(func() {
			for event := range watcher.ResultChan() {
				object, ok := event.Object.(*unstructured.Unstructured)
				if !ok || event.Type != watch.Modified {
					note(fmt.Sprintf("%s %v", event.Type, event.Object))
					continue
				}
				mu.Lock()
				changes++
				mu.Unlock()
				note(j.keeper.flap(object, commit))
			}
			note("the watch of " + kind.Kind + " ended")
		})
	}
	return func() (int, []string) {
		mu.Lock()
		stopped = true
		mu.Unlock()
		for _, watcher := range watchers {
			watcher.Stop()
		}
		group.Wait()
		return changes, flaps
	}
}
