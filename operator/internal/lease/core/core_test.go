package core_test

import (
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
)

func TestMain(m *testing.M) {
	// Unless the command line asks for another number: enough to find what 100 runs miss, in a second.
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		_ = flag.Set("rapid.checks", "3000")
	}
	os.Exit(m.Run())
}

// world is a shard with its store, its clients and all that the invariants need to remember. Ops are committed
// when the test says so, in any order between names, or get lost when the owner changes.
type world struct {
	now      core.Instant
	shard    *core.Shard
	out      core.Output
	ticket   core.Ticket
	revision int64
	stored   map[string]map[int32]core.Record
	inFlight []core.Op

	asked     map[core.Ticket]*request
	released  map[core.Ticket]*request
	requests  []*request
	lastToken map[string]int64
	// waiting is, for each name, the order in which requests of this owner got in line.
	waiting map[string][]*request
}

// request is one acquire, as its client sees it.
type request struct {
	core.AcquireRequest
	token int64
	// sureUntil is how long the client may take itself for a holder: it counts from when it sent its last
	// successful call.
	sureUntil core.Instant
	// promised is how long the service must not expire the hold.
	promised core.Instant
	over     bool
	gone     bool // the ticket was answered or cancelled
}

func newWorld() *world {
	w := &world{
		stored: map[string]map[int32]core.Record{}, asked: map[core.Ticket]*request{}, released: map[core.Ticket]*request{},
		lastToken: map[string]int64{}, waiting: map[string][]*request{}, revision: 100,
	}
	w.shard = core.NewShard(w.now, time.Unix(0, 0), nil)
	return w
}

func (w *world) drain(t *rapid.T) {
	for _, op := range w.out.Ops {
		require.False(t, slices.ContainsFunc(w.inFlight, func(o core.Op) bool { return o.Name == op.Name }), "two ops of %s in flight", op.Name)
		w.inFlight = append(w.inFlight, op)
	}
	for _, r := range w.out.Replies {
		if req := w.asked[r.Ticket]; req != nil {
			delete(w.asked, r.Ticket)
			w.answered(t, req, r)
		}
		if req := w.released[r.Ticket]; req != nil {
			delete(w.released, r.Ticket)
			require.NoError(t, r.Err)
			req.over = true
		}
	}
	for _, n := range w.out.Notices {
		for _, req := range w.requests {
			if req.Name != n.Name || req.token != n.Token || req.token == 0 {
				continue
			}
			if n.Ended == core.Expired {
				require.GreaterOrEqual(t, w.now, req.promised, "token %d of %s expired early", n.Token, n.Name)
			}
			if n.Ended != 0 {
				req.over = true
			}
		}
	}
	w.out.Reset()
	w.check(t)
}

func (w *world) answered(t *rapid.T, req *request, r core.Reply) {
	req.gone = true
	line := w.waiting[req.Name]
	i := slices.Index(line, req)
	if r.Err != nil {
		if i >= 0 {
			w.waiting[req.Name] = slices.Delete(line, i, i+1)
		}
		var held *core.HeldError
		require.ErrorAs(t, r.Err, &held)
		return
	}
	require.LessOrEqual(t, i, 0, "%s was granted before the first in line", req.RequestID)
	if i == 0 {
		w.waiting[req.Name] = line[1:]
	}
	grant := r.Result.(core.Grant)
	require.Equal(t, req.RequestID, grant.Hold.RequestID)
	require.Greater(t, grant.Hold.Token, w.lastToken[req.Name], "tokens rise")
	w.lastToken[req.Name] = grant.Hold.Token
	req.token = grant.Hold.Token
	req.promised = w.now.Add(req.TTL)
	req.sureUntil = w.now.Add(grant.Hold.ExpiresIn)
}

// check holds the clients' views against each other: nobody may share what excludes others.
func (w *world) check(t *rapid.T) {
	held := map[string][]*request{}
	for _, r := range w.requests {
		if r.token != 0 && !r.over && w.now < r.sureUntil {
			held[r.Name] = append(held[r.Name], r)
		}
	}
	for name, holders := range held {
		var permits, total int32
		exclusive := false
		for _, h := range holders {
			exclusive = exclusive || h.Mode == core.Exclusive
			permits, total = permits+h.Permits, h.PermitsTotal
		}
		require.False(t, exclusive && len(holders) > 1, "%d holders of %s, one of them exclusive", len(holders), name)
		require.LessOrEqual(t, permits, total, "permits of %s", name)
	}
}

