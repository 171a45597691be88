// Package page writes the table of a benchmark into a page of the documentation.
package page

import (
	"fmt"
	"os"
	"strings"
)

// Marks are the lines of a page that a table is between.
type Marks struct{ Begin, End string }

// Around are the marks of what `make bench` writes; "table" or "table of ZooKeeper".
func Around(what string) Marks {
	return Marks{
		Begin: "<!-- The " + what + " below is written by `make bench`. -->\n",
		End:   "<!-- The " + what + " above is written by `make bench`. -->\n",
	}
}

// Write replaces what is between the marks in a file.
func (m Marks) Write(file, table string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	next, err := m.Replace(string(content), table)
	if err != nil {
		return fmt.Errorf("write the table into %s: %w", file, err)
	}
	return os.WriteFile(file, []byte(next), 0o644)
}

// Replace replaces what is between the marks in a page. The error says which marks there are not.
func (m Marks) Replace(page, table string) (string, error) {
	before, rest, begins := strings.Cut(page, m.Begin)
	_, after, ends := strings.Cut(rest, m.End)
	if !begins || !ends {
		return "", fmt.Errorf("there is no table between %q and %q", strings.TrimSpace(m.Begin), strings.TrimSpace(m.End))
	}
	return before + m.Begin + table + m.End + after, nil
}
