package engine

import "github.com/holdfast-io/holdfast/operator/internal/lease/core"

type holdKey struct {
	name  string
	token int64
}

// Follower hears what happens to a hold without being asked for. Its function must not block.
type Follower struct {
	key  holdKey
	hear func(Notice)
	next *Follower // of the same hold
}

// Notice is what a Follower hears.
type Notice struct {
	core.Notice
	// Moved says that this replica does not serve the hold any more. It is the last notice.
	Moved bool
}

// Follow lets a function hear what happens to a hold that is served here, until Unfollow. What happened before, the hold shows as it is
// now, in one step with that: nothing is missed in between. The zero value says that it is over, whoever serves it by now, since only
// a commit takes a hold out of the shard.
func (e *Engine) Follow(name string, token int64, hear func(Notice)) (*Follower, core.HoldView, error) {
	s, err := e.at(name)
	if err != nil {
		return nil, core.HoldView{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open() {
		return nil, core.HoldView{}, &NotOwnerError{Shard: s.index}
	}
	f := &Follower{key: holdKey{name, token}, hear: hear}
	f.next = s.follow[f.key]
	s.follow[f.key] = f
	return f, s.shard.Held(e.opts.Clock(), name, token), nil
}

// Unfollow ends what Follow began.
func (e *Engine) Unfollow(f *Follower) {
	s, err := e.at(f.key.name)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.follow[f.key]
	if first == f {
		if f.next == nil {
			delete(s.follow, f.key)
		} else {
			s.follow[f.key] = f.next
		}
		return
	}
	for ; first != nil; first = first.next {
		if first.next == f {
			first.next = f.next
			return
		}
	}
}
