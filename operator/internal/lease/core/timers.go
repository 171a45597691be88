package core

import "container/heap"

// timer wakes a hold or a waiter. It may wake too early: the owner of the timer looks at its true deadline
// then. That makes a keepalive, which only ever moves a deadline further away, free of heap work.
type timer struct {
	at     Instant
	hold   *hold
	waiter *waiter
	index  int // in the heap; -1 when it is not in it
}

// timers is a heap, soonest first.
type timers []*timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

func (t *timers) Push(x any) {
	timer := x.(*timer)
	timer.index = len(*t)
	*t = append(*t, timer)
}

func (t *timers) Pop() any {
	last := len(*t) - 1
	timer := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	timer.index = -1
	return timer
}

// set arms or moves a timer.
func (t *timers) set(timer *timer, at Instant) {
	timer.at = at
	if timer.index >= 0 {
		heap.Fix(t, timer.index)
		return
	}
	heap.Push(t, timer)
}

// stop disarms a timer, armed or not.
func (t *timers) stop(timer *timer) {
	if timer.index >= 0 {
		heap.Remove(t, timer.index)
	}
}

// recentCapacity bounds how many ended requests a shard remembers.
const recentCapacity = 4096

// recent remembers the requests whose holds ended last, so that a late repetition is told so and does
// not acquire a hold that nobody wants any more.
type recent struct {
	seen map[requestKey]struct{}
	ring []requestKey
	next int
}

type requestKey struct{ name, id string }

func (r *recent) add(name, id string) {
	key := requestKey{name, id}
	if r.seen == nil {
		r.seen = map[requestKey]struct{}{}
	}
	if _, ok := r.seen[key]; ok {
		return
	}
	if len(r.ring) < recentCapacity {
		r.ring = append(r.ring, key)
	} else {
		delete(r.seen, r.ring[r.next])
		r.ring[r.next] = key
		r.next = (r.next + 1) % recentCapacity
	}
	r.seen[key] = struct{}{}
}

func (r *recent) has(name, id string) bool {
	_, ok := r.seen[requestKey{name, id}]
	return ok
}
