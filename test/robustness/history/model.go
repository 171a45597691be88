package history

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// state is a name, and the register it guards, between two operations.
type state struct {
	// latest is the largest token granted so far.
	latest int64
	// holds are those that may still be alive, by token. With capacity 1 there is one at most.
	holds []hold
	// high is the largest token the register has seen, value what it holds.
	high, value int64
}

type hold struct {
	token  int64
	weight int32
	// until is when it may end by itself at the earliest, and void from when on a release may have ended it.
	until, void int64
	// holder is whose it is, in an election, if that is known, and text what it proclaims, if told says that this is known.
	holder, text string
	told         bool
}

// certain says that a hold is alive at an instant, whatever happened unseen before.
func (h hold) certain(at int64) bool { return at < h.until && at < h.void }

// rules are what the steps of one name need to know besides the state.
type rules struct {
	name     string
	capacity int32
	history  *History
	// granted are the tokens of recorded grants. All others belong to acquires with an unknown outcome.
	granted map[int64]bool
}

// model makes the sequential specification of a name.
//
// Expiry is no operation, but something that may have happened before any operation. Its place in the order is free but
// for one bound: a hold lives until the TTL has passed since its last acknowledged acquire or keepalive was sent. An operation
// takes effect before it returns. So one that shows that a hold is over is wrong if it returned before that.
//
// A grant whose answer was lost takes effect unseen too; it is only seen when an operation shows its token.
func model(name string, h *History) porcupine.Model {
	r := &rules{name: name, capacity: max(1, h.Capacity[name]), history: h, granted: map[int64]bool{}}
	for i := range h.Ops {
		if h.Ops[i].Kind == Granted || h.Ops[i].Kind == Transferred {
			r.granted[h.Ops[i].Token] = true
		}
	}
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(s, input, _ any) (bool, any) {
			op := input.(Op)
			next := s.(state)
			ok := r.step(&next, &op)
			return ok, next
		},
		Equal:             func(a, b any) bool { return equal(a.(state), b.(state)) },
		Hash:              func(s any) uint64 { return hash(s.(state)) },
		DescribeOperation: func(input, _ any) string { return input.(Op).String() },
		DescribeState:     func(s any) string { return s.(state).String() },
	}
}

func equal(a, b state) bool {
	return a.latest == b.latest && a.high == b.high && a.value == b.value && slices.Equal(a.holds, b.holds)
}

var seed = maphash.MakeSeed()

func hash(s state) uint64 {
	sum := maphash.Comparable(seed, [3]int64{s.latest, s.high, s.value})
	for _, h := range s.holds {
		sum = sum*31 + maphash.Comparable(seed, h)
	}
	return sum
}

func (s state) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "latest token %d, register %d guarded by %d, holds", s.latest, s.value, s.high)
	for _, h := range s.holds {
		fmt.Fprintf(&b, " [%d of weight %d until %.6f", h.token, h.weight, float64(h.until)/1e9)
		if h.holder != "" {
			fmt.Fprintf(&b, " %q: %q", h.holder, h.text)
		}
		b.WriteString("]")
	}
	return b.String()
}

// step takes an operation, or returns false if it cannot come next. It replaces the state's slice and never modifies it.
func (r *rules) step(s *state, op *Op) bool {
	switch op.Kind {
	case Granted:
		return r.grant(s, op)
	case Kept:
		return r.keep(s, op)
	case Current:
		return r.has(s, op.Token)
	case Released:
		return r.has(s, op.Token) && r.drop(s, op.Token)
	case Gone:
		return r.drop(s, op.Token)
	case Lapsed:
		return r.lapse(s, op)
	case NotHeld:
		return r.end(s, op.Return, func(h hold) bool { return h.token == op.Token })
	case Viewed:
		return r.see(s, op) && r.end(s, op.Return, func(h hold) bool { return !slices.Contains(op.Seen, h.token) })
	case Refused:
		return r.see(s, op)
	case Read:
		return s.pass(op.Token) && s.value == op.Value
	case Wrote:
		// Every write adds one to what its writer read: a lost update shows.
		ok := s.pass(op.Token) && s.value+1 == op.Value
		s.value = op.Value
		return ok
	case Fenced:
		return op.Token < s.high
	case Transferred:
		return r.has(s, op.Former) && r.drop(s, op.Former) && r.grant(s, op)
	case Proclaimed:
		return r.proclaim(s, op)
	}
	return false
}

func (s *state) pass(token int64) bool {
	ok := token >= s.high
	s.high = token
	return ok
}

