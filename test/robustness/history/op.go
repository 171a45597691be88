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
)

var kindNames = map[Kind]string{
	Granted: "granted", Refused: "refused", Kept: "kept", Current: "current", NotHeld: "not held", Lapsed: "lapsed",
	Released: "released",
	Gone:     "gone", Viewed: "viewed", Read: "read", Wrote: "wrote", Fenced: "fenced",
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
	part := &History{Capacity: h.Capacity, Voids: map[string]map[int64]int64{name: h.Voids[name]}}
	for i := range h.Ops {
		if h.Ops[i].Name == name {
			part.Ops = append(part.Ops, h.Ops[i])
		}
	}
	slices.SortStableFunc(part.Ops, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	return part
}

func (h *History) voidFrom(name string, token int64) int64 {
	if from, ok := h.Voids[name][token]; ok {
		return from
	}
	return math.MaxInt64
}
