package server

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

const (
	// attachRound is how long owners of holds to attach are asked at most before those that have no owner are looked for anew.
	attachRound = time.Second
	// attachMost bounds the holds of one session that are to be attached and are not yet.
	attachMost = 200_000
)

// attachment is a hold that is to be attached, the id of the request that asks for it, and until when it is tried; 0: the opening of the session asks
// for it, and it is tried for as long as the session lives.
type attachment struct {
	key   holdKey
	id    uint64
	until core.Instant
}

// gatherAttach takes note of a hold that a request asks to attach. All that came in one message are attached together.
func (ss *sessionStream) gatherAttach(id uint64, req *leasev1.SessionAttach) {
	a := attachment{key: holdKey{req.GetName(), req.GetToken()}, id: id}
	ss.mu.Lock()
	_, twice := ss.attaching[a.key]
	full := len(ss.attaching) >= attachMost
	if !twice && !full {
		ss.attaching[a.key] = id
	}
	ss.mu.Unlock()
	switch {
	case twice:
		var c checker
		c.require(false, "attach", "names a hold that is being attached already")
		ss.refuse(id, c.err())
	case full:
		ss.refuse(id, tooMany(fmt.Errorf("%d holds of this session are being attached already; at most as many are allowed", attachMost)))
	default:
		ss.gathered = append(ss.gathered, a)
	}
}

// attachGathered begins to attach the holds that a message asks for. They take one slot until their owners were asked once, so holds that nobody serves
// keep no slot from those of other messages; they are refused after as long as a call waits for an owner.
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
	until := ss.server.opts.Clock().Add(ss.server.opts.Patience)
	for i := range some {
		some[i].until = until
	}
	ss.goOn(ss.attaches, func() {
		ss.attachOnce(some)
		ss.attachLater(ss.unattached(some))
	})
}

// attachOpened begins to attach the holds of the session before. The client has no answer to wait for, and may know less of the state of the service
// than we do, so what fails because of a fail-over is tried until the hold is there, lost or given up.
func (ss *sessionStream) attachOpened(holds []*leasev1.SessionAttach) {
	some := make([]attachment, 0, len(holds))
	for _, h := range holds {
		a := attachment{key: holdKey{h.GetName(), h.GetToken()}}
		if _, twice := ss.attaching[a.key]; !twice {
			ss.attaching[a.key] = a.id
			some = append(some, a)
		}
	}
	ss.attachLater(some)
}

// attachLater leaves holds to the goroutine that attaches all those that nobody waits for in a slot. The caller is counted in wait, or nobody waits yet.
func (ss *sessionStream) attachLater(some []attachment) {
	if len(some) == 0 {
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	idle := len(ss.later) == 0
	ss.later = append(ss.later, some...)
	if idle {
		ss.wait.Go(ss.attachAll)
	}
}

// attachAll attaches what is in later until each hold is there, lost, given up or out of time. All go together, with one call to each owner, so holds
// that nobody serves keep no others waiting.
func (ss *sessionStream) attachAll() {
	for some := ss.dueLater(); len(some) > 0; some = ss.dueLater() {
		ss.attachOnce(some)
		if len(ss.unattached(some)) == 0 {
			continue
		}
		select {
		case <-time.After(sessionTick):
		case <-ss.ctx.Done():
			return
		}
	}
}

// dueLater returns what is in later and still to be taken in, and refuses what is out of time.
func (ss *sessionStream) dueLater() []attachment {
	now := ss.server.opts.Clock()
	ss.mu.Lock()
	var due, over []attachment
	for _, a := range ss.wantedOf(ss.later) {
		if a.until != 0 && a.until <= now {
			over = append(over, a)
		} else {
			due = append(due, a)
		}
	}
	ss.later = due
	ss.mu.Unlock()
	ss.refuseAttaches(over, func(a attachment) error { return &noOwnerError{name: a.key.name} })
	return due
}

// unattached returns those of the holds that are to be taken in yet.
func (ss *sessionStream) unattached(some []attachment) []attachment {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.wantedOf(some)
}

// wantedOf is unattached with the lock held.
func (ss *sessionStream) wantedOf(some []attachment) []attachment {
	rest := make([]attachment, 0, len(some))
	for _, a := range some {
		if id, ok := ss.attaching[a.key]; ok && id == a.id {
			rest = append(rest, a)
		}
	}
	return rest
}

// attachOnce asks the owners of holds once. What may be different the next time leaves a hold to be attached.
func (ss *sessionStream) attachOnce(some []attachment) {
	ctx, cancel := context.WithTimeout(ss.ctx, attachRound)
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
		if err = ss.server.toError(err); final(err) {
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
