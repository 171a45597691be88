// Package history records what clients of the lease service did and saw, and checks that it is linearizable: that each
// answer can be explained by an order of all operations of a name in which every operation took effect at one
// instant between its call and its return.
package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"
)

// Kind is what an operation found out.
type Kind int8

// The kinds. Operations whose outcome is unknown are no operations: see Recorder.Void.
const (
	// Granted: an acquire got Token, which lives until Until at least.
	Granted Kind = iota + 1
	// Refused: an acquire was told that the tokens in Seen hold the name. It need not be all of them.
	Refused
	// Kept: a keepalive was acknowledged, or its holder was sure of it otherwise; Token lives until Until at least.
	Kept
	// Current: a check, which extends nothing, found that Token is held.
	Current
	// NotHeld: a check or release found that Token is not held.
	NotHeld
	// Lapsed: a keepalive was refused. Token is over, or its end is decided, though others may still see it until that is
	// committed.
	Lapsed
	// Released: a release ended Token.
	Released
	// Gone: Token is not held any more, because of this release or an earlier try of it.
	Gone
	// Viewed: exactly the tokens in Seen hold the name.
	Viewed
	// Read and Wrote were accepted by the guarded register: it holds Value, read with Token, or from now on.
	Read
	Wrote
	// Fenced: the register refused Token because it has seen a larger one.
	Fenced
	// Transferred: Former handed the name over to Holder, who has it as Token, in one step.
	Transferred
	// Proclaimed: the value of Token is Text from now on.
	Proclaimed
)

var kindNames = map[Kind]string{
	Granted: "granted", Refused: "refused", Kept: "kept", Current: "current", NotHeld: "not held", Lapsed: "lapsed",
	Released: "released",
	Gone:     "gone", Viewed: "viewed", Read: "read", Wrote: "wrote", Fenced: "fenced",
	Transferred: "transferred", Proclaimed: "proclaimed",
}

func (k Kind) String() string { return kindNames[k] }

// Op is one operation with a known outcome. Times are nanoseconds of Now.
type Op struct {
	Client int
	Name   string
	Kind   Kind
	Call   int64
	Return int64
	Token  int64 `json:",omitempty"`
	// Weight is how much of the name's capacity a grant takes.
	Weight int32 `json:",omitempty"`
	// Until is a promise: the hold does not end by itself before it.
	Until int64   `json:",omitempty"`
	Seen  []int64 `json:",omitempty"`
	Value int64   `json:",omitempty"`
	// Former is the token that was handed over.
	Former int64 `json:",omitempty"`
	// Holder and Text are who holds an election, and the value it proclaims: of a grant, or of the only token in Seen. An empty Holder
	// says nothing of either.
	Holder string `json:",omitempty"`
	Text   string `json:",omitempty"`
}

func (o Op) String() string {
	s := fmt.Sprintf("%10.6f..%10.6f client %d: %s", float64(o.Call)/1e9, float64(o.Return)/1e9, o.Client, o.Kind)
	if o.Token != 0 {
		s += fmt.Sprintf(" token %d", o.Token)
	}
	if o.Until != 0 {
		s += fmt.Sprintf(" until %.6f", float64(o.Until)/1e9)
	}
	if o.Kind == Refused || o.Kind == Viewed {
		s += fmt.Sprintf(" seen %v", o.Seen)
	}
	if o.Former != 0 {
		s += fmt.Sprintf(" from token %d", o.Former)
	}
	if o.Holder != "" || o.Kind == Proclaimed {
		s += fmt.Sprintf(" holder %q value %q", o.Holder, o.Text)
	}
	if o.Kind == Read || o.Kind == Wrote {
		s += fmt.Sprintf(" value %d", o.Value)
	}
	return s
}

// Now is the present instant on a monotonic clock that all processes of the machine share.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("CLOCK_MONOTONIC: " + err.Error()) // it is always there on Linux
	}
	return ts.Nano()
}

// History is what happened to some names.
type History struct {
	Ops []Op
	// Capacity is how much weight the holds of a name may have together; 1 where it is not set.
	Capacity map[string]int32
	// Voids has, by name and token, from when on a hold may be over because its release was sent then.
	Voids map[string]map[int64]int64
	// Open counts, by name and token, the changes of its value that were sent and of which nobody knows what became.
	Open map[string]map[int64]int
	// Unknown counts the operations with an unknown outcome.
	Unknown int
}

// Names returns the names in the history, sorted.
func (h *History) Names() []string {
	var names []string
	for i := range h.Ops {
		names = append(names, h.Ops[i].Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// of returns the part of the history that is about one name, by call.
func (h *History) of(name string) *History {
	part := &History{
		Capacity: h.Capacity, Voids: map[string]map[int64]int64{name: h.Voids[name]}, Open: map[string]map[int64]int{name: h.Open[name]},
	}
	for i := range h.Ops {
		if h.Ops[i].Name == name {
			part.Ops = append(part.Ops, h.Ops[i])
		}
	}
	part.Ops = joined(part.Ops)
	slices.SortStableFunc(part.Ops, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	return part
}

// joined makes one operation of a transfer and the grant that it is to the next holder: both took effect at one instant, which lies within
// both. Where there is no such instant they stay two, of which the second finds no place.
func joined(ops []Op) []Op {
	transfers := map[int64]int{}
	for i := range ops {
		if ops[i].Kind == Transferred {
			transfers[ops[i].Token] = i
		}
	}
	if len(transfers) == 0 {
		return ops
	}
	over := map[int]bool{}
	for i := range ops {
		at, ok := transfers[ops[i].Token]
		if grant := &ops[i]; ok && grant.Kind == Granted && !over[at] {
			transfer := &ops[at]
			call, ret := max(grant.Call, transfer.Call), min(grant.Return, transfer.Return)
			if call > ret || grant.Holder != transfer.Holder {
				continue
			}
			grant.Kind, grant.Former, grant.Call, grant.Return = Transferred, transfer.Former, call, ret
			over[at] = true
		}
	}
	kept := make([]Op, 0, len(ops))
	for i := range ops {
		if !over[i] {
			kept = append(kept, ops[i])
		}
	}
	return kept
}

func (h *History) voidFrom(name string, token int64) int64 {
	if from, ok := h.Voids[name][token]; ok {
		return from
	}
	return math.MaxInt64
}
