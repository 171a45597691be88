package server

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// attachRound is how long owners of holds to attach are asked at most before those that have no owner are looked for anew.
const attachRound = time.Second

// attachment is a hold that is to be attached, and the id of the request that asks for it; 0: the opening of the session does.
type attachment struct {
	key holdKey
	id  uint64
}

// gatherAttach takes note of a hold that a request asks to attach. All that came in one message are attached together.
func (ss *sessionStream) gatherAttach(id uint64, req *leasev1.SessionAttach) {
	a := attachment{key: holdKey{req.GetName(), req.GetToken()}, id: id}
	ss.mu.Lock()
	_, twice := ss.attaching[a.key]
	if !twice {
		ss.attaching[a.key] = id
	}
	ss.mu.Unlock()
	if twice {
		var c checker
		c.require(false, "attach", "names a hold that is being attached already")
		ss.refuse(id, c.err())
		return
	}
	ss.gathered = append(ss.gathered, a)
}

// attachGathered begins to attach the holds that a message asks for. Those that nobody serves are refused after as long as a call waits for an
// owner; however many there are, they take one slot.
func (ss *sessionStream) attachGathered() {
	some := ss.gathered
	if len(some) == 0 {
		return
	}
	ss.gathered = nil
	if err := ss.take(ss.attaches); err != nil {
		ss.refuseAttaches(some, func(attachment) error { return err })
		return
	}
	ss.goOn(ss.attaches, func() {
		ctx, cancel := context.WithTimeout(ss.ctx, ss.server.opts.Patience)
		defer cancel()
		rest := ss.attachUntil(ctx, some)
		ss.refuseAttaches(rest, func(a attachment) error { return &noOwnerError{name: a.key.name} })
	})
}

// allAttaching returns all holds that are to be taken in yet.
func (ss *sessionStream) allAttaching() []attachment {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	all := make([]attachment, 0, len(ss.attaching))
	for key, id := range ss.attaching {
		all = append(all, attachment{key, id})
	}
	return all
}

// attachAll takes the holds of the session before in. The client has no answer to wait for, and may know less of the state of the service
// than we do, so what fails because of a fail-over is tried until the hold is there, lost or given up.
func (ss *sessionStream) attachAll(all []attachment) { ss.attachUntil(ss.ctx, all) }

// attachUntil attaches holds until each is there, lost or given up, or the context ends, and returns those that are left. All go together, with one
// call to each owner, so holds that nobody serves keep no others waiting.
func (ss *sessionStream) attachUntil(ctx context.Context, some []attachment) (rest []attachment) {
	for rest = ss.unattached(some); len(rest) > 0; rest = ss.unattached(rest) {
		ss.attachOnce(ctx, rest)
		if rest = ss.unattached(rest); len(rest) == 0 {
			break
		}
		select {
		case <-time.After(sessionTick):
		case <-ctx.Done():
			return rest
		}
	}
	return nil
}

// unattached returns those of the holds that are to be taken in yet.
func (ss *sessionStream) unattached(some []attachment) []attachment {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	rest := make([]attachment, 0, len(some))
	for _, a := range some {
		if id, ok := ss.attaching[a.key]; ok && id == a.id {
			rest = append(rest, a)
		}
	}
	return rest
}

func (ss *sessionStream) attachOnce(ctx context.Context, some []attachment) {
	ctx, cancel := context.WithTimeout(ctx, attachRound)
	defer cancel()
	holds := make([]*leasev1.KeepAliveRequest, len(some))
	for i, a := range some {
		holds[i] = &leasev1.KeepAliveRequest{Name: a.key.name, Token: a.key.token}
	}
	sent := ss.server.opts.Clock()
	ss.keepAll(ctx, ss.caller, holds, func(i int, kept *leasev1.KeepAliveResponse, err error) {
		if err == nil {
			ss.attached(some[i], kept, sent)
			return
		}
		err = ss.server.toError(err)
		switch status.Code(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		default:
			ss.notAttached(some[i], err)
		}
	})
}

// attached takes a hold into the session that was just renewed.
func (ss *sessionStream) attached(a attachment, kept *leasev1.KeepAliveResponse, sent core.Instant) {
	ss.keep(a.key, kept.GetTtl().AsDuration(), sent.Add(kept.GetExpiresIn().AsDuration()), true,
		&leasev1.SessionResponse{Id: a.id, Message: &leasev1.SessionResponse_Attached{Attached: &leasev1.SessionAttached{
			Name: a.key.name, Token: a.key.token, Ttl: kept.GetTtl(), ExpiresIn: kept.GetExpiresIn(),
		}}})
}

// notAttached says why a hold is not attached, unless it is not wanted any more.
func (ss *sessionStream) notAttached(a attachment, err error) {
	ss.mu.Lock()
	id, ok := ss.attaching[a.key]
	if ok = ok && id == a.id; ok {
		delete(ss.attaching, a.key)
	}
	ss.mu.Unlock()
	switch {
	case !ok:
	case a.id == 0 && status.Code(err) == codes.NotFound:
		ss.lost(a.key, leasev1.EndReason_END_REASON_UNSPECIFIED, "")
	default:
		ss.refuse(a.id, err)
	}
}

// refuseAttaches refuses requests for holds that are not attached, unless nobody hears it any more.
func (ss *sessionStream) refuseAttaches(some []attachment, why func(attachment) error) {
	if ss.ctx.Err() != nil {
		return
	}
	for _, a := range some {
		ss.notAttached(a, why(a))
	}
}

func (ss *sessionStream) lost(key holdKey, reason leasev1.EndReason, message string) {
	ss.send(0, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_Lost{Lost: &leasev1.SessionLost{
		Name: key.name, Token: key.token, Reason: reason, Message: message,
	}}})
}