func (w *world) commit(i int, t *rapid.T) {
	op := w.inFlight[i]
	w.inFlight = slices.Delete(w.inFlight, i, i+1)
	w.store(op)
	w.shard.Committed(w.now, op.Name, w.revision, &w.out)
	w.drain(t)
}

func (w *world) store(op core.Op) {
	w.revision++
	if w.stored[op.Name] == nil {
		w.stored[op.Name] = map[int32]core.Record{}
	}
	for _, write := range op.Writes {
		if write.Hold == nil {
			delete(w.stored[op.Name], write.Slot)
			continue
		}
		record := core.Record{Name: op.Name, Hold: *write.Hold, Revision: w.revision}
		if record.Hold.Token == 0 {
			record.Hold.Token = w.revision
		}
		w.stored[op.Name][write.Slot] = record
	}
}

func (w *world) isStored(r *request) bool {
	for _, record := range w.stored[r.Name] {
		if record.Hold.Token == r.token {
			return true
		}
	}
	return false
}

// reload is a change of owner: what is in flight was committed or was not, and nobody is told.
func (w *world) reload(t *rapid.T) {
	for _, op := range w.inFlight {
		if rapid.Bool().Draw(t, "committed") {
			w.store(op)
		}
	}
	w.inFlight = nil
	clear(w.asked)
	clear(w.released)
	clear(w.waiting)
	var records []core.Record
	for _, slots := range w.stored {
		for _, r := range slots {
			records = append(records, r)
			w.lastToken[r.Name] = max(w.lastToken[r.Name], r.Hold.Token)
		}
	}
	w.shard = core.NewShard(w.now, time.Unix(0, 0), records)
	for _, r := range records {
		for _, req := range w.requests {
			if req.Name == r.Name && req.token == r.Hold.Token {
				req.promised = w.now.Add(req.TTL)
			}
		}
	}
	w.check(t)
}

func (w *world) acquire(t *rapid.T) {
	names := []string{"exclusive", "readers", "permits"}
	name := rapid.SampledFrom(names).Draw(t, "name")
	r := &request{AcquireRequest: core.AcquireRequest{
		Name: name, RequestID: fmt.Sprintf("r%d", len(w.requests)), Holder: "h", Mode: core.Exclusive,
		TTL: time.Duration(rapid.IntRange(1, 5).Draw(t, "ttl")) * time.Second, Wait: rapid.Bool().Draw(t, "wait"),
	}}
	switch name {
	case "readers":
		r.Mode = rapid.SampledFrom([]core.Mode{core.Shared, core.Shared, core.Exclusive}).Draw(t, "mode")
	case "permits":
		r.Mode, r.PermitsTotal, r.Permits = core.Permits, 5, int32(rapid.IntRange(1, 5).Draw(t, "permits"))
	}
	if r.Wait {
		r.WaitFor = time.Duration(rapid.IntRange(0, 3).Draw(t, "waitFor")) * time.Second
		w.waiting[name] = append(w.waiting[name], r)
	}
	w.requests = append(w.requests, r)
	w.ticket++
	w.asked[w.ticket] = r
	w.shard.Acquire(w.now, r.AcquireRequest, w.ticket, &w.out)
	w.drain(t)
}

func (w *world) live() []*request {
	var live []*request
	for _, r := range w.requests {
		if r.token != 0 && !r.over {
			live = append(live, r)
		}
	}
	return live
}

