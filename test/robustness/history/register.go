package history

import "sync"

// Registers are numbers, one a name, that leases guard: each access shows a fencing token, and one that is smaller than the
// largest seen is refused. They are safe for concurrent use.
type Registers struct {
	mu  sync.Mutex
	all map[string]*register
}

type register struct{ high, value int64 }

// NewRegisters makes registers that all hold 0.
func NewRegisters() *Registers { return &Registers{all: map[string]*register{}} }

func (r *Registers) pass(name string, token int64) (*register, bool) {
	reg := r.all[name]
	if reg == nil {
		reg = &register{}
		r.all[name] = reg
	}
	if token < reg.high {
		return nil, false
	}
	reg.high = token
	return reg, true
}

// Read returns the value; false: the token was refused.
func (r *Registers) Read(name string, token int64) (int64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reg, ok := r.pass(name, token)
	if !ok {
		return 0, false
	}
	return reg.value, true
}

// Write sets the value; false: the token was refused.
func (r *Registers) Write(name string, token, value int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	reg, ok := r.pass(name, token)
	if ok {
		reg.value = value
	}
	return ok
}

// Increment reads a register and writes one more, as the holder of a token, and records both.
func (r *Registers) Increment(rec *Recorder, client int, name string, token int64, between func()) bool {
	op := Op{Client: client, Name: name, Token: token, Call: Now()}
	value, ok := r.Read(name, token)
	op.Return = Now()
	if op.Kind, op.Value = Fenced, 0; ok {
		op.Kind, op.Value = Read, value
	}
	rec.Add(op)
	if !ok {
		return false
	}
	between()
	op.Call = Now()
	ok = r.Write(name, token, value+1)
	op.Return = Now()
	if op.Kind, op.Value = Fenced, 0; ok {
		op.Kind, op.Value = Wrote, value+1
	}
	rec.Add(op)
	return ok
}
