package engine

import "github.com/holdfast-io/holdfast/operator/internal/lease/core"

// Summarize reads many names in short. It returns which of them, by their places, cannot be read at once: they are not served here, or
// a change of theirs is being committed. For these, their summaries mean nothing.
//
// The clock is read twice for all of them, which is most of what a single read would take.
func (e *Engine) Summarize(names []string) (summaries []core.Summary, rest []int) {
	now := e.opts.Clock()
	summaries = make([]core.Summary, len(names))
	var session *session
	for i, name := range names {
		if !e.summarize(now, name, &session, &summaries[i]) {
			rest = append(rest, i)
		}
	}
	// What was read is true if the session was still certain after that.
	if len(rest) == len(names) || session.certain(e.opts.Clock()) {
		return summaries, rest
	}
	rest = rest[:0]
	for i := range names {
		rest = append(rest, i)
	}
	return summaries, rest
}

// summarize reads one name, if it is served by the same session as those before.
func (e *Engine) summarize(now core.Instant, name string, session **session, out *core.Summary) bool {
	s, err := e.at(name)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open() || (*session != nil && s.session != *session) {
		return false
	}
	sum, ok := s.shard.Summarize(now, name)
	if ok {
		*out, *session = sum, s.session
	}
	return ok
}