func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		// In an action of rapid's, Skip discards that one action, which does not apply in the present state, and draws another:
		// no test is skipped.
		pick := func(t *rapid.T) *request {
			live := w.live()
			if len(live) == 0 {
				t.Skip("nobody holds anything")
			}
			return rapid.SampledFrom(live).Draw(t, "holder")
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire":      w.acquire,
			"acquireAgain": w.acquire,
			"commit": func(t *rapid.T) {
				if len(w.inFlight) == 0 {
					t.Skip("nothing in flight")
				}
				w.commit(rapid.IntRange(0, len(w.inFlight)-1).Draw(t, "op"), t)
			},
			"commitAll": func(t *rapid.T) {
				for len(w.inFlight) > 0 {
					w.commit(0, t)
				}
			},
			"keepAlive": func(t *rapid.T) {
				r := pick(t)
				kept, err := w.shard.KeepAlive(w.now, r.Name, r.token)
				if err != nil {
					r.over = true
					return
				}
				require.Equal(t, r.TTL, kept.Hold.ExpiresIn)
				r.sureUntil, r.promised = w.now.Add(r.TTL), w.now.Add(r.TTL)
				w.check(t)
			},
			"release": func(t *rapid.T) {
				r := pick(t)
				r.sureUntil = 0
				w.ticket++
				w.released[w.ticket] = r
				w.shard.Release(w.now, r.Name, r.token, w.ticket, &w.out)
				w.drain(t)
			},
			"transfer": func(t *rapid.T) {
				r := pick(t)
				if r.Mode != core.Exclusive {
					t.Skip("nothing to transfer")
				}
				r.sureUntil = 0
				w.ticket++
				w.shard.Transfer(w.now, r.Name, r.token, r.Holder, w.ticket, &w.out) // all have one name, so it goes to the first in line
				w.drain(t)
			},
			"change": func(t *rapid.T) {
				r := pick(t)
				w.ticket++
				w.shard.Change(w.now, r.Name, r.token, []byte("v"), w.ticket, &w.out)
				w.drain(t)
			},
			"repeat": func(t *rapid.T) {
				r := pick(t)
				if !w.isStored(r) {
					t.Skip("it ended unheard of, at a change of owner")
				}
				w.ticket++
				w.shard.Acquire(w.now, r.AcquireRequest, w.ticket, &w.out)
				for _, reply := range w.out.Replies {
					if grant, ok := reply.Result.(core.Grant); ok && reply.Ticket == w.ticket {
						require.Equal(t, r.token, grant.Hold.Token, "the same request has the same token")
					}
				}
				w.drain(t)
			},
			"time": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
				w.shard.Tick(w.now, &w.out)
				w.drain(t)
			},
			"reload": w.reload,
		})
	})
}

// run is a shard whose ops are committed at once.
type run struct {
	t        *testing.T
	shard    *core.Shard
	now      core.Instant
	revision int64
	ticket   core.Ticket
	replies  map[core.Ticket]core.Reply
	notices  []core.Notice
}

func newRun(t *testing.T) *run {
	return &run{t: t, shard: core.NewShard(0, time.Unix(0, 0), nil), replies: map[core.Ticket]core.Reply{}}
}

func (r *run) do(command func(t core.Ticket, out *core.Output)) core.Ticket {
	r.ticket++
	var out core.Output
	command(r.ticket, &out)
	for {
		for _, reply := range out.Replies {
			r.replies[reply.Ticket] = reply
		}
		r.notices = append(r.notices, out.Notices...)
		ops := out.Ops
		out = core.Output{}
		if len(ops) == 0 {
			return r.ticket
		}
		for _, op := range ops {
			r.revision++
			r.shard.Committed(r.now, op.Name, r.revision, &out)
		}
	}
}

func (r *run) acquire(req core.AcquireRequest) core.Ticket {
	if req.Name == "" {
		req.Name = "n"
	}
	if req.Mode == 0 {
		req.Mode = core.Exclusive
	}
	req.TTL, req.RequestID = 10*time.Second, req.Holder
	return r.do(func(t core.Ticket, out *core.Output) { r.shard.Acquire(r.now, req, t, out) })
}

func (r *run) token(t core.Ticket) int64 {
	r.t.Helper()
	reply, ok := r.replies[t]
	require.True(r.t, ok, "not answered")
	require.NoError(r.t, reply.Err)
	return reply.Result.(core.Grant).Hold.Token
}

func TestWriterIsNotOvertakenByReaders(t *testing.T) {
	r := newRun(t)
	reader := r.acquire(core.AcquireRequest{Holder: "reader", Mode: core.Shared})
	writer := r.acquire(core.AcquireRequest{Holder: "writer", Wait: true})
	late := r.acquire(core.AcquireRequest{Holder: "late reader", Mode: core.Shared, Wait: true})
	require.NotContains(t, r.replies, writer)
	require.NotContains(t, r.replies, late, "a reader that came after a waiting writer waits behind it")
	r.do(func(ticket core.Ticket, out *core.Output) { r.shard.Release(r.now, "n", r.token(reader), ticket, out) })
	require.Positive(t, r.token(writer))
	require.NotContains(t, r.replies, late)
}

func TestTransferLeavesNoGap(t *testing.T) {
	r := newRun(t)
	leader := r.token(r.acquire(core.AcquireRequest{Holder: "a"}))
	first := r.acquire(core.AcquireRequest{Holder: "b", Wait: true})
	second := r.acquire(core.AcquireRequest{Holder: "c", Wait: true})
	ticket := r.do(func(ticket core.Ticket, out *core.Output) { r.shard.Transfer(r.now, "n", leader, "c", ticket, out) })
	require.NoError(t, r.replies[ticket].Err)
	require.Equal(t, "c", r.replies[ticket].Result.(core.ChangeResult).Holds[0].Holder)
	require.Greater(t, r.token(second), leader)
	require.NotContains(t, r.replies, first)
	require.Equal(t, core.Transferred, r.notices[0].Ended)

	ticket = r.do(func(ticket core.Ticket, out *core.Output) {
		r.shard.Transfer(r.now, "n", r.token(second), "nobody", ticket, out)
	})
	var none *core.NoSuchCandidateError
	require.ErrorAs(t, r.replies[ticket].Err, &none)
}

