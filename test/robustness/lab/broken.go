package lab

import (
	"context"
	"fmt"
	"sync"
)

// broken remembers why a cluster is no use any more: what is found out from then on says nothing about the service. So tests end then, in
// place of waiting for what cannot come.
type broken struct {
	mu       sync.Mutex
	expected bool
	cause    error
	done     chan struct{}
}

// fail says why the cluster is broken. Only the first reason counts.
func (b *broken) fail(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause == nil && !b.expected {
		b.cause = fmt.Errorf("the cluster of the test is broken: %w", cause)
		close(b.done)
	}
}

// expect makes everything that breaks from now on no failure.
func (b *broken) expect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = true
}

// Err returns why the cluster is no use any more; nil: it is.
func (b *broken) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cause
}

// While returns a context that ends with another one, or when the cluster breaks.
func (b *broken) While(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-b.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
