package page_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/test/bench/page"
)

// Everything around the table is written by hand, and stays.
func TestTheTableIsReplacedAndNothingElse(t *testing.T) {
	const before, after = "# Page\n\nBefore.\n\n", "\n\nAfter.\n"
	marks := page.Around("table")
	file := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(file, []byte(before+marks.Begin+"old\n"+marks.End+after), 0o600))
	for range 2 {
		require.NoError(t, marks.Write(file, "new\n"))
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, before+marks.Begin+"new\n"+marks.End+after, string(content))
	}
}

func TestAPageWithoutATableIsRefused(t *testing.T) {
	marks := page.Around("table")
	for reason, text := range map[string]string{
		"no mark":          "# Page\n",
		"no end":           "# Page\n" + marks.Begin + "old\n",
		"end before begin": "# Page\n" + marks.End + "\n" + marks.Begin,
		"another table's":  "# Page\n" + page.Around("other table").Begin + "old\n" + page.Around("other table").End,
	} {
		_, err := marks.Replace(text, "new\n")
		require.ErrorContains(t, err, "there is no table between", reason)
	}
}