// The end of a hold that is being transferred is decided: its TTL may pass meanwhile, however long that takes.
func TestATransferOutlivesTheTTL(t *testing.T) {
	s := core.NewShard(0, time.Unix(0, 0), []core.Record{{Name: "n", Hold: core.Hold{Token: 1, Mode: core.Exclusive, TTL: time.Second}, Revision: 1}})
	var out core.Output
	s.Acquire(1, core.AcquireRequest{Name: "n", Holder: "a", RequestID: "a", Mode: core.Exclusive, TTL: time.Second, Wait: true}, 1, &out)
	s.Transfer(2, "n", 1, "a", 2, &out)
	_, due := s.Next()
	require.False(t, due, "nothing is left to be done before the commit")
	s.Tick(core.Instant(time.Hour), &out)
	s.Committed(core.Instant(time.Hour), "n", 2, &out)
	require.Len(t, out.Replies, 2)
	for _, reply := range out.Replies {
		require.NoError(t, reply.Err)
	}
	require.Equal(t, core.Transferred, out.Notices[0].Ended)
}

// Whoever transfers a hold twice is not told that the first did it, when the second came before it; and that candidate waits on, in its place.
func TestOnlyOneOfTwoTransfersHappens(t *testing.T) {
	s := core.NewShard(0, time.Unix(0, 0), []core.Record{{Name: "n", Hold: core.Hold{Token: 1, Mode: core.Exclusive, TTL: time.Hour}, Revision: 1}})
	var out core.Output
	wait := func(now core.Instant, holder string, ticket core.Ticket) {
		s.Acquire(now, core.AcquireRequest{Name: "n", Holder: holder, RequestID: holder, Mode: core.Exclusive, TTL: time.Second, Wait: true}, ticket, &out)
	}
	wait(1, "a", 1)
	wait(2, "b", 2)
	wait(3, "c", 3)
	s.Change(4, "n", 1, []byte("v"), 4, &out) // both transfers come while this is being committed
	s.Transfer(5, "n", 1, "b", 5, &out)
	s.Transfer(6, "n", 1, "c", 6, &out)
	s.Committed(7, "n", 2, &out)
	s.Committed(8, "n", 3, &out)
	replies := map[core.Ticket]core.Reply{}
	for _, r := range out.Replies {
		replies[r.Ticket] = r
	}
	require.NoError(t, replies[6].Err)
	require.Equal(t, int64(3), replies[3].Result.(core.Grant).Hold.Token)
	var over *core.NotHeldError
	require.ErrorAs(t, replies[5].Err, &over)
	out.Reset()
	s.Release(9, "n", 3, 7, &out)
	s.Committed(10, "n", 4, &out)
	require.Equal(t, core.Ticket(7), out.Replies[0].Ticket)
	require.Equal(t, core.Ticket(1), out.Replies[1].Ticket, "the one who has waited longest is next")
}

func TestForcedRevocationEndsAtItsDeadline(t *testing.T) {
	r := newRun(t)
	token := r.token(r.acquire(core.AcquireRequest{Holder: "a"}))
	r.do(func(ticket core.Ticket, out *core.Output) {
		r.shard.Revoke(r.now, "n", token, core.Revocation{Reason: "maintenance", Period: 3 * time.Second, Force: true}, ticket, out)
	})
	require.Equal(t, "maintenance", r.notices[0].Revocation.Reason)
	require.Zero(t, r.notices[0].Ended, "asked, not ended")
	r.now = r.now.Add(2 * time.Second)
	r.do(func(_ core.Ticket, out *core.Output) { r.shard.Tick(r.now, out) })
	kept, err := r.shard.KeepAlive(r.now, "n", token)
	require.NoError(t, err)
	require.Equal(t, time.Second, kept.Hold.RevokeIn)
	r.now = r.now.Add(time.Second)
	r.do(func(_ core.Ticket, out *core.Output) { r.shard.Tick(r.now, out) })
	require.Equal(t, core.Revoked, r.notices[1].Ended, "keepalives do not put it off")
}

