package engine

import (
	"fmt"
	"testing"
	"time"

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
