package core

import "time"

// endAgain is how long a hold lives on at least when its end could not be committed.
const endAgain = time.Second

// Refused reports that the store refuses the op in flight of a name for what it is, whoever tries, and that nothing of it has happened. What
// was asked fails with err. Holds that should have ended live on: they excluded others all along, so nobody is promised what they have; their
// time makes them end anew.
func (s *Shard) Refused(now Instant, name string, err error, out *Output) {
	e := s.entries[name]
	if e == nil || e.flight == nil {
		return
	}
	f := s.landed(e)
	for _, h := range f.ends {
		h.ending = 0
		for _, by := range h.enders {
			out.fail(by.ticket, err)
		}
		h.enders = nil
		s.timers.set(&h.timer, max(h.due(), now.Add(endAgain)))
	}
	for _, h := range f.changes {
		h.flying = nil
		rest := h.changers[:0]
		for _, c := range h.changers {
			if c.flying {
				out.fail(c.ticket, err)
				continue
			}
			rest = append(rest, c)
		}
		h.changers = rest
	}
	if w := f.grant; w != nil {
		for _, t := range w.tickets {
			out.fail(t, err)
		}
		for _, t := range w.movers {
			out.fail(t, err)
		}
	}
	s.goOn(now, e, out)
}
