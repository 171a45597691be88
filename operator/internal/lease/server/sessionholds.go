package server

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// follower hears what happens to a hold that is served here.
type follower struct {
	of *engine.Follower
	// over says that the hold was over before, and asked how it was asked back before; nil: it was not.
	over  bool
	asked *leasev1.Revocation
	// last is the last that it heard.
	last atomic.Pointer[engine.Notice]
}

// keep takes a hold into the session and says so, in one step: no heartbeat that the client sends once it has heard of the
// hold may leave it out, and no loss may be told before. One that is attached may have been given up since.
func (ss *sessionStream) keep(key holdKey, ttl time.Duration, until core.Instant, attach bool, message *leasev1.SessionResponse) {
	f := ss.follow(key)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	id, wanted := ss.attaching[key]
	if ss.holds == nil || attach && (!wanted || id != message.GetId()) {
		if f != nil {
			go ss.server.engine.Unfollow(f.of)
		}
		return
	}
	if attach {
		delete(ss.attaching, key)
	}
	ss.unfollow(key, ss.holds[key]) // one that was granted or attached once more
	h := &sessionHold{ttl: ttl, until: until}
	ss.holds[key] = h
	ss.out.add(message)
	if f == nil {
		ss.server.elsewhere.add(key, ss)
	} else {
		ss.install(key, h, f)
	}
}

// follow hears what happens to a hold if its name is served here; see elsewhereHolds for the others.
func (ss *sessionStream) follow(key holdKey) *follower {
	f := &follower{}
	of, hold, err := ss.server.engine.Follow(key.name, key.token, func(n engine.Notice) {
		if last := f.last.Load(); last == nil || last.Ended == 0 { // nothing matters after the end
			f.last.Store(&n)
		}
		// The engine holds a lock, and so may we in keep; this must not wait for either.
		go ss.heard(key, f, &n)
	})
	if err != nil {
		return nil
	}
	f.of, f.over, f.asked = of, hold.Token == 0, revocation(&hold)
	return f
}

// install lets a follower serve a hold. What happened before it heard anything, the client is told of now. What it heard before, found
// no hold, so that is looked at once more, and after this, since that takes the lock. The lock is held.
func (ss *sessionStream) install(key holdKey, h *sessionHold, f *follower) {
	h.follower = f
	switch {
	case f.over:
		go ss.lose(key, leasev1.EndReason_END_REASON_UNSPECIFIED, "")
	case f.asked != nil:
		ss.tellAsked(key, h, f.asked, true)
	}
	if n := f.last.Load(); n != nil {
		go ss.heard(key, f, n)
	}
}

// heard acts on what a follower heard, maybe twice.
func (ss *sessionStream) heard(key holdKey, f *follower, n *engine.Notice) {
	switch {
	case n.Moved:
		ss.moved(key, f)
	case n.Ended != 0:
		ss.ended(key, n.Ended, n.Revocation)
	case n.Revocation != nil:
		ss.askBack(key, asked(n.Revocation), true)
	}
}

// moved takes a follower out that will hear no more. Another may have been installed since.
func (ss *sessionStream) moved(key holdKey, f *follower) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if h := ss.holds[key]; h != nil && h.follower == f {
		h.follower = nil
		ss.server.elsewhere.add(key, ss)
	}
}

func (ss *sessionStream) ended(key holdKey, why core.EndReason, revocation *core.Revocation) {
	message := ""
	if why == core.Revoked && revocation != nil {
		message = revocation.Reason
	}
	ss.lose(key, leasev1.EndReason(why), message)
}

// lose takes a hold that is over out of the session and says so, in one step: no heartbeat may be answered in between as if the
// hold had never been there, since the client would take that for a renewal.
func (ss *sessionStream) lose(key holdKey, reason leasev1.EndReason, message string) {
	ss.mu.Lock()
	h := ss.holds[key]
	delete(ss.holds, key)
	if h != nil {
		ss.lost(key, reason, message)
	}
	ss.mu.Unlock()
	ss.unfollow(key, h)
}

