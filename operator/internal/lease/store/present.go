package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// presentTimeout bounds a read of the journals.
const presentTimeout = 10 * time.Second

// present reads the journals for everybody who begins a watch. Each gets a state that was read after it asked, but all who ask while one is
// being read share the next: a thousand watches that begin at once read them twice. The zero value is ready.
type present struct {
	mu      sync.Mutex
	next    *presentRead // for those who ask now
	running bool
}

type presentRead struct {
	done chan struct{} // closed when the rest is set
	*presentState

	err error
}

// presentState is what all journals say at a revision, and up to which revision each shard is settled. It is never modified.
type presentState struct {
	revision int64
	byShard  map[int][]entry
	settled  map[int]int64
}

func (p *present) read(ctx context.Context, e *Etcd) (*presentState, error) {
	mine := p.join(e)
	select {
	case <-mine.done:
		return mine.presentState, mine.err
	case <-ctx.Done():
		return nil, fmt.Errorf("read the journals: %w", ctx.Err())
	}
}

// join returns the read that begins next, which does not end with the context of one of those who wait for it.
func (p *present) join(e *Etcd) *presentRead {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = &presentRead{done: make(chan struct{})}
	}
	if !p.running {
		p.running = true
		go p.run(e)
	}
	return p.next
}

// run reads for as long as somebody asks.
func (p *present) run(e *Etcd) {
	for {
		p.mu.Lock()
		r := p.next
		p.next = nil
		if r == nil {
			p.running = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), presentTimeout)
		r.presentState, r.err = e.readPresent(ctx)
		cancel()
		close(r.done)
	}
}

func (e *Etcd) readPresent(ctx context.Context) (*presentState, error) {
	states, err := e.client.Get(ctx, e.keys.shards(), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read the states of the shards: %w", err)
	}
	s := &presentState{revision: states.Header.GetRevision(), settled: map[int]int64{}}
	for _, kv := range states.Kvs {
		key := string(kv.GetKey())
		shard, err := strconv.ParseUint(strings.TrimPrefix(key, e.keys.shards()), 16, 16)
		if err != nil {
			return nil, &damagedError{fmt.Errorf("key %q names no shard", key)}
		}
		state, err := decodeState(key, []*mvccpb.KeyValue{kv})
		if err != nil {
			return nil, &damagedError{err}
		}
		s.settled[int(shard)] = state.record.GetSettled()
	}
	s.byShard, _, err = e.readJournals(ctx, s.revision)
	return s, err
}
