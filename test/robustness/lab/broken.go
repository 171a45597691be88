package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
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

// SaveLogs copies the logs of all processes to a folder, with the stacks of all goroutines of the replicas, which end by that.
func (c *Cluster) SaveLogs(ctx context.Context, dir string) error {
	for _, r := range c.Replicas {
		r.Signal(syscall.SIGQUIT)
	}
	Sleep(ctx, time.Second)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save the logs: %w", err)
	}
	logs, err := filepath.Glob(filepath.Join(c.Dir, "*.log"))
	if err != nil {
		return fmt.Errorf("save the logs: %w", err)
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			return fmt.Errorf("save the logs: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(log)), text, 0o644); err != nil {
			return fmt.Errorf("save the logs: %w", err)
		}
	}
	return nil
}
