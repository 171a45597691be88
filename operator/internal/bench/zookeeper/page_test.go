package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Everything around the table is written by hand, and stays.
func TestTheTableIsReplacedAndNothingElse(t *testing.T) {
	const before, after = "# Page\n\nBefore.\n\n", "\n\nAfter.\n"
	page, err := withTable(before+tableBegin+"old\n"+tableEnd+after, "new\n")
	require.NoError(t, err)
	assert.Equal(t, before+tableBegin+"new\n"+tableEnd+after, page)

	again, err := withTable(page, "new\n")
	require.NoError(t, err)
	assert.Equal(t, page, again)
}

func TestAPageWithoutATableIsRefused(t *testing.T) {
	for reason, page := range map[string]string{
		"no mark":          "# Page\n",
		"no end":           "# Page\n" + tableBegin + "old\n",
		"end before begin": "# Page\n" + tableEnd + "\n" + tableBegin,
	} {
		_, err := withTable(page, "new\n")
		assert.ErrorContains(t, err, "there is no table between", reason)
	}
}