// grant: tokens rise, and what certainly holds the name leaves enough of it.
func (r *rules) grant(s *state, op *Op) bool {
	if op.Token <= s.latest || !r.fits(s, op.Return, op.Token, op.Weight) {
		return false
	}
	s.latest = op.Token
	h := hold{token: op.Token, weight: op.Weight, until: op.Until, void: r.history.voidFrom(r.name, op.Token), holder: op.Holder}
	if op.Until != 0 && op.Holder != "" { // else it is a transfer, whose sender knows nothing of the value
		h.text, h.told = op.Text, true
	}
	r.add(s, h)
	return true
}

// proclaim: the hold is there.
func (r *rules) proclaim(s *state, op *Op) bool {
	i := slices.IndexFunc(s.holds, func(h hold) bool { return h.token == op.Token })
	if i < 0 {
		return false
	}
	s.holds = slices.Clone(s.holds)
	s.holds[i].text, s.holds[i].told = op.Text, true
	return true
}

// keep: the hold is there, and everything else that certainly holds the name still leaves enough of it.
func (r *rules) keep(s *state, op *Op) bool {
	i := slices.IndexFunc(s.holds, func(h hold) bool { return h.token == op.Token })
	if i < 0 || !r.fits(s, op.Return, op.Token, s.holds[i].weight) {
		return false
	}
	s.holds = slices.Clone(s.holds)
	s.holds[i].until = max(s.holds[i].until, op.Until)
	return true
}

// fits says whether a hold fits beside all others that are certainly alive.
func (r *rules) fits(s *state, at, token int64, weight int32) bool {
	for _, h := range s.holds {
		if h.token != token && h.certain(at) {
			weight += h.weight
		}
	}
	return weight <= r.capacity
}

// add adds a hold. One that takes the whole name shows that all others are over.
func (r *rules) add(s *state, h hold) {
	if h.weight >= r.capacity {
		s.holds = []hold{h}
		return
	}
	s.holds = append(slices.Clone(s.holds), h)
	slices.SortFunc(s.holds, func(a, b hold) int { return cmp.Compare(a.token, b.token) })
}

func (r *rules) has(s *state, token int64) bool {
	return slices.ContainsFunc(s.holds, func(h hold) bool { return h.token == token })
}

func (r *rules) drop(s *state, token int64) bool {
	s.holds = slices.DeleteFunc(slices.Clone(s.holds), func(h hold) bool { return h.token == token })
	return true
}

// end removes holds that are over, as an operation showed that returned at an instant.
func (r *rules) end(s *state, at int64, over func(hold) bool) bool {
	for _, h := range s.holds {
		if over(h) && h.certain(at) {
			return false
		}
	}
	s.holds = slices.DeleteFunc(slices.Clone(s.holds), over)
	return true
}

// lapse takes every promise from a hold, which must be none that still binds.
func (r *rules) lapse(s *state, op *Op) bool {
	for i, h := range s.holds {
		if h.token != op.Token {
			continue
		}
		if h.certain(op.Return) {
			return false
		}
		s.holds = slices.Clone(s.holds)
		s.holds[i].until = 0
	}
	return true
}

// see takes in that tokens hold the name, and as whose.
func (r *rules) see(s *state, op *Op) bool {
	return r.tokens(s, op) && r.leads(s, op)
}

// leads: who is seen to hold an election is who does, with the value that it proclaimed last.
func (r *rules) leads(s *state, op *Op) bool {
	if op.Holder == "" {
		return true
	}
	i := slices.IndexFunc(s.holds, func(h hold) bool { return h.token == op.Seen[0] })
	if i < 0 {
		return false
	}
	h := s.holds[i]
	if h.holder != "" && h.holder != op.Holder {
		return false
	}
	if h.told && h.text != op.Text && r.history.Open[r.name][h.token] == 0 {
		return false
	}
	s.holds = slices.Clone(s.holds)
	s.holds[i].holder = op.Holder
	if !h.told { // nobody changes the value of a hold that nobody knows to be theirs
		s.holds[i].text, s.holds[i].told = op.Text, true
	}
	return true
}

func (r *rules) tokens(s *state, op *Op) bool {
	for _, token := range op.Seen {
		if r.has(s, token) {
			continue
		}
		if r.granted[token] {
			return false // it is not granted yet, or over
		}
		if r.capacity > 1 {
			continue // of unknown weight
		}
		// The grant of an acquire with an unknown outcome.
		if token <= s.latest || !r.fits(s, op.Return, token, 1) {
			return false
		}
		s.latest = token
		r.add(s, hold{token: token, weight: 1})
	}
	return true
}
