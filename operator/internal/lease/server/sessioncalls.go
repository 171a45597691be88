package server

import (
	"cmp"
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// sessionCall is an acquire, a release or a read of a session that is not answered yet. For a name that is served here it costs no goroutine:
// the engine puts its reply into the outbox, and the stream's own goroutine makes the answer of it. Only what is served
// elsewhere, or changes its owner meanwhile, goes on in a goroutine, as a unary call would.
type sessionCall struct {
	session *sessionStream
	id      uint64
	acquire *leasev1.AcquireRequest // one of these three
	release *leasev1.ReleaseRequest
	get     *leasev1.GetRequest
	name    string
	sent    core.Instant

	// call and reply are set by the engine.
	call  *engine.Call
	reply core.Reply

	// The rest is only used by acquires, under the session's lock.
	started   *engine.Call // call, as soon as it can be cancelled
	cancelled bool
	// stop ends the goroutine that makes the call elsewhere; nil while there is none.
	stop  context.CancelFunc
	place int32 // in line, as last told; 0: not yet
}

// Receive implements engine.Receiver.
func (c *sessionCall) Receive(call *engine.Call, reply core.Reply) func() {
	c.call, c.reply = call, reply
	if !c.session.out.reply(c) {
		go func() { // the session is over; this must not wait
			call.GiveBack(reply)
			c.done()
		}()
		return nil
	}
	return c.session.out.rouse
}

// startAcquire begins to acquire. The session's pending has the call until it is answered.
func (ss *sessionStream) startAcquire(id uint64, req *leasev1.AcquireRequest) {
	if req.GetHolder() == "" {
		req.Holder = ss.holder
	}
	if req.GetTtl() == nil {
		req.Ttl = durationpb.New(ss.ttl)
	}
	if req.GetRequestId() == "" {
		req.RequestId = newRequestID()
	}
	c := &sessionCall{session: ss, id: id, acquire: req, name: req.GetName()}
	ss.mu.Lock()
	_, used := ss.pending[id]
	full := len(ss.pending) >= sessionAcquires
	if !used && !full {
		ss.pending[id] = c
	}
	ss.mu.Unlock()
	if used || full {
		var check checker
		check.require(!used, "id", "is %d, which another acquire of this session that is not answered yet has", id)
		check.require(used, "acquire", "is one too many: %d of this session are not answered yet", sessionAcquires)
		ss.refuse(id, check.err())
		return
	}
	ss.wait.Add(1)
	asked, err := ss.server.acquireRequest(req, ss.caller)
	if err != nil {
		c.refuse(err)
		return
	}
	c.sent = ss.came
	started, err := ss.server.engine.StartAcquire(ss.came, asked, c)
	if err != nil {
		c.failed(err)
		return
	}
	ss.mu.Lock()
	c.started = started
	over := ss.holds == nil
	ss.mu.Unlock()
	if over && started.Cancel() { // end came before it could be cancelled
		c.done()
	}
}

// startRelease begins to release. What it releases the session renews no more, whatever becomes of that.
func (ss *sessionStream) startRelease(id uint64, req *leasev1.ReleaseRequest) {
	ss.forget(holdKey{req.GetName(), req.GetToken()})
	if err := checkHold(req.GetName(), req.GetToken()); err != nil {
		ss.refuse(id, err)
		return
	}
	if !ss.enter(ss.calls, id) {
		return
	}
	c := &sessionCall{session: ss, id: id, release: req, name: req.GetName()}
	if _, err := ss.server.engine.StartRelease(ss.came, req.GetName(), req.GetToken(), c); err != nil {
		c.failed(err)
	}
}

// startGet reads, at once if that can be. Other reads take slots, as releases do.
func (ss *sessionStream) startGet(id uint64, req *leasev1.GetRequest) {
	var check checker
	check.name(req.GetName())
	if err := check.err(); err != nil {
		ss.refuse(id, err)
		return
	}
	view, ok, err := ss.server.engine.Peek(req.GetName(), req.GetIncludeQueue())
	if ok {
		ss.send(id, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_Got{Got: &leasev1.GetResponse{Lease: lease(&view)}}})
		return
	}
	if !ss.enter(ss.calls, id) {
		return
	}
	c := &sessionCall{session: ss, id: id, get: req, name: req.GetName()}
	if err == nil {
		_, err = ss.server.engine.StartGet(req.GetName(), req.GetIncludeQueue(), c)
	}
	if err != nil {
		c.failed(err)
	}
}

