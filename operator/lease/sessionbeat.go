package lease

import (
	"time"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// beat sends heartbeats, and ends leases whose time is over.
func (s *Session) beat() {
	for sleep(s.ctx, s.look(now())) {
	}
}

// look does what is due at an instant, and returns how soon to look again. What has expired is given back before the next heartbeat, which would renew it.
func (s *Session) look(at core.Instant) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	connected := s.stream != nil
	if connected && s.silent(at) {
		s.breakStream()
	}
	for key, k := range s.leases {
		if !k.unsure && k.lease.until.Load() <= int64(at) {
			s.expire(key)
		}
	}
	if connected && at.Sub(s.last) >= s.interval*3/4 {
		s.last = at
		r := &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Heartbeat{Heartbeat: &leasev1.SessionHeartbeat{}}}
		s.say(r)
		s.beats[r.GetId()] = at
	}
	return min(max(s.interval/8, 5*time.Millisecond), lookEvery)
}

// silent says that a heartbeat has had no answer for longer than the service takes to ask replicas that do not answer it. The
// lock is held.
func (s *Session) silent(at core.Instant) bool {
	patience := max(s.interval, time.Second) + s.interval/4
	for _, sent := range s.beats {
		if at.Sub(sent) > patience {
			return true
		}
	}
	return false
}

// acknowledged takes in the answer to a heartbeat. The lock is held.
func (s *Session) acknowledged(id uint64, ack *leasev1.SessionHeartbeatAck) {
	sent, ok := s.beats[id]
	if !ok {
		return
	}
	delete(s.beats, id)
	s.interval = ack.GetHeartbeatInterval().AsDuration()
	for _, k := range s.leases {
		if k.since < id {
			k.lease.extend(sent, ack.GetExpiresIn().AsDuration())
		}
	}
}
