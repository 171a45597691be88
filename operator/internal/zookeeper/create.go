package zookeeper

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

const (
	// maxTogether is the number of znodes that one transaction creates at most.
	maxTogether = 128
	// maxTogetherBytes is what a transaction of several may hold. The server refuses a packet of more than 1 MiB, or of what it
	// is configured to, by closing the connection; the library keeps to the same bound for the same reason.
	maxTogetherBytes = 128 << 10
	// maxCommits is the number of transactions under way at a time. Another one gathers what comes meanwhile.
	maxCommits = 2
)

// creations are the znodes that wait to be created. What comes while nothing is under way goes out at once, alone; what comes
// later goes together, in one transaction, when that is answered. So one who is alone waits for nobody, and the cost of
// many is that of a few.
type creations struct {
	mu      sync.Mutex
	waiting []*awaited
	commits int
}

// awaited is a znode to be created, and whoever waits for it.
type awaited struct {
	request *zk.CreateRequest
	// givenUp is closed when nobody waits any more: what was not sent by then must not be.
	givenUp <-chan struct{}
	// done takes the outcome.
	done chan error
}

func (a *awaited) size() int {
	size := len(a.request.Path) + len(a.request.Data) + 64
	for _, entry := range a.request.Acl {
		size += len(entry.Scheme) + len(entry.ID) + 16
	}
	return size
}

// create creates one znode, together with others that are to be created at the same time.
func (s *session) create(ctx context.Context, full string, data []byte, acl []zktypes.ACL) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.RequestTimeout)
	defer cancel()
	a := &awaited{
		request: &zk.CreateRequest{Path: full, Data: data, Acl: toACL(acl), Flags: zk.FlagPersistent},
		givenUp: ctx.Done(), done: make(chan error, 1),
	}
	s.creations.mu.Lock()
	s.creations.waiting = append(s.creations.waiting, a)
	begin := s.creations.commits < maxCommits
	if begin {
		s.creations.commits++
	}
	s.creations.mu.Unlock()
	if begin {
		go s.commitAll()
	}
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
		return s.ended(ctx, errDeadline)
	}
}

// commitAll makes transactions until nothing waits. What goes into one is chosen when it can be sent: whoever gave up while the
// session was away must not be surprised by a znode later.
func (s *session) commitAll() {
	for {
		err := s.reach()
		batch := s.creations.take()
		if len(batch) == 0 {
			return
		}
		if err == nil {
			s.commit(batch)
			continue
		}
		for _, a := range batch {
			a.done <- err
		}
	}
}

// reach waits until requests can be sent.
func (s *session) reach() error {
	if !s.ens.breaker.closed() {
		return &UnavailableError{Ensemble: s.ens.name, Open: true, Err: errBreakerOpen}
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.opts.RequestTimeout)
	defer cancel()
	_, err := s.await(ctx)
	return err
}

// take returns what goes into the next transaction, and ends the commits when that is nothing.
func (c *creations) take() []*awaited {
	c.mu.Lock()
	defer c.mu.Unlock()
	var batch []*awaited
	bytes, taken := 0, 0
	for _, a := range c.waiting {
		if bytes += a.size(); len(batch) == maxTogether || len(batch) > 0 && bytes > maxTogetherBytes {
			break
		}
		taken++
		select {
		case <-a.givenUp:
			bytes -= a.size()
		default:
			batch = append(batch, a)
		}
	}
	clear(c.waiting[:taken])
	if c.waiting = c.waiting[taken:]; len(c.waiting) == 0 {
		c.waiting = nil
	}
	if len(batch) == 0 {
		c.commits--
	}
	return batch
}

// refusal says which of the requests of a transaction the server refused, or -1 when it did not say. Then it carried out none.
type refusal struct {
	index int
	err   error
}

// commit creates a batch, and tells everybody what came of it.
//
// Of a transaction that the server refuses only the first request at fault is known. That one has its answer, which is the
// one that it would have had alone: those before it are of other znodes, or of its parent. All others are then made alone,
// for each further one at fault would take another round trip of all.
func (s *session) commit(batch []*awaited) {
	if len(batch) == 1 {
		batch[0].done <- s.createAlone(batch[0])
		return
	}
	requests := make([]any, len(batch))
	for i, a := range batch {
		requests[i] = a.request
	}
	refused, err := do(s.ctx, s, "multi", func(c *zk.Conn) (*refusal, error) { return multi(c, requests) })
	var rest sync.WaitGroup
	for i, a := range batch {
		switch {
		case err != nil:
			a.done <- err
		case refused == nil:
			a.done <- nil
		case refused.index == i:
			a.done <- fmt.Errorf("create: %w", refused.err)
		default:
			rest.Go(func() { a.done <- s.createAlone(a) })
		}
	}
	rest.Wait()
}

func (s *session) createAlone(a *awaited) error {
	_, err := do(s.ctx, s, "create", func(c *zk.Conn) (string, error) {
		return c.Create(a.request.Path, a.request.Data, a.request.Flags, a.request.Acl)
	})
	return err
}

// multi makes a transaction. An error says that the server was not heard.
func multi(c *zk.Conn, requests []any) (*refusal, error) {
	results, err := c.Multi(requests...)
	if err == nil || connectivity(err) {
		return nil, err
	}
	for i, result := range results {
		if result.Error != nil {
			return &refusal{index: i, err: result.Error}, nil
		}
	}
	return &refusal{index: -1, err: err}, nil
}
