package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	name, pid, parent, used, err := parseStat("42 (a (strange) name) S 7 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 100 1000 10 0\n")
	require.NoError(t, err)
	assert.Equal(t, "a (strange) name", name)
	assert.Equal(t, []int{42, 7}, []int{pid, parent})
	assert.Equal(t, 3*time.Second, used)
	for _, line := range []string{"", "42 S 7", "42 (name) S 7", "42 (name) S x 42 42 0 -1 4194560 100 0 0 0 250 50 0 0"} {
		_, _, _, _, err := parseStat(line)
		assert.Error(t, err, "%q", line)
	}
}

func TestTheProcessorTimeOfThisProcessGrows(t *testing.T) {
	before, err := processorTime()
	require.NoError(t, err)
	for end := time.Now().Add(10 * time.Second); ; {
		now, err := processorTime()
		require.NoError(t, err)
		if now["operator"] > before["operator"] {
			return
		}
		require.True(t, time.Now().Before(end))
	}
}
