package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestGatherer(t *testing.T) {
	now := time.Now()
	ended := now.Add(4 * time.Millisecond)
	wants := func(g *gatherer, queued int) (int, time.Duration) { return g.plan(queued, ended) }

	var alone gatherer
	alone.committed(1, 0, now, ended)
	enough, _ := wants(&alone, 1)
	assert.Equal(t, 1, enough, "one client is never held up")

	var g gatherer
	for range gatherProbe {
		g.committed(32, 20, now, ended)
	}
	enough, wait := wants(&g, 20)
	assert.Equal(t, 52, enough, "now and then it is tried")
	assert.Equal(t, 4*time.Millisecond, wait, "as long as the batch took")
	g.gathered(52)
	enough, _ = wants(&g, 20)
	assert.Equal(t, 20, enough, "once a batch")
	slow := g
	slow.committed(32, 20, now, now.Add(time.Second))
	_, wait = slow.plan(20, now.Add(time.Second))
	assert.Equal(t, gatherMost, wait, "a slow store is not waited for as long again")

	g.committed(32, 20, now, ended)
	enough, _ = wants(&g, 20)
	assert.Equal(t, 52, enough, "everybody was back, so the next are waited for")
	enough, _ = wants(&g, 0)
	assert.Zero(t, enough, "nothing is queued")
	enough, _ = g.plan(20, ended.Add(gatherMost))
	assert.Equal(t, 20, enough, "their time is over")

	for range 20 { // nobody comes back
		g.committed(32, 20, now, ended)
		if enough, _ := wants(&g, 20); enough > 20 {
			g.gathered(20)
		}
	}
	g.committed(32, 20, now, ended)
	held := 0
	for range gatherProbe {
		g.committed(32, 20, now, ended)
		if enough, _ := wants(&g, 20); enough > 20 {
			held++
			g.gathered(20)
		}
	}
	assert.Equal(t, 1, held, "then it is given up, but for a try now and then")
}
