package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
	"github.com/holdfast-io/holdfast/test/robustness/history"
	"github.com/holdfast-io/holdfast/test/robustness/lab"
)

// Watcher follows all names with a prefix, from one replica after another, and keeps a mirror of what is held.
type Watcher struct {
	addresses []string
	tls       leasetls.Files
	prefix    string

	mu     sync.Mutex
	after  int64
	mirror map[string]map[int64]bool
	// granted are the tokens whose grants were seen, gaps the revisions that were not: they are in a snapshot.
	granted map[int64]bool
	gaps    [][2]int64
	relists int
	err     error
}

// NewWatcher makes a watcher of all the names. It sees everything that happens after it has been started.
func (l *Load) NewWatcher() *Watcher {
	return &Watcher{addresses: l.Addresses, tls: l.TLS, prefix: l.Names[0].Prefix(), mirror: map[string]map[int64]bool{}, granted: map[int64]bool{}}
}

// Run follows until the context ends, or something is wrong.
func (w *Watcher) Run(ctx context.Context) {
	for i := 0; ctx.Err() == nil && w.problem() == nil; i++ {
		w.follow(ctx, w.addresses[i%len(w.addresses)])
		lab.Sleep(ctx, 20*time.Millisecond)
	}
}

func (w *Watcher) follow(ctx context.Context, address string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := lab.Dial(address, w.tls)
	if err != nil {
		w.fail(err)
		return
	}
	defer conn.Close()
	w.mu.Lock()
	req := &leasev1.WatchRequest{Target: &leasev1.WatchRequest_Prefix{Prefix: w.prefix}, AfterRevision: w.after}
	w.mu.Unlock()
	stream, err := leasev1.NewLeaseServiceClient(conn).Watch(ctx, req)
	if err != nil {
		return // another replica may be reached
	}
	var snapshot map[string]map[int64]bool
	for {
		// A replica that is paused or cut off says nothing. Another one may be better.
		silence := time.AfterFunc(time.Second, cancel)
		resp, err := stream.Recv()
		silence.Stop()
		if err != nil {
			return // it is resumed where it was
		}
		if part := resp.GetSnapshot(); part != nil {
			snapshot = w.relist(snapshot, part, resp.GetRevision())
			continue
		}
		w.change(resp)
	}
}

func (w *Watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = errors.Join(w.err, err)
}

func (w *Watcher) problem() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// relist adds a part to a snapshot, which takes the place of the mirror once it is complete.
func (w *Watcher) relist(snapshot map[string]map[int64]bool, part *leasev1.WatchSnapshot, revision int64) map[string]map[int64]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if snapshot == nil {
		snapshot = map[string]map[int64]bool{}
	}
	for _, l := range part.GetLeases() {
		for _, h := range l.GetHolds() {
			put(snapshot, l.GetName(), h.GetToken())
		}
	}
	if w.after != 0 && part.GetCause() != leasev1.WatchSnapshot_CAUSE_COMPACTED {
		w.err = errors.Join(w.err, fmt.Errorf("a watch after revision %d began anew although nothing was compacted", w.after))
	}
	if !part.GetComplete() {
		return snapshot
	}
	if revision < w.after {
		w.err = errors.Join(w.err, fmt.Errorf("a snapshot of revision %d came after revision %d", revision, w.after))
	}
	if w.after != 0 {
		w.relists++
	}
	w.gaps = append(w.gaps, [2]int64{w.after, revision})
	w.mirror, w.after = snapshot, revision
	return nil
}

func put(mirror map[string]map[int64]bool, name string, token int64) {
	if mirror[name] == nil {
		mirror[name] = map[int64]bool{}
	}
	mirror[name][token] = true
}

func (w *Watcher) change(resp *leasev1.WatchResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.after
	for _, e := range resp.GetChanges().GetEvents() {
		token := e.GetHold().GetToken()
		if e.GetRevision() <= w.after || e.GetRevision() < last || e.GetRevision() > resp.GetRevision() {
			w.err = errors.Join(w.err, fmt.Errorf("an event of revision %d came after one of %d, in a message from %d to %d", e.GetRevision(), last, w.after, resp.GetRevision()))
		}
		last = e.GetRevision()
		known := w.mirror[e.GetName()][token]
		switch e.GetKind() {
		case leasev1.WatchEvent_KIND_GRANTED:
			if known || token != e.GetRevision() {
				w.err = errors.Join(w.err, fmt.Errorf("token %d of %q was granted at revision %d, known before: %t", token, e.GetName(), e.GetRevision(), known))
			}
			put(w.mirror, e.GetName(), token)
			w.granted[token] = true
		case leasev1.WatchEvent_KIND_ENDED:
			if !known {
				w.err = errors.Join(w.err, fmt.Errorf("token %d of %q ended, of which nothing was known", token, e.GetName()))
			}
			delete(w.mirror[e.GetName()], token)
		default:
		}
	}
	w.after = max(w.after, resp.GetRevision())
}

// Await waits until the watcher has seen everything in a history, whose holds are all over, and returns what it missed.
func (w *Watcher) Await(ctx context.Context, h *history.History) error {
	return awaitNothingMissing(ctx, func() error { return w.missing(h) }, w.problem)
}

// awaitNothingMissing waits for 10 seconds at most until nothing is missing, and returns what is then, or a problem as soon as there is one.
func awaitNothingMissing(ctx context.Context, missing, problem func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		lacks := missing()
		if err := problem(); err != nil || lacks == nil {
			return err
		}
		if !lab.Sleep(ctx, 20*time.Millisecond) {
			return lacks
		}
	}
}

func (w *Watcher) missing(h *history.History) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range h.Ops {
		token := h.Ops[i].Token
		if h.Ops[i].Kind != history.Granted || w.granted[token] {
			continue
		}
		inGap := false
		for _, gap := range w.gaps {
			inGap = inGap || token > gap[0] && token <= gap[1]
		}
		if !inGap {
			return fmt.Errorf("the watch, at revision %d, has not shown the grant of token %d of %q", w.after, token, h.Ops[i].Name)
		}
	}
	for name, tokens := range w.mirror {
		for token := range tokens {
			return fmt.Errorf("the watch, at revision %d, shows token %d of %q as held, which is over", w.after, token, name)
		}
	}
	return nil
}

// Revision returns up to which revision the watcher has seen everything; 0: it has not begun.
func (w *Watcher) Revision() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.after
}

// Relists returns how often the watch had to begin anew because of a compaction.
func (w *Watcher) Relists() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.relists
}
