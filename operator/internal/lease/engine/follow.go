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

// Follow lets a function hear what happens to a hold that is served here, until Unfollow.
func (e *Engine) Follow(name string, token int64, hear func(Notice)) (*Follower, error) {
	s, err := e.at(name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open() {
		return nil, &NotOwnerError{Shard: s.index}
	}
	f := &Follower{key: holdKey{name, token}, hear: hear}
	f.next = s.follow[f.key]
	s.follow[f.key] = f
	return f, nil
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
