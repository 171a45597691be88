package core

import (
	"math/bits"
	"slices"
)

const (
	// manyFrom is from how many holds of a name on it is kept what else would have to be looked for among them, and manyUntil until how
	// few. Most names have one hold, and pay nothing for those that have ten thousand.
	manyFrom  = 16
	manyUntil = 8
)

// many is what is kept of a name with many holds.
type many struct {
	occupied occupancy
	requests map[string]*hold
	// slots has a bit for each slot, set where there is a hold.
	slots []uint64
	// ending are the holds whose end is decided and not in flight, changing those with a change that is not.
	ending, changing []*hold
}

// occupancy is how much of a name some of its holds take.
type occupancy struct {
	holds, shared, permits int
	// taken is how many permits they hold.
	taken int64
}

func (o *occupancy) add(h *hold, n int) {
	o.holds += n
	switch h.Mode {
	case Exclusive:
	case Shared:
		o.shared += n
	case Permits:
		o.permits += n
		o.taken += int64(n) * int64(h.PermitsHeld)
	}
}

// fits says whether a request can be granted beside the holds.
func (o occupancy) fits(req *AcquireRequest) bool {
	switch req.Mode {
	case Shared:
		return o.shared == o.holds
	case Permits:
		return o.permits == o.holds && o.taken+int64(req.Permits) <= int64(req.PermitsTotal)
	default:
		return o.holds == 0
	}
}

// add adds a hold, whose token is larger than those of all others.
func (e *entry) add(h *hold) {
	e.holds = append(e.holds, h)
	if e.many != nil {
		e.many.add(h)
		return
	}
	e.look()
}

// look begins to keep what a name with many holds needs.
func (e *entry) look() {
	if len(e.holds) < manyFrom {
		return
	}
	e.many = &many{requests: make(map[string]*hold, len(e.holds))}
	for _, h := range e.holds {
		e.many.add(h)
		if h.ending != 0 {
			e.many.ending = append(e.many.ending, h)
		}
		if h.next != nil {
			e.many.changing = append(e.many.changing, h)
		}
	}
}

func (m *many) add(h *hold) {
	m.occupied.add(h, 1)
	m.requests[h.RequestID] = h
	m.mark(h.Slot, true)
}

// remove takes out a hold that ended.
func (e *entry) remove(h *hold) {
	i, ok := e.place(h.Token)
	if !ok {
		return
	}
	e.holds = slices.Delete(e.holds, i, i+1)
	switch {
	case e.many == nil:
	case len(e.holds) <= manyUntil:
		e.many = nil
	default:
		e.many.occupied.add(h, -1)
		if e.many.requests[h.RequestID] == h {
			delete(e.many.requests, h.RequestID)
		}
		e.many.mark(h.Slot, false)
	}
}

func (m *many) mark(slot int32, taken bool) {
	word, bit := int(slot/64), uint64(1)<<(slot%64)
	if missing := word + 1 - len(m.slots); missing > 0 {
		m.slots = append(m.slots, make([]uint64, missing)...)
	}
	if taken {
		m.slots[word] |= bit
	} else {
		m.slots[word] &^= bit
	}
}

// decide decides why a hold ends. Nobody has decided that before.
func (e *entry) decide(h *hold, reason EndReason) {
	h.ending = reason
	if e.many != nil {
		e.many.ending = append(e.many.ending, h)
	}
}

// change lets a hold be changed once the op before it is committed.
func (e *entry) change(h *hold, next *Hold) {
	if e.many != nil && h.next == nil {
		e.many.changing = append(e.many.changing, h)
	}
	h.next = next
}

// room is what was put into an op so far.
type room struct{ holds, bytes int }

// takes says whether a hold goes into the op too, and takes note of it.
func (r *room) takes(h *Hold) bool {
	size := h.Size()
	if r.holds > 0 && r.bytes+size > maxOpBytes {
		return false
	}
	r.holds++
	r.bytes += size
	return true
}

// takeEnding returns the holds that the next op ends: as many as it has room for.
func (e *entry) takeEnding(room *room) []*hold {
	var ends []*hold
	candidates := e.holds
	if e.many != nil {
		candidates = e.many.ending
	}
	for _, h := range candidates {
		if h.ending == 0 {
			continue
		}
		if len(ends) == maxOpEnds || !room.takes(&h.Hold) {
			break
		}
		ends = append(ends, h)
	}
	if e.many != nil { // all of these end, so what is taken is what comes first
		e.many.ending = slices.Delete(e.many.ending, 0, len(ends))
	}
	return ends
}

// takeChanging returns the holds that the next op changes.
func (e *entry) takeChanging(room *room) []*hold {
	var changes []*hold
	takes := func(h *hold) bool {
		if h.next == nil || h.ending != 0 || len(changes) == maxOpChanges || !room.takes(h.next) {
			return false
		}
		changes = append(changes, h)
		return true
	}
	if e.many == nil {
		for _, h := range e.holds {
			takes(h)
		}
		return changes
	}
	e.many.changing = slices.DeleteFunc(e.many.changing, func(h *hold) bool { return takes(h) || h.ending != 0 })
	return changes
}

// rest is what the holds take without those that end.
func (e *entry) rest(ends []*hold) occupancy {
	var o occupancy
	if e.many != nil {
		o = e.many.occupied
	} else {
		for _, h := range e.holds {
			o.add(h, 1)
		}
	}
	for _, h := range ends {
		o.add(h, -1)
	}
	return o
}

// freeSlot is the smallest slot that no hold has apart from those that end.
func (e *entry) freeSlot(ends []*hold) int32 {
	if e.many != nil {
		return e.many.freeSlot(ends)
	}
	for slot := int32(0); ; slot++ {
		if !slices.ContainsFunc(e.holds, func(h *hold) bool { return h.Slot == slot && !slices.Contains(ends, h) }) {
			return slot
		}
	}
}

func (m *many) freeSlot(ends []*hold) int32 {
	for _, h := range ends {
		m.mark(h.Slot, false)
	}
	free := 64 * len(m.slots)
	for i, word := range m.slots {
		if ^word != 0 {
			free = 64*i + bits.TrailingZeros64(^word)
			break
		}
	}
	for _, h := range ends {
		m.mark(h.Slot, true) // until their end is committed
	}
	return int32(free)
}