// unfollow ends what follow and elsewhereHolds do for a hold that was taken out of the session; nil: there was none.
func (ss *sessionStream) unfollow(key holdKey, h *sessionHold) {
	switch {
	case h == nil:
	case h.follower != nil:
		ss.server.engine.Unfollow(h.follower.of)
	default:
		ss.server.elsewhere.remove(key, ss)
	}
}

// askBack tells the client of a revocation of a hold that the session keeps.
func (ss *sessionStream) askBack(key holdKey, r *leasev1.Revocation, exact bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if h := ss.holds[key]; h != nil {
		ss.tellAsked(key, h, r, exact)
	}
}

// tellAsked tells the client of a revocation, unless it knows of that. What is heard from the store is not exact: any change of the hold
// shows its revocation with the whole of its period. So a deadline that is only later than the one known does not count then; if it is
// true, the next heartbeat finds out. The lock is held.
func (ss *sessionStream) tellAsked(key holdKey, h *sessionHold, r *leasev1.Revocation, exact bool) {
	next := &core.Asked{Reason: r.GetReason(), RequestedBy: r.GetRequestedBy(), Force: r.GetForce()}
	if in := r.GetDeadlineIn(); in != nil {
		next.By = ss.server.opts.Clock().Add(in.AsDuration())
	}
	if known := h.asked; known != nil {
		if !exact && known.By != 0 {
			next.By = min(next.By, known.By)
		}
		if !known.News(*next) {
			return
		}
	}
	h.asked = next
	ss.send(0, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_RevokeRequested{RevokeRequested: &leasev1.SessionRevokeRequested{
		Name: key.name, Token: key.token, Revocation: r,
	}}})
}

// forget takes a hold out of the session that its client gives up.
func (ss *sessionStream) forget(key holdKey) {
	ss.mu.Lock()
	h := ss.holds[key]
	id, attaching := ss.attaching[key]
	delete(ss.holds, key)
	delete(ss.attaching, key)
	ss.mu.Unlock()
	ss.unfollow(key, h)
	if attaching && id != 0 {
		ss.refuse(id, context.Canceled)
	}
}

func (ss *sessionStream) renewed(key holdKey, until core.Instant, asked *leasev1.Revocation, here bool) {
	ss.mu.Lock()
	h := ss.holds[key]
	follow := false
	if h != nil {
		h.until, h.warned = max(h.until, until), false
		follow = here && h.follower == nil
	}
	ss.mu.Unlock()
	if follow {
		f := ss.follow(key)
		ss.mu.Lock()
		if h := ss.holds[key]; h != nil && h.follower == nil && f != nil {
			ss.server.elsewhere.remove(key, ss)
			ss.install(key, h, f)
			f = nil
		}
		ss.mu.Unlock()
		if f != nil {
			ss.server.engine.Unfollow(f.of)
		}
	}
	if asked != nil {
		ss.askBack(key, asked, true)
	}
}

// watchDeadlines warns of holds that will end soon, and of the end of the stream when the replica is about to stop.
func (ss *sessionStream) watchDeadlines() {
	ticker := time.NewTicker(sessionTick)
	defer ticker.Stop()
	away := false
	for {
		select {
		case <-ticker.C:
		case <-ss.ctx.Done():
			return
		}
		if !away && ss.server.engine.Draining() {
			away = true
			ss.send(0, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_GoAway{GoAway: &leasev1.SessionGoAway{
				Reason: "this replica is about to stop", Grace: durationpb.New(goAwayGrace),
			}}})
		}
		now := ss.server.opts.Clock()
		ss.mu.Lock()
		for key, h := range ss.holds {
			if left := h.until.Sub(now); !h.warned && left < h.ttl/3 {
				h.warned = true
				ss.send(0, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_Expiring{Expiring: &leasev1.SessionExpiring{
					Name: key.name, Token: key.token, ExpiresIn: durationpb.New(max(0, left)),
				}}})
			}
		}
		ss.mu.Unlock()
	}
}
