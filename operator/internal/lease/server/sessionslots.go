package server

import (
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// slotPatience is how long the stream is not read because too many calls are under way. Heartbeats may come next, so when none of the calls
// ends in that time, as when nobody serves their names, more calls are refused until one does.
const slotPatience = 500 * time.Millisecond

// slots bounds the calls of one kind that are under way. Only the goroutine that receives takes them.
type slots struct {
	taken chan struct{}
	// left counts those that were left, and stuck is what it was when one was waited for in vain.
	left  atomic.Int64
	stuck int64
}

func newSlots(n int) *slots { return &slots{taken: make(chan struct{}, n), stuck: -1} }

func (s *slots) leave() {
	<-s.taken
	s.left.Add(1)
}

// enter takes a slot for a call, and refuses the call if there is none. It returns false if the call is not to be made.
func (ss *sessionStream) enter(s *slots, id uint64) bool {
	err := ss.take(s)
	if err != nil {
		ss.refuse(id, err)
	}
	return err == nil
}

// take takes a slot, waiting for one if need be. What was gathered is let go meanwhile: the answers in it may be what keeps the slots.
func (ss *sessionStream) take(s *slots) error {
	select {
	case s.taken <- struct{}{}:
		ss.wait.Add(1)
		return nil
	default:
	}
	if s.stuck == s.left.Load() && !ss.closing {
		return s.full()
	}
	ss.out.cork(false)
	defer ss.out.cork(true)
	var late <-chan time.Time
	if !ss.closing { // nothing else has to be read then
		timer := time.NewTimer(slotPatience)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case s.taken <- struct{}{}:
	case <-late:
		s.stuck = s.left.Load()
		return s.full()
	case <-ss.ctx.Done():
		return ss.ctx.Err()
	}
	ss.came = ss.server.opts.Clock()
	ss.wait.Add(1)
	return nil
}

func (s *slots) full() error {
	return tooMany(fmt.Errorf("%d calls of this session are under way already, and none of them ends; at most as many are allowed", cap(s.taken)))
}

// tooMany refuses what goes once some of what the session has under way ends.
func tooMany(err error) error {
	return rich(codes.Unavailable, leasev1.ErrorReason_ERROR_REASON_NO_OWNER, err, nil, retryInfo(retrySoon))
}

// call runs a function aside.
func (ss *sessionStream) call(s *slots, id uint64, do func()) {
	if ss.enter(s, id) {
		ss.goOn(s, do)
	}
}

// goOn runs a function aside that a slot was taken for.
func (ss *sessionStream) goOn(s *slots, do func()) {
	go func() {
		defer ss.wait.Done()
		defer s.leave()
		do()
	}()
}
