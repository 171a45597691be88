package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// Guarded are numbers, one a name, that leases guard: each access shows a fencing token, and one that is smaller than the
// largest seen is refused.
type Guarded interface {
	// Read returns the value; false: the token was refused.
	Read(client int, name string, token int64) (value int64, ok bool, err error)
	// Write sets the value; false: the token was refused.
	Write(client int, name string, token, value int64) (ok bool, err error)
}

// Registers are Guarded numbers in this process. What happens to them is recorded. They are safe for concurrent use.
type Registers struct {
	rec *Recorder
	mu  sync.Mutex
	all map[string]*register
}

type register struct{ high, value int64 }

// NewRegisters makes registers that all hold 0.
func NewRegisters(rec *Recorder) *Registers {
	return &Registers{rec: rec, all: map[string]*register{}}
}

// Read implements Guarded.
func (r *Registers) Read(client int, name string, token int64) (int64, bool, error) {
	value, ok := r.do(Op{Client: client, Name: name, Kind: Read, Token: token})
	return value, ok, nil
}

// Write implements Guarded.
func (r *Registers) Write(client int, name string, token, value int64) (bool, error) {
	_, ok := r.do(Op{Client: client, Name: name, Kind: Wrote, Token: token, Value: value})
	return ok, nil
}

func (r *Registers) do(op Op) (int64, bool) {
	op.Call = Now()
	value, ok := r.access(&op)
	op.Return = Now()
	if op.Value = value; !ok {
		op.Kind, op.Value = Fenced, 0
	}
	r.rec.Add(op)
	return value, ok
}

func (r *Registers) access(op *Op) (int64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reg := r.all[op.Name]
	if reg == nil {
		reg = &register{}
		r.all[op.Name] = reg
	}
	if op.Token < reg.high {
		return 0, false
	}
	reg.high = op.Token
	if op.Kind == Wrote {
		reg.value = op.Value
	}
	return reg.value, true
}

// Increment reads a register and writes one more, and returns false when the token was refused.
func Increment(g Guarded, client int, name string, token int64, between func()) (bool, error) {
	value, ok, err := g.Read(client, name, token)
	if !ok || err != nil {
		return false, err
	}
	between()
	return g.Write(client, name, token, value+1)
}

// access is what RemoteRegisters send, and what they get back.
type access struct {
	Client       int
	Name         string
	Write        bool
	Token, Value int64
	OK           bool
}

// ServeHTTP serves RemoteRegisters.
func (r *Registers) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var a access
	if err := json.NewDecoder(req.Body).Decode(&a); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	kind := Read
	if a.Write {
		kind = Wrote
	}
	a.Value, a.OK = r.do(Op{Client: a.Client, Name: a.Name, Kind: kind, Token: a.Token, Value: a.Value})
	if err := json.NewEncoder(w).Encode(a); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// registerClient keeps a connection for each client of a process: the default one would make and close one for most calls.
var registerClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

// RemoteRegisters are Guarded numbers in another process.
type RemoteRegisters struct {
	// URL is where Registers are served.
	URL string
}

// Read implements Guarded.
func (r RemoteRegisters) Read(client int, name string, token int64) (int64, bool, error) {
	a, err := r.do(access{Client: client, Name: name, Token: token})
	return a.Value, a.OK, err
}

// Write implements Guarded.
func (r RemoteRegisters) Write(client int, name string, token, value int64) (bool, error) {
	a, err := r.do(access{Client: client, Name: name, Token: token, Value: value, Write: true})
	return a.OK, err
}

func (r RemoteRegisters) do(a access) (access, error) {
	data, err := json.Marshal(a)
	if err != nil {
		return a, fmt.Errorf("ask the registers: %w", err)
	}
	resp, err := registerClient.Post(r.URL, "application/json", bytes.NewReader(data))
	if err != nil {
		return a, fmt.Errorf("ask the registers: %w", err)
	}
	defer resp.Body.Close()
	// All of it, or the connection is not used again.
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, fmt.Errorf("ask the registers: %w", err)
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return a, fmt.Errorf("ask the registers: %w", err)
	}
	return a, nil
}
