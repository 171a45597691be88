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

// attachAll takes the holds of the session before in. The client has no answer to wait for, and may know less of the state of the service
// than we do, so what fails because of a fail-over is tried until the hold is there, lost or given up. All go together, with one call to each owner, so
// holds that nobody serves keep no others waiting.
func (ss *sessionStream) attachAll() {
	rest := ss.unattached()
	for len(rest) > 0 {
		ss.attachOnce(rest)
		if rest = ss.unattached(); len(rest) == 0 {
			return
		}
		select {
		case <-time.After(sessionTick):
		case <-ss.ctx.Done():
			return
		}
		rest = ss.unattached()
	}
}

// unattached returns the holds that are to be taken in yet.
func (ss *sessionStream) unattached() []*leasev1.KeepAliveRequest {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	rest := make([]*leasev1.KeepAliveRequest, 0, len(ss.attaching))
	for key := range ss.attaching {
		rest = append(rest, &leasev1.KeepAliveRequest{Name: key.name, Token: key.token})
	}
	return rest
}

func (ss *sessionStream) attachOnce(holds []*leasev1.KeepAliveRequest) {
	ctx, cancel := context.WithTimeout(ss.ctx, attachRound)
	defer cancel()
	sent := ss.server.opts.Clock()
	ss.keepAll(ctx, ss.caller, holds, func(i int, kept *leasev1.KeepAliveResponse, err error) {
		key := holdKey{holds[i].GetName(), holds[i].GetToken()}
		if err == nil {
			ss.attached(0, key, kept, sent, true)
			return
		}
		err = ss.server.toError(err)
		switch status.Code(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
			return
		case codes.NotFound:
			ss.lost(key, leasev1.EndReason_END_REASON_UNSPECIFIED, "")
		default:
			ss.refuse(0, err)
		}
		ss.mu.Lock()
		delete(ss.attaching, key)
		ss.mu.Unlock()
	})
}

// attach takes a hold into the session because the client asks for it now.
func (ss *sessionStream) attach(id uint64, req *leasev1.SessionAttach) {
	sent := ss.server.opts.Clock()
	kept, err := ss.server.KeepAlive(ss.ctx, &leasev1.KeepAliveRequest{Name: req.GetName(), Token: req.GetToken()})
	if err != nil {
		ss.refuse(id, err)
		return
	}
	ss.attached(id, holdKey{req.GetName(), req.GetToken()}, kept, sent, false)
}

// attached takes a hold into the session that was just renewed.
func (ss *sessionStream) attached(id uint64, key holdKey, kept *leasev1.KeepAliveResponse, sent core.Instant, opening bool) {
	ss.keep(key, kept.GetTtl().AsDuration(), sent.Add(kept.GetExpiresIn().AsDuration()), opening,
		&leasev1.SessionResponse{Id: id, Message: &leasev1.SessionResponse_Attached{Attached: &leasev1.SessionAttached{
			Name: key.name, Token: key.token, Ttl: kept.GetTtl(), ExpiresIn: kept.GetExpiresIn(),
		}}})
}

func (ss *sessionStream) lost(key holdKey, reason leasev1.EndReason, message string) {
	ss.send(0, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_Lost{Lost: &leasev1.SessionLost{
		Name: key.name, Token: key.token, Reason: reason, Message: message,
	}}})
}
