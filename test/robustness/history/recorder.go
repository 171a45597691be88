package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Recorder collects a History, or passes what it is told on to one in another process. It is safe for concurrent use.
type Recorder struct {
	mu      sync.Mutex
	history History
	out     *json.Encoder
	// err is the first one of out.
	err error
}

// NewRecorder makes a recorder of names with the given capacities.
func NewRecorder(capacity map[string]int32) *Recorder {
	return &Recorder{history: History{Capacity: capacity, Voids: map[string]map[int64]int64{}, Open: map[string]map[int64]int{}}}
}

// NewRemote makes a recorder that writes to one that Receives it.
func NewRemote(w io.Writer) *Recorder { return &Recorder{out: json.NewEncoder(w)} }

// record is one thing that a remote recorder passes on.
type record struct {
	Op      *Op   `json:",omitempty"`
	Void    *void `json:",omitempty"`
	Open    *open `json:",omitempty"`
	Unknown bool  `json:",omitempty"`
}

type void struct {
	Name        string
	Token, From int64
	Back        bool
}

type open struct {
	Name  string
	Token int64
	More  int
}

// Receive records what a remote recorder passes on, until that ends. A last piece that is not whole is left out: its process
// was killed.
func (r *Recorder) Receive(from io.Reader) error {
	for in := json.NewDecoder(from); ; {
		var rec record
		err := in.Decode(&rec)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return fmt.Errorf("receive a history: %w", err)
		}
		r.record(rec)
	}
}

func (r *Recorder) record(rec record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.out != nil:
		r.err = errors.Join(r.err, r.out.Encode(rec))
	case rec.Op != nil:
		r.history.Ops = append(r.history.Ops, *rec.Op)
	case rec.Void != nil:
		r.void(rec.Void)
	case rec.Open != nil:
		if r.history.Open[rec.Open.Name] == nil {
			r.history.Open[rec.Open.Name] = map[int64]int{}
		}
		r.history.Open[rec.Open.Name][rec.Open.Token] += rec.Open.More
	case rec.Unknown:
		r.history.Unknown++
	}
}

func (r *Recorder) void(v *void) {
	voids := r.history.Voids[v.Name]
	if voids == nil {
		voids = map[int64]int64{}
		r.history.Voids[v.Name] = voids
	}
	if v.Back {
		delete(voids, v.Token)
		return
	}
	if known, ok := voids[v.Token]; !ok || v.From < known {
		voids[v.Token] = v.From
	}
}

// Add records an operation.
func (r *Recorder) Add(op Op) { r.record(record{Op: &op}) }

// Unknown counts an operation whose outcome is unknown. An acquire that was perhaps granted promises nothing to anybody.
// A keepalive that perhaps counted neither. So both leave no trace in the history.
func (r *Recorder) Unknown() { r.record(record{Unknown: true}) }

// Void notes that a release is sent: from that instant on nothing is promised about the token. It must be called before,
// since whoever releases may not live to tell what became of it.
func (r *Recorder) Void(name string, token, from int64) {
	r.record(record{Void: &void{Name: name, Token: token, From: from}})
}

// Valid takes Void back: what was sent did certainly nothing.
func (r *Recorder) Valid(name string, token int64) {
	r.record(record{Void: &void{Name: name, Token: token, Back: true}})
}

// Open notes that a change of a token's value is sent, and Settled that it is known what became of it. Before that, and if that never comes,
// the value may be either.
func (r *Recorder) Open(name string, token int64) {
	r.record(record{Open: &open{Name: name, Token: token, More: 1}})
}

// Settled ends Open.
func (r *Recorder) Settled(name string, token int64) {
	r.record(record{Open: &open{Name: name, Token: token, More: -1}})
}

// History returns what is recorded. Nothing may be recorded afterwards.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &r.history
}

// Err returns why something could not be passed on.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
