package cluster

import (
	"fmt"
	"os"
	"strings"
)

const tailLines = 12

// ComponentError says which component failed, and shows the end of its log.
type ComponentError struct {
	Machine, Component string
	Log                string // path of the component's log
	Err                error
}

func (e *ComponentError) Error() string {
	text := fmt.Sprintf("%s: %v\nlog: %s", logName(e.Machine, e.Component), e.Err, e.Log)
	if lines := tail(e.Log, tailLines); len(lines) > 0 {
		text += ", which ends with:\n  " + strings.Join(lines, "\n  ")
	}
	return text
}

func (e *ComponentError) Unwrap() error { return e.Err }

// tail returns the last lines of a file; of one that can't be read it has none.
func tail(file string, n int) []string {
	b, err := os.ReadFile(file)
	if err != nil || len(b) == 0 {
		return nil
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return lines[max(0, len(lines)-n):]
}
