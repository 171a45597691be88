package store

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

func TestAnotherStoreIsNoticedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		id       string
		cluster  uint64
		revision int64
		why      string
	}{
		"emptied":           {cluster: 1, revision: 900, why: "is gone"},
		"emptied and used":  {id: "b", cluster: 1, revision: 900, why: "its id is b and was a"},
		"another cluster":   {id: "a", cluster: 2, revision: 900, why: "cluster id is 2 and was 1"},
		"set back":          {id: "a", cluster: 1, revision: 99, why: "at revision 99 and was at 100"},
		"the same":          {id: "a", cluster: 1, revision: 100},
		"the same, further": {id: "a", cluster: 1, revision: 101},
	} {
		t.Run(name, func(t *testing.T) {
			var known identity
			require.NoError(t, known.check("a", known.saw(0), &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: 50}))
			require.Equal(t, int64(100), known.saw(100))
			changed := known.changed()
			header := &etcdserverpb.ResponseHeader{ClusterId: c.cluster, Revision: c.revision}
			err := known.check(c.id, known.saw(0), header)
			require.NoError(t, known.check(c.id, known.saw(0), header), "it is the known one now")
			if c.why == "" {
				require.NoError(t, err)
				select {
				case <-changed:
					t.Fatal("nothing changed")
				default:
				}
				return
			}
			var replaced *ReplacedError
			require.ErrorAs(t, err, &replaced)
			require.ErrorContains(t, err, c.why)
			<-changed
			require.Equal(t, c.revision, known.saw(0), "revisions count anew")
		})
	}
}

// Answers to reads that were sent at the same time may come in any order.
func TestAnOldAnswerIsNotAnotherStore(t *testing.T) {
	var known identity
	require.NoError(t, known.check("a", 0, &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: 50}))
	floor := known.saw(0)
	known.saw(60)
	require.NoError(t, known.check("a", floor, &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: 55}))
	require.Equal(t, int64(60), known.saw(0))
}
