package server

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

const (
	// beatShare is the part of the time between heartbeats that one waits for the owners of holds that are served elsewhere. What they say
	// later, the next answer tells.
	beatShare = 4
	// beatOthers is how many holds one answer names.
	beatOthers = 1000
)

// answerBeats answers heartbeats, apart from everything that could hold them up.
func (ss *sessionStream) answerBeats() {
	for {
		select {
		case id := <-ss.beats:
			ss.heartbeat(id)
		case <-ss.ctx.Done():
			return
		}
	}
}

// heartbeat renews all holds: those served here by themselves, the others at their owners. The answer does not wait for long for owners that do
// not answer, since the other holds depend on it.
func (ss *sessionStream) heartbeat(id uint64) {
	came := ss.server.opts.Clock()
	interval, elsewhere := ss.renewHere(came)
	if len(elsewhere) > 0 {
		go ss.renewElsewhere(elsewhere, max(interval, time.Second))
	}
	ss.awaitOwners(interval / beatShare)
	ss.acknowledge(id, came, interval)
}

// renewHere renews the holds that are served here, and returns those that owners elsewhere are to be asked for, and how often a heartbeat is due.
func (ss *sessionStream) renewHere(came core.Instant) (interval time.Duration, elsewhere []*leasev1.KeepAliveRequest) {
	interval = ss.ttl / 3
	ss.mu.Lock()
	keys := make([]holdKey, 0, len(ss.holds))
	for key, h := range ss.holds {
		keys = append(keys, key)
		interval = min(interval, h.ttl/3)
	}
	ss.mu.Unlock()
	for _, key := range keys {
		kept, err := ss.server.engine.KeepAlive(key.name, key.token)
		if err == nil {
			ss.renewed(key, came.Add(kept.Hold.ExpiresIn), revocation(&kept.Hold), true)
		} else if ss.ask(key) {
			elsewhere = append(elsewhere, &leasev1.KeepAliveRequest{Name: key.name, Token: key.token})
		}
	}
	return interval, elsewhere
}

// ask notes that an owner elsewhere is about to be asked for a hold, and returns false if one is being asked still.
func (ss *sessionStream) ask(key holdKey) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	h := ss.holds[key]
	if h == nil || h.asking {
		return false
	}
	h.asking = true
	ss.asking++
	return true
}

// renewElsewhere asks owners elsewhere to renew holds. It takes as long as the slowest of them; what the others say counts at once.
func (ss *sessionStream) renewElsewhere(holds []*leasev1.KeepAliveRequest, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ss.ctx, timeout)
	defer cancel()
	sent := ss.server.opts.Clock()
	ss.keepAll(ctx, ss.caller, holds, func(i int, kept *leasev1.KeepAliveResponse, err error) {
		key := holdKey{holds[i].GetName(), holds[i].GetToken()}
		var over *core.NotHeldError
		switch {
		case err == nil:
			ss.renewed(key, sent.Add(kept.GetExpiresIn().AsDuration()), kept.GetRevocation(), ss.server.engine.Serves(key.name))
		case errors.As(err, &over), status.Code(err) == codes.NotFound:
			ss.lose(key, leasev1.EndReason_END_REASON_UNSPECIFIED, "")
		}
		// After any other error the hold is as old as it was, which the answer to the heartbeat shows.
		ss.answered(key)
	})
}

// answered notes that an owner elsewhere has said what it has to, or that nobody will.
func (ss *sessionStream) answered(key holdKey) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if h := ss.holds[key]; h != nil {
		h.asking = false
	}
	if ss.asking--; ss.asking == 0 {
		select {
		case ss.allAnswered <- struct{}{}:
		default:
		}
	}
}

// awaitOwners waits a while until no owner elsewhere is being asked.
func (ss *sessionStream) awaitOwners(patience time.Duration) {
	asking := func() bool {
		ss.mu.Lock()
		defer ss.mu.Unlock()
		return ss.asking > 0
	}
	if !asking() {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for asking() {
		select {
		case <-ss.allAnswered:
		case <-timer.C:
			return
		case <-ss.ctx.Done():
			return
		}
	}
}

// acknowledge answers a heartbeat that came at an instant. That is one step with looking at the holds, as in lose.
func (ss *sessionStream) acknowledge(id uint64, came core.Instant, interval time.Duration) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	least, others := standing(ss.holds, came, ss.server.opts.Clock())
	ack := func(others []*leasev1.SessionHeartbeatOther, more bool) {
		ss.send(id, &leasev1.SessionResponse{Message: &leasev1.SessionResponse_HeartbeatAck{HeartbeatAck: &leasev1.SessionHeartbeatAck{
			ExpiresIn: durationpb.New(min(least, ss.ttl)), HeartbeatInterval: durationpb.New(interval), Renewed: true, Others: others, More: more,
		}}})
	}
	for len(others) > beatOthers {
		ack(others[:beatOthers], true)
		others = others[beatOthers:]
	}
	ack(others, false)
}

// standing says how long each of the holds lives from now at least, and which do not live for their whole TTLs from the instant on
// at which a heartbeat came.
func standing(holds map[holdKey]*sessionHold, came, now core.Instant) (least time.Duration, others []*leasev1.SessionHeartbeatOther) {
	least = time.Duration(1<<63 - 1)
	for key, h := range holds {
		left := h.until.Sub(now)
		least = min(least, left)
		if h.until < came.Add(h.ttl) {
			others = append(others, &leasev1.SessionHeartbeatOther{
				Name: key.name, Token: key.token, ExpiresInMillis: max(0, left).Milliseconds(),
			})
		}
	}
	return least, others
}