func TestUndeliveredGrantIsGivenBackUnlessSharedWithARetry(t *testing.T) {
	r := newRun(t)
	token := r.token(r.acquire(core.AcquireRequest{Holder: "a"}))
	require.Equal(t, token, r.token(r.acquire(core.AcquireRequest{Holder: "a"})), "a retry")
	abandon := func() {
		r.do(func(_ core.Ticket, out *core.Output) { r.shard.Abandon(r.now, "n", token, out) })
	}
	abandon()
	require.Equal(t, 1, r.shard.Holds(), "the retry has it")
	abandon()
	require.Zero(t, r.shard.Holds())
	require.Positive(t, r.token(r.acquire(core.AcquireRequest{Holder: "a"})), "an abandoned request may be made again")
}

func TestPermitsInAnotherNumberConflict(t *testing.T) {
	r := newRun(t)
	r.token(r.acquire(core.AcquireRequest{Holder: "a", Mode: core.Permits, Permits: 1, PermitsTotal: 3}))
	for _, req := range []core.AcquireRequest{
		{Holder: "b", Mode: core.Permits, Permits: 1, PermitsTotal: 4},
		{Holder: "c"},
	} {
		var conflict *core.ModeConflictError
		require.ErrorAs(t, r.replies[r.acquire(req)].Err, &conflict)
	}
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "a/b.c-d_e:f@g=h+i~j": true, "": false, "/a": false, "a/": false, "a//b": false, "a/../b": false,
		".": false, "a#0": false, "ä": false, "a b": false, "...": true,
	} {
		require.Equal(t, ok, core.ValidateName(name) == nil, "%q: %v", name, core.ValidateName(name))
	}
	for prefix, ok := range map[string]bool{"": true, "a/": true, "a/b": true, "/": false, "a//": false, "a/../": false, "a/.": true, "a#": false} {
		require.Equal(t, ok, core.ValidatePrefix(prefix) == nil, "%q", prefix)
	}
}

func FuzzValidateName(f *testing.F) {
	f.Add("a/b")
	f.Add("../x")
	f.Fuzz(func(t *testing.T, name string) {
		if core.ValidateName(name) != nil {
			return
		}
		require.NoError(t, core.ValidatePrefix(name), "a valid name is a valid prefix")
		require.LessOrEqual(t, len(name), core.MaxNameLength)
		require.NotContains(t, "/"+name+"/", "/../")
		require.NotContains(t, "/"+name+"/", "//")
	})
}

func TestShardOfIsFoldedFNV(t *testing.T) {
	// Clients compute it too: it is part of the API.
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		h := fnv.New64a()
		h.Write([]byte(name))
		sum := h.Sum64()
		require.Equal(t, int((sum^sum>>32)%64), core.ShardOf(name, 64))
	})
}

// A request that has waited elsewhere gets in line where its wait began, but not before one to whom the hold is being handed.
func TestWaitersKeepTheirOrder(t *testing.T) {
	epoch := time.Unix(0, 0)
	s := core.NewShard(0, epoch, []core.Record{{Name: "n", Hold: core.Hold{Token: 1, Mode: core.Exclusive, TTL: time.Hour}, Revision: 1}})
	var out core.Output
	now := core.Instant(time.Hour)
	for i, waited := range []time.Duration{0, 3 * time.Second, time.Second, 3 * time.Second, 2 * time.Second} {
		s.Acquire(now, core.AcquireRequest{
			Name: "n", Holder: fmt.Sprint(i), RequestID: fmt.Sprint(i), Mode: core.Exclusive, TTL: time.Second, Wait: true, Waited: waited,
		}, core.Ticket(i+1), &out)
	}
	s.Get(now, "n", true, 10, &out)
	view := out.Replies[0].Result.(core.LeaseView)
	var order []string
	for _, w := range view.Queue {
		order = append(order, w.Holder)
	}
	require.Equal(t, []string{"1", "3", "4", "2", "0"}, order)

	s.Freeze() // so that the transfer waits in line
	s.Transfer(now, "n", 1, "0", 11, &out)
	s.Acquire(now, core.AcquireRequest{
		Name: "n", Holder: "9", RequestID: "9", Mode: core.Exclusive, TTL: time.Second, Wait: true, Waited: time.Minute,
	}, 12, &out)
	out.Reset()
	s.Get(now, "n", true, 13, &out)
	view = out.Replies[0].Result.(core.LeaseView)
	require.Equal(t, "0", view.Queue[0].Holder)
	require.Equal(t, "9", view.Queue[1].Holder)
}
