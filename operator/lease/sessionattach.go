package lease

import (
	"cmp"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// openBytes bounds the first message of a stream; the service takes 1 MiB. fieldBytes is what a hold in it takes around itself at most.
const (
	openBytes  = 1_000_000
	fieldBytes = 4
)

// attaching is a lease that the present stream was asked at an instant to take in.
type attaching struct {
	key  leaseKey
	sent core.Instant
}

// opening makes the first message of a stream, with as many of the leases to take along as it has room for, those that end first. The others follow
// once the stream is open.
func (s *Session) opening() *leasev1.SessionRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id++
	open := proto.CloneOf(s.open)
	open.Batches = true
	bytes := open.SizeVT()
	for _, key := range s.byEnd() {
		attach := &leasev1.SessionAttach{Name: key.name, Token: key.token}
		bytes += attach.SizeVT() + fieldBytes
		k := s.leases[key]
		k.since, k.opened = notCovered, bytes <= openBytes
		if k.opened {
			open.Attach = append(open.Attach, attach)
		} else {
			s.unattached = append(s.unattached, key)
		}
	}
	return &leasev1.SessionRequest{Id: s.id, Message: &leasev1.SessionRequest_Open{Open: open}}
}

// byEnd returns the leases, the one that ends first before the others. The lock is held.
func (s *Session) byEnd() []leaseKey {
	type ending struct {
		key   leaseKey
		until int64
	}
	ends := make([]ending, 0, len(s.leases))
	for key, k := range s.leases {
		ends = append(ends, ending{key, k.lease.until.Load()})
	}
	slices.SortFunc(ends, func(a, b ending) int { return cmp.Compare(a.until, b.until) })
	keys := make([]leaseKey, len(ends))
	for i, e := range ends {
		keys[i] = e.key
	}
	return keys
}

// attachNext asks for the next of the leases that the stream is to take in, for as many as one message has room for. Those that are over meanwhile
// are left out: whoever ended them told the service. The lock is held.
func (s *Session) attachNext() (requests []*leasev1.SessionRequest) {
	at, bytes := now(), 0
	for i, key := range s.unattached {
		if s.leases[key] == nil {
			continue
		}
		r := &leasev1.SessionRequest{Id: s.id + 1, Message: &leasev1.SessionRequest_Attach{
			Attach: &leasev1.SessionAttach{Name: key.name, Token: key.token},
		}}
		if bytes += r.SizeVT(); bytes > batchBytes {
			s.unattached = s.unattached[i:]
			return requests
		}
		s.id++
		s.attaching[s.id] = attaching{key, at}
		requests = append(requests, r)
	}
	s.unattached = nil
	return requests
}

// taken takes note that the stream, which was opened at an instant, has taken a lease in. The lock is held.
func (s *Session) taken(opening core.Instant, id uint64, m *leasev1.SessionAttached) {
	from := opening
	if asked, ok := s.attaching[id]; ok {
		from = asked.sent
		delete(s.attaching, id)
	}
	s.attached(from, leaseKey{m.GetName(), m.GetToken()}, m.GetExpiresIn().AsDuration())
}

// refused takes note of a request that failed. A lease that is not taken in is lost only if the service says that it is over; what may be taken in
// another time is asked for again, until its time is over. The lock is held.
func (s *Session) refused(r *leasev1.SessionResponse) {
	asked, ok := s.attaching[r.GetId()]
	if !ok {
		s.answered(r)
		return
	}
	delete(s.attaching, r.GetId())
	switch codes.Code(r.GetRefused().GetCode()) {
	case codes.NotFound:
		s.lose(asked.key, ErrNotHeld)
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unimplemented: // asking again would not help; the lease ends by itself
	default:
		s.putOff(asked.key)
	}
}

// putOff has a lease asked for again after a pause, which grows each time that some have to be on one stream. None is longer than between heartbeats,
// so that a lease is asked for several times while it lives. The lock is held.
func (s *Session) putOff(key leaseKey) {
	if len(s.deferred) == 0 {
		s.attachPause = min(max(2*s.attachPause, retryFirst), retryMost, s.interval)
		s.attachAt = now().Add(jittered(s.attachPause))
	}
	s.deferred = append(s.deferred, key)
}

// attachAgain asks again for the leases that could not be taken in, if their pause is over at an instant. The lock is held.
func (s *Session) attachAgain(at core.Instant) {
	if len(s.deferred) > 0 && at >= s.attachAt {
		s.unattached = append(s.unattached, s.deferred...)
		s.deferred = nil
		s.wakeWrite()
	}
}

// giveBackUnattached releases the leases that the stream has not taken in, whether it is yet to be asked for them, was asked or has refused. Those that
// it was opened with the service releases when it is closed. The lock is held.
func (s *Session) giveBackUnattached() {
	for key, k := range s.leases {
		if k.since == notCovered && !k.opened {
			s.say(releaseOf(key))
		}
	}
	s.unattached, s.deferred = nil, nil
}
