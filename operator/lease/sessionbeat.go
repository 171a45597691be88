package lease

import (
	"time"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// beatsPerTTL is how often the service wants a heartbeat in the time that the shortest lease lives.
const beatsPerTTL = 3

// lookLeast is how often beat looks at most: each time it looks at all leases, so what ends sooner than that ends now.
const lookLeast = 5 * time.Millisecond

// beat sends heartbeats, and ends leases whose time is over.
func (s *Session) beat() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.hurry:
		case <-s.ctx.Done():
			return
		}
		timer.Reset(s.look(now()))
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
	s.attachAgain(at)
	next := at.Add(lookEvery)
	for key, k := range s.leases {
		if k.unsure {
			continue
		}
		if until := core.Instant(k.lease.until.Load()); until > at.Add(lookLeast) {
			next = min(next, until)
		} else {
			s.expire(key)
		}
	}
	if connected && (s.beatDue || at.Sub(s.last) >= s.interval*3/4) {
		s.last, s.beatDue = at, false
		r := &leasev1.SessionRequest{Message: &leasev1.SessionRequest_Heartbeat{Heartbeat: &leasev1.SessionHeartbeat{}}}
		s.say(r)
		s.beats[r.GetId()] = at
	}
	if s.interval == 0 {
		return lookEvery // the first stream is not open yet; it hurries us
	}
	// Timers stand still while the machine sleeps, so looking when the next lease ends would not do.
	return min(max(s.interval/8, lookLeast), next.Sub(at))
}

// pace has heartbeats sent often enough for a TTL, from now on. The lock is held.
func (s *Session) pace(ttl time.Duration) {
	if every := ttl / beatsPerTTL; every < s.interval {
		s.interval = every
		s.wakeBeat()
	}
}

// hurryAttached has a heartbeat sent at once if one of the leases that a message says are taken in may end before the next is due: their time counts from
// when the service was asked.
func (s *Session) hurryAttached() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := s.attachedUntil; until != 0 && until.Sub(now()) < s.interval {
		s.beatDue = true
		s.wakeBeat()
	}
	s.attachedUntil = 0
}

// wakeBeat has beat look at once.
func (s *Session) wakeBeat() {
	select {
	case s.hurry <- struct{}{}:
	default:
	}
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

// acknowledged takes in an answer to a heartbeat. It renews the leases for their TTLs, but those that it names; if the service does not tell
// leases apart, all for as long as the shortest lives. The lock is held.
func (s *Session) acknowledged(id uint64, ack *leasev1.SessionHeartbeatAck) {
	sent, ok := s.beats[id]
	if !ok {
		return
	}
	for _, o := range ack.GetOthers() {
		if k := s.leases[leaseKey{o.GetName(), o.GetToken()}]; k != nil && k.since < id {
			k.lease.extend(sent, time.Duration(o.GetExpiresInMillis())*time.Millisecond)
			k.apart = id
		}
	}
	if ack.GetMore() {
		return
	}
	delete(s.beats, id)
	s.interval = ack.GetHeartbeatInterval().AsDuration()
	for _, k := range s.leases {
		s.pace(k.lease.ttl) // the service may not have known it yet
		switch {
		case k.since >= id || k.apart == id:
		case ack.GetRenewed():
			k.lease.extend(sent, k.lease.ttl)
		default:
			k.lease.extend(sent, ack.GetExpiresIn().AsDuration())
		}
	}
}
