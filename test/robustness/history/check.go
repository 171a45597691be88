package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// checkTimeout bounds the search for an order of the operations of one name.
const checkTimeout = time.Minute

// shown is how many explained operations a violation shows.
const shown = 30

// ViolationError says that the operations of a name cannot be explained.
type ViolationError struct {
	Name string
	// Before are the last operations that can be explained, After those of which one had to come next and none can.
	Before, After []Op
	// Undecided says that no order was found in time, and none can be excluded.
	Undecided bool
}

func (e *ViolationError) Error() string {
	if e.Undecided {
		return fmt.Sprintf("the history of %q could not be checked within %s", e.Name, checkTimeout)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the history of %q cannot be explained. After", e.Name)
	for i := range e.Before {
		fmt.Fprintf(&b, "\n  %s", e.Before[i])
	}
	b.WriteString("\nnone of these can come next:")
	for i := range e.After {
		fmt.Fprintf(&b, "\n  %s", e.After[i])
	}
	return b.String()
}

// Check returns the *ViolationErrors of a history, joined.
func Check(h *History) error {
	var errs []error
	for _, name := range h.Names() {
		part := h.of(name)
		m := model(name, part)
		switch porcupine.CheckOperationsTimeout(m, operations(part), checkTimeout) {
		case porcupine.Ok:
		case porcupine.Unknown:
			errs = append(errs, &ViolationError{Name: name, Undecided: true})
		case porcupine.Illegal:
			_, info := porcupine.CheckOperationsVerbose(m, operations(part), checkTimeout)
			violation := &ViolationError{Name: name}
			violation.Before, violation.After = unexplained(&info, part)
			errs = append(errs, violation)
		}
	}
	return errors.Join(errs...)
}

func operations(h *History) []porcupine.Operation {
	ops := make([]porcupine.Operation, len(h.Ops))
	for i := range h.Ops {
		o := &h.Ops[i]
		ops[i] = porcupine.Operation{ClientId: o.Client, Input: *o, Call: o.Call, Return: o.Return}
	}
	return ops
}

// unexplained returns what explains most of an illegal history, the last of it, and after that the operations that had to come
// next, of which none fits.
func unexplained(info *porcupine.LinearizationInfo, h *History) (before, after []Op) {
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, partial := range partition {
			if len(partial) > len(longest) {
				longest = partial
			}
		}
	}
	placed := map[string]bool{}
	for i := range longest {
		op := longest[i].Input.(Op)
		placed[op.String()] = true
		before = append(before, op)
	}
	limit := int64(math.MaxInt64) // whatever was called later need not come next
	for i := range h.Ops {
		if !placed[h.Ops[i].String()] {
			limit = min(limit, h.Ops[i].Return)
		}
	}
	for i := range h.Ops {
		if !placed[h.Ops[i].String()] && h.Ops[i].Call <= limit {
			after = append(after, h.Ops[i])
		}
	}
	return before[max(0, len(before)-shown):], after
}

// Save writes a history that is not legal to a folder: as JSON, and each name that cannot be explained as a page to look at.
func Save(h *History, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save a history: %w", err)
	}
	data, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("save a history: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "history.json"), data, 0o644); err != nil {
		return fmt.Errorf("save a history: %w", err)
	}
	for _, name := range h.Names() {
		part := h.of(name)
		m := model(name, part)
		result, info := porcupine.CheckOperationsVerbose(m, operations(part), checkTimeout)
		if result == porcupine.Ok {
			continue
		}
		path := filepath.Join(dir, strings.ReplaceAll(name, "/", "_")+".html")
		if err := porcupine.VisualizePath(m, info, path); err != nil {
			return fmt.Errorf("draw the history of %q: %w", name, err)
		}
	}
	return nil
}
