package load

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
	"github.com/holdfast-io/holdfast/test/robustness/history"
	"github.com/holdfast-io/holdfast/test/robustness/lab"
)

// Observer follows the leader of an election, at one replica after another.
type Observer struct {
	addresses []string
	tls       leasetls.Files
	election  string

	mu    sync.Mutex
	after int64
	// leader is the one that was told of last; its token is 0 when nobody leads.
	leader observed
	// newest is the largest token that led.
	newest int64
	// terms are the leaders by the revisions of what made them so or changed their values; gaps are the revisions that were compacted away.
	terms map[int64]observed
	gaps  [][2]int64
	err   error
}

type observed struct {
	token           int64
	candidate, text string
}

// NewObservers makes one for each election. They see everything that happens after they have been started.
func (l *Load) NewObservers() []*Observer {
	var all []*Observer
	for _, election := range l.Elections {
		all = append(all, &Observer{addresses: l.Addresses, tls: l.TLS, election: election.Name, terms: map[int64]observed{}})
	}
	return all
}

// Run follows until the context ends, or something is wrong.
func (o *Observer) Run(ctx context.Context) {
	for i := 0; ctx.Err() == nil && o.problem() == nil; i++ {
		o.follow(ctx, o.addresses[i%len(o.addresses)])
		lab.Sleep(ctx, 20*time.Millisecond)
	}
}

func (o *Observer) follow(ctx context.Context, address string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := lab.Dial(address, o.tls)
	if err != nil {
		o.fail("%v", err)
		return
	}
	defer conn.Close()
	o.mu.Lock()
	req := &leasev1.ObserveRequest{Name: o.election, AfterRevision: o.after}
	o.mu.Unlock()
	stream, err := leasev1.NewElectionServiceClient(conn).Observe(ctx, req)
	if err != nil {
		return // another replica may be reached
	}
	for {
		// A replica that is paused or cut off says nothing, and neither does one where nothing happens. Another one may be better.
		silence := time.AfterFunc(time.Second, cancel)
		resp, err := stream.Recv()
		silence.Stop()
		if err != nil {
			return // it is resumed where it was
		}
		o.see(resp)
	}
}

func (o *Observer) fail(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wrong(format, args...)
}

// wrong notes what is wrong. The lock is held.
func (o *Observer) wrong(format string, args ...any) {
	o.err = errors.Join(o.err, fmt.Errorf("%q: "+format, append([]any{o.election}, args...)...))
}

func (o *Observer) problem() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// see checks that what is told fits to what was told before: revisions and tokens rise, a leader that goes does not come back, and only the
// candidate's own values are proclaimed in its name.
func (o *Observer) see(resp *leasev1.ObserveResponse) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l, revision := resp.GetLeader(), resp.GetRevision()
	next := observed{token: l.GetToken(), candidate: l.GetCandidate(), text: string(l.GetValue())}
	switch {
	case resp.GetPresent():
		if revision < o.after {
			o.wrong("the present leader is of revision %d, and %d was told before", revision, o.after)
		}
		o.gaps = append(o.gaps, [2]int64{o.after, revision})
	case revision <= o.after:
		o.wrong("a change of revision %d came after one of %d", revision, o.after)
	case next.token != 0 && next.token != o.leader.token && next.token != revision:
		o.wrong("token %d leads since revision %d", next.token, revision)
	}
	if next.token != 0 && next.token != o.leader.token && next.token <= o.newest {
		o.wrong("token %d leads after token %d", next.token, o.newest)
	}
	if next.token == o.leader.token && next.candidate != o.leader.candidate {
		o.wrong("token %d is %q's, and was %q's", next.token, next.candidate, o.leader.candidate)
	}
	if candidate := strings.HasPrefix(next.candidate, candidatePrefix); candidate && !strings.HasPrefix(next.text, next.candidate+"/") {
		o.wrong("%q leads with the value %q", next.candidate, next.text)
	}
	o.after, o.leader, o.newest = max(o.after, revision), next, max(o.newest, next.token)
	o.terms[revision] = next
}

// Await waits until the observer has seen all that was acknowledged in a history whose holds are all over, and returns what it missed.
func (o *Observer) Await(ctx context.Context, h *history.History) error {
	return awaitNothingMissing(ctx, func() error { return o.missing(h) }, o.problem)
}

func (o *Observer) missing(h *history.History) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.leader.token != 0 {
		return fmt.Errorf("who observes %q, at revision %d, is told that token %d leads, which is over", o.election, o.after, o.leader.token)
	}
	told := map[observed]bool{}
	for _, term := range o.terms {
		told[term] = true
	}
	for i := range h.Ops {
		op := &h.Ops[i]
		if op.Name != o.election || op.Holder == "" {
			continue
		}
		revision := op.Token
		switch op.Kind {
		case history.Proclaimed:
			revision = op.Value // 0: the client was not told
		case history.Granted:
		default:
			continue
		}
		want := observed{token: op.Token, candidate: op.Holder, text: op.Text}
		if seen := o.terms[revision] == want || revision == 0 && told[want]; !seen && !o.skipped(op.Token, revision) {
			return fmt.Errorf("who observes %q, at revision %d, was not told of %s", o.election, o.after, op)
		}
	}
	return nil
}

// skipped says whether a revision of a term was compacted away; 0: whether any may have been.
func (o *Observer) skipped(term, revision int64) bool {
	for _, gap := range o.gaps {
		if revision > gap[0] && revision <= gap[1] || revision == 0 && term <= gap[1] {
			return true
		}
	}
	return false
}
