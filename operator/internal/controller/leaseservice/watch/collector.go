package watch

import (
	"context"
	"fmt"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Options tune a Collector. The zero value is good.
type Options struct {
	// Dial connects to a pod. Nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Clock tells the time. Nil: the real one.
	Clock clock.WithDelayedExecution
	// Log takes what ends a stream, at debug level. The zero value drops it.
	Log logr.Logger
	// Grace is how long a pod that says nothing yet, or no more, is waited for before it is Lost. Zero: 3 s.
	Grace time.Duration
	// CountInterval is the least time between two publications in which only numbers differ. Zero: 5 s.
	CountInterval time.Duration
	// MinRetry and MaxRetry bound the wait between two attempts to connect or to open a stream. They are short,
	// since a pod may be elected the moment it starts to serve. Zero: 50 ms and 500 ms.
	MinRetry, MaxRetry time.Duration
	// Answer is how long a stream's first message may take, connecting included. Zero: 3 s.
	Answer time.Duration
	// KeepaliveTime is how long a connection may be silent before it is probed, and KeepaliveTimeout how long the
	// answer may take. Zero: 10 s, which is the least that gRPC allows, and 3 s.
	KeepaliveTime, KeepaliveTimeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.Grace, 3 * time.Second},
		{&o.CountInterval, 5 * time.Second},
		{&o.MinRetry, 50 * time.Millisecond},
		{&o.MaxRetry, 500 * time.Millisecond},
		{&o.Answer, 3 * time.Second},
		{&o.KeepaliveTime, 10 * time.Second},
		{&o.KeepaliveTimeout, 3 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return o
}

// Collector listens to the pods that it was told of. It is safe for concurrent use.
type Collector struct {
	options Options
	// spawn runs a function until the function it returns is called, or until the Collector is closed: what
	// listens outlives the pass that asked for it, and so cannot have that pass's context.
	spawn   func(run func(context.Context)) (stop context.CancelFunc)
	cancel  context.CancelFunc
	running *sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	objects map[types.NamespacedName]*object
	notify  func(types.NamespacedName)
}

// object is one LeaseService's share of the collector. Everything in it is guarded by the collector's mutex.
type object struct {
	uid       types.UID
	board     *board
	listeners map[types.UID]listener
	timer     clock.Timer
}

type listener struct {
	target Target
	stop   context.CancelFunc
}

// New makes a Collector, which listens to nobody yet. Close it to release what it holds.
func New(options Options) *Collector {
	ctx, cancel := context.WithCancel(context.Background())
	running := &sync.WaitGroup{}
	return &Collector{
		options: options.withDefaults(),
		spawn: func(run func(context.Context)) context.CancelFunc {
			ctx, stop := context.WithCancel(ctx)
			running.Go(func() { run(ctx) })
			return stop
		},
		cancel:  cancel,
		running: running,
		objects: map[types.NamespacedName]*object{},
		notify:  func(types.NamespacedName) {},
	}
}

// Source wakes a controller: it asks for a pass over an object whenever Observe would return something else than
// before. It feeds the work queue itself and has no channel of events in between, which could fill up: the queue
// holds one request an object, however often it is asked for. It is for one controller.
func (c *Collector) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.notify = func(key types.NamespacedName) { queue.Add(ctrl.Request{NamespacedName: key}) }
		return nil
	})
}

// Observe says to which pods of an object to listen, and returns what was published of them, by pod name. It does
// not wait: a new pod's report is Pending. Pods that are not named any more are forgotten, and so is everything of
// an object of the same name and another UID. After Close it listens to nobody and returns nothing.
func (c *Collector) Observe(key types.NamespacedName, uid types.UID, targets []Target) map[string]Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	obj, ok := c.objects[key]
	if !ok || obj.uid != uid {
		c.forgetLocked(key)
		obj = &object{uid: uid, board: newBoard(c.options.Grace, c.options.CountInterval), listeners: map[types.UID]listener{}}
		c.objects[key] = obj
	}
	wanted := make(map[types.UID]Target, len(targets))
	for _, target := range targets {
		wanted[target.UID] = target
	}
	for id, l := range obj.listeners {
		if wanted[id] != l.target { // gone, or at another address since its sandbox was made anew
			l.stop()
			delete(obj.listeners, id)
			obj.board.remove(id)
		}
	}
	for id, target := range wanted {
		if _, ok := obj.listeners[id]; !ok {
			obj.listeners[id] = c.listenLocked(key, uid, target)
			obj.board.add(target, c.options.Clock.Now())
		}
	}
	c.publishLocked(key, obj) // the caller sees the result; it needs no waking
	return maps.Clone(obj.board.published)
}

// Forget stops listening to the pods of an object that is gone. Another object of the same name is left alone.
func (c *Collector) Forget(key types.NamespacedName, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if obj, ok := c.objects[key]; ok && obj.uid == uid {
		c.forgetLocked(key)
	}
}

// Close stops listening and waits until every connection is closed, or until ctx ends. It may be called again.
func (c *Collector) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	for key := range c.objects {
		c.forgetLocked(key)
	}
	c.mu.Unlock()
	c.cancel()
	done := make(chan struct{})
	go func() {
		c.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("closing the connections to lease service pods: %w", ctx.Err())
	}
}

func (c *Collector) forgetLocked(key types.NamespacedName) {
	obj, ok := c.objects[key]
	if !ok {
		return
	}
	if obj.timer != nil {
		obj.timer.Stop()
	}
	for _, l := range obj.listeners {
		l.stop()
	}
	delete(c.objects, key)
}

// publishLocked publishes what is due and arranges to be called again when more will be.
func (c *Collector) publishLocked(key types.NamespacedName, obj *object) (changed bool) {
	now := c.options.Clock.Now()
	changed, wake := obj.board.publish(now)
	if obj.timer != nil {
		obj.timer.Stop()
		obj.timer = nil
	}
	if !wake.IsZero() {
		obj.timer = c.options.Clock.AfterFunc(wake.Sub(now), func() { c.update(key, obj.uid, func(*board, time.Time) {}) })
	}
	return changed
}

// update changes the board of an object that is still listened to, and wakes the controller when that shows.
func (c *Collector) update(key types.NamespacedName, uid types.UID, change func(*board, time.Time)) {
	c.mu.Lock()
	obj, ok := c.objects[key]
	if !ok || obj.uid != uid {
		c.mu.Unlock()
		return
	}
	change(obj.board, c.options.Clock.Now())
	changed, notify := c.publishLocked(key, obj), c.notify
	c.mu.Unlock()
	if changed {
		notify(key)
	}
}

func (c *Collector) listenLocked(key types.NamespacedName, uid types.UID, target Target) listener {
	l := &listening{
		target:  target,
		options: c.options,
		hear: func(report Report) {
			c.update(key, uid, func(b *board, now time.Time) { b.hear(target.UID, report, now) })
		},
		lose: func(problem string) {
			c.update(key, uid, func(b *board, now time.Time) { b.lose(target.UID, problem, now) })
		},
	}
	return listener{target: target, stop: c.spawn(l.run)}
}
