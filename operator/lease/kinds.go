package lease

import (
	"context"
	"slices"
)

// Acquirer acquires leases: a Client, whose leases are renewed one by one, or a Session, which keeps them together.
type Acquirer interface {
	Acquire(ctx context.Context, name string, options ...Option) (*Lease, error)
	TryAcquire(ctx context.Context, name string, options ...Option) (*Lease, error)
}

// Semaphore is a name of which a number of permits may be held at a time. It holds nothing itself, and may be used
// concurrently.
type Semaphore struct {
	from    Acquirer
	name    string
	total   int32
	options []Option
}

// NewSemaphore returns the semaphore of a name with so many permits in all. All who use the name at one time must agree on the
// total: Acquire fails otherwise. The options apply to all its leases.
func NewSemaphore(from Acquirer, name string, total int32, options ...Option) *Semaphore {
	return &Semaphore{from: from, name: name, total: total, options: options}
}

// Acquire waits in line until n permits are free, and takes them together. Those that ask for few do not overtake those that ask for
// many and came before. Release gives all n back. It fails at once if n is not in 1 to the total.
func (s *Semaphore) Acquire(ctx context.Context, n int32) (*Lease, error) {
	return s.from.Acquire(ctx, s.name, s.with(n)...)
}

// TryAcquire is Acquire without waiting: it fails with *HeldError if fewer than n permits are free.
func (s *Semaphore) TryAcquire(ctx context.Context, n int32) (*Lease, error) {
	return s.from.TryAcquire(ctx, s.name, s.with(n)...)
}

// with takes Permits for none as a mistake and not, as the service does, as a request for one.
func (s *Semaphore) with(n int32) []Option {
	if n == 0 {
		n = -1
	}
	return append(slices.Clone(s.options), Permits(n, s.total))
}

// RWLease is a name that either any number of readers share or one writer holds. It holds nothing itself, and may be used
// concurrently.
type RWLease struct {
	from    Acquirer
	name    string
	options []Option
}

// NewRWLease returns the lease of a name. The options apply to all its leases.
func NewRWLease(from Acquirer, name string, options ...Option) *RWLease {
	return &RWLease{from: from, name: name, options: options}
}

// Read waits in line until nobody writes. Readers do not overtake a writer that came before them, so that it is not kept waiting
// for ever.
func (rw *RWLease) Read(ctx context.Context) (*Lease, error) {
	return rw.from.Acquire(ctx, rw.name, append(slices.Clone(rw.options), Shared())...)
}

// TryRead is Read without waiting: it fails with *HeldError if somebody writes or waits to.
func (rw *RWLease) TryRead(ctx context.Context) (*Lease, error) {
	return rw.from.TryAcquire(ctx, rw.name, append(slices.Clone(rw.options), Shared())...)
}

// Write waits in line until nobody reads or writes.
func (rw *RWLease) Write(ctx context.Context) (*Lease, error) {
	return rw.from.Acquire(ctx, rw.name, rw.options...)
}

// TryWrite is Write without waiting: it fails with *HeldError if somebody reads or writes.
func (rw *RWLease) TryWrite(ctx context.Context) (*Lease, error) {
	return rw.from.TryAcquire(ctx, rw.name, rw.options...)
}
