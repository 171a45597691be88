package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
)

func ops(name string, n int) []store.BatchOp {
	all := make([]store.BatchOp, n)
	for i := range all {
		all[i].Op = core.Op{Name: fmt.Sprintf("%s%d", name, i), Writes: []core.Write{{}}}
	}
	return all
}

// named counts the ops of a batch whose names begin with a letter.
func named(batch []store.BatchOp, letter byte) int {
	n := 0
	for _, op := range batch {
		if op.Op.Name[0] == letter {
			n++
		}
	}
	return n
}

// narrow is a store that refuses batches with a certain number of ops and more, or with an op of a certain name.
type narrow struct {
	store.Store
	most     int
	refused  string
	revision int64
}

func (n *narrow) Commit(_ context.Context, _ *store.Cursor, ops []store.BatchOp) (int64, error) {
	if len(ops) > n.most || slices.ContainsFunc(ops, func(op store.BatchOp) bool { return op.Op.Name == n.refused }) {
		return 0, &store.TooLargeError{Err: errors.New("too large")}
	}
	n.revision++
	return n.revision, nil
}

// An op that the store will never take is refused, and all others are committed.
func TestOnlyTheOpThatIsTooLargeIsRefused(t *testing.T) {
	s := &narrow{most: 7, refused: "call13"}
	c := newCommitter(s, &store.Cursor{}, newMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	committed, refused := map[string]int64{}, []string{}
	done := func() {
		if len(committed)+len(refused) == 20 {
			cancel()
		}
	}
	c.committed = func(batch []store.BatchOp, revision int64) {
		assert.LessOrEqual(t, len(batch), s.most)
		for _, op := range batch {
			assert.NotContains(t, committed, op.Op.Name)
			committed[op.Op.Name] = revision
		}
		done()
	}
	c.refused = func(op *store.BatchOp, err error) {
		var why *RefusedError
		assert.ErrorAs(t, err, &why)
		refused = append(refused, op.Op.Name)
		done()
	}
	c.add(false, ops("call", 20)...)
	assert.ErrorIs(t, c.run(ctx), context.Canceled)
	assert.Equal(t, []string{"call13"}, refused)
	assert.Len(t, committed, 19)
}

func TestTake(t *testing.T) {
	now := time.Now()
	c := newCommitter(nil, nil, nil, nil)

	batch, _, wait := c.take(now)
	assert.Empty(t, batch)
	assert.Zero(t, wait, "nothing to wait for but new ops")

	c.add(true, ops("later", 1700)...)
	c.add(false, ops("call", 3)...)
	batch, others, _ := c.take(now)
	assert.Equal(t, 3, named(batch, 'c'), "calls come first")
	assert.Len(t, batch, 3+laterBatch, "some of the others come along")
	assert.Equal(t, laterBatch, others)

	c.laterFrom = now.Add(5 * time.Millisecond)
	batch, _, wait = c.take(now)
	assert.Empty(t, batch, "the others have had their turn")
	assert.Equal(t, 5*time.Millisecond, wait)

	c.add(false, ops("call", 1)...)
	batch, others, _ = c.take(now)
	assert.Len(t, batch, 1, "calls do not wait for that")
	assert.Zero(t, others)

	c.add(false, ops("call", 3000)...)
	batch, _, _ = c.take(now.Add(5 * time.Millisecond))
	assert.Equal(t, laterShare, named(batch, 'c'))
	assert.Equal(t, laterBatch, named(batch, 'l'), "no number of calls keeps the others out for ever")

	taken := map[string]bool{}
	for batch, _, _ = c.take(now.Add(time.Second)); len(batch) > 0; batch, _, _ = c.take(now.Add(time.Second)) {
		for _, op := range batch {
			assert.False(t, taken[op.Op.Name])
			taken[op.Op.Name] = true
		}
	}
	assert.Len(t, taken, 3000-laterShare+1700-2*laterBatch, "each is taken once")
}