// done takes note that the call has its answer.
func (c *sessionCall) done() {
	ss := c.session
	if c.acquire == nil {
		ss.calls.leave()
	} else {
		ss.mu.Lock()
		delete(ss.pending, c.id)
		if c.stop != nil {
			c.stop()
		}
		ss.mu.Unlock()
	}
	ss.wait.Done()
}

func (c *sessionCall) refuse(err error) {
	c.session.refuse(c.id, err)
	c.done()
}

// failed takes the call elsewhere, if that may help.
func (c *sessionCall) failed(err error) {
	if !elsewhere(err) && !errors.Is(err, engine.ErrUncertain) {
		c.refuse(err)
		return
	}
	ss := c.session
	ctx := ss.ctx
	if c.acquire != nil {
		ss.mu.Lock()
		ctx, c.stop = context.WithCancel(ss.ctx)
		if c.cancelled {
			c.stop()
		}
		ss.mu.Unlock()
	}
	go c.goElsewhere(ctx)
}

// goElsewhere makes the call as if it were unary.
func (c *sessionCall) goElsewhere(ctx context.Context) {
	server := c.session.server
	if c.get != nil {
		got, err := server.getFor(ctx, c.get, c.session.caller)
		if err != nil {
			c.refuse(err)
			return
		}
		c.got(got)
		return
	}
	if c.release != nil {
		got, err := server.releaseFor(ctx, c.release, c.session.caller)
		if err != nil {
			c.refuse(err)
			return
		}
		c.released(got)
		return
	}
	if wait := c.acquire.GetWait(); wait != nil {
		waited := server.opts.Clock().Sub(c.sent)
		if timeout := wait.GetTimeout(); timeout != nil {
			wait.Timeout = durationpb.New(max(timeout.AsDuration()-waited, time.Millisecond))
		}
		wait.Waited = durationpb.New(wait.GetWaited().AsDuration() + waited)
	}
	got, err := server.acquireFor(ctx, c.acquire, c.session.caller)
	if err != nil {
		c.refuse(err)
		return
	}
	c.granted(got)
}

// answer makes the client's answer of the engine's reply.
func (c *sessionCall) answer() {
	reply, err := c.call.Checked(c.reply)
	switch result := reply.Result.(type) {
	case core.Grant:
		c.granted(acquired(c.name, &result))
	case core.ReleaseResult:
		c.released(released(result))
	case core.LeaseView:
		if err != nil {
			c.failed(err)
			return
		}
		c.got(&leasev1.GetResponse{Lease: lease(&result)})
	default:
		c.failed(err)
	}
}

func (c *sessionCall) granted(got *leasev1.AcquireResponse) {
	ss := c.session
	ss.mu.Lock()
	closing := ss.closing
	ss.mu.Unlock()
	if closing {
		go c.unwanted(got)
		return
	}
	// A grant that answers a wait is new; the time it was sent says nothing about it.
	from := c.sent
	if got.GetWaited().AsDuration() > 0 {
		from = max(c.sent, ss.server.opts.Clock().Add(-got.GetTtl().AsDuration()/10))
	}
	ss.keep(holdKey{c.name, got.GetToken()}, got.GetTtl().AsDuration(), from.Add(got.GetExpiresIn().AsDuration()), false,
		&leasev1.SessionResponse{Id: c.id, Message: &leasev1.SessionResponse_Granted{Granted: got}})
	c.done()
}

// unwanted releases what was granted although the client has closed the session.
func (c *sessionCall) unwanted(got *leasev1.AcquireResponse) {
	_, err := c.session.server.releaseFor(c.session.ctx, &leasev1.ReleaseRequest{Name: c.name, Token: got.GetToken()}, c.session.caller)
	c.refuse(cmp.Or(err, context.Canceled))
}

func (c *sessionCall) released(got *leasev1.ReleaseResponse) {
	c.session.send(c.id, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_Released{Released: got}})
	c.done()
}

func (c *sessionCall) got(got *leasev1.GetResponse) {
	c.session.send(c.id, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_Got{Got: got}})
	c.done()
}

// cancel gives an acquire up, unless it is answered already.
func (c *sessionCall) cancel() {
	ss := c.session
	ss.mu.Lock()
	c.cancelled = true
	started, stop := c.started, c.stop
	ss.mu.Unlock()
	switch {
	case stop != nil:
		stop()
	case started != nil && started.Cancel():
		c.refuse(context.Canceled)
	}
}
