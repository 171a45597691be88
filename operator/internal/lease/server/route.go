package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
	"github.com/holdfast-io/holdfast/operator/lease/leasewire"
)

// routeRetry is how often a call that found no owner looks again even if nothing was heard.
const routeRetry = 50 * time.Millisecond

// peers keeps one connection to each other replica.
type peers struct {
	dial []grpc.DialOption
	mu   sync.Mutex
	open map[string]*grpc.ClientConn
}

func newPeers(dial []grpc.DialOption) *peers {
	options := append(leasewire.DialOptions(),
		// A replica that restarted must be found again at once.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
	)
	return &peers{dial: append(options, dial...), open: map[string]*grpc.ClientConn{}}
}

func (p *peers) conn(address string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if conn := p.open[address]; conn != nil {
		return conn, nil
	}
	conn, err := grpc.NewClient(address, p.dial...)
	if err != nil {
		return nil, fmt.Errorf("reach the replica at %q: %w", address, err)
	}
	p.open[address] = conn
	return conn, nil
}

// keep closes the connections to replicas that are gone.
func (p *peers) keep(addresses map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, conn := range p.open {
		if !addresses[address] {
			delete(p.open, address)
			_ = conn.Close() // it is only ever closed here, so that cannot fail
		}
	}
}

// owner returns where a shard is served, if that is another replica.
func (s *Server) owner(shard int) (string, bool) {
	member, ok := s.engine.Cluster().Owner(shard)
	if !ok || member.Session == s.engine.Session() {
		return "", false
	}
	return member.Address, true
}

func (s *Server) ownerOf(shard int) map[string]string {
	if address, ok := s.owner(shard); ok {
		return map[string]string{"owner": address}
	}
	return nil
}

func forwardContext(ctx context.Context, c caller) context.Context {
	return metadata.AppendToOutgoingContext(ctx, forwardedKey, "1", callerKey, c.from(), identityKey, c.identity)
}

// at makes a call where its name is served: here, or at the owner, and again while the name changes its
// owner. Both functions must be safe to repeat.
func at[T any](ctx context.Context, s *Server, c caller, name string,
	local func(context.Context) (T, error), remote func(context.Context, leasev1.LeaseServiceClient) (T, error),
) (T, error) {
	return onConn(ctx, s, c, name, local, func(ctx context.Context, conn *grpc.ClientConn) (T, error) {
		return remote(ctx, leasev1.NewLeaseServiceClient(conn))
	})
}

// onConn is at for calls of any service.
func onConn[T any](ctx context.Context, s *Server, c caller, name string,
	local func(context.Context) (T, error), remote func(context.Context, *grpc.ClientConn) (T, error),
) (T, error) {
	var zero T
	changed := s.engine.Changed()
	got, err := once(ctx, s, c, name, local, remote)
	if err == nil || c.forwarded || !elsewhere(err) {
		return got, err
	}
	patience := time.NewTimer(s.opts.Patience)
	defer patience.Stop()
	for {
		select {
		case <-changed:
		case <-time.After(routeRetry):
		case <-patience.C:
			return zero, &noOwnerError{name: name}
		case <-ctx.Done():
			return zero, ctx.Err()
		}
		changed = s.engine.Changed()
		if got, err = once(ctx, s, c, name, local, remote); err == nil || !elsewhere(err) {
			return got, err
		}
	}
}

func once[T any](ctx context.Context, s *Server, c caller, name string,
	local func(context.Context) (T, error), remote func(context.Context, *grpc.ClientConn) (T, error),
) (T, error) {
	var zero T
	var moved *engine.NotOwnerError
	if got, err := local(ctx); c.forwarded || !errors.As(err, &moved) {
		return got, err
	}
	shards := s.engine.Shards()
	if shards == 0 {
		return zero, engine.ErrUncertain
	}
	shard := core.ShardOf(name, shards)
	address, ok := s.owner(shard)
	if !ok {
		return zero, &engine.NotOwnerError{Shard: shard}
	}
	conn, err := s.peers.conn(address)
	if err != nil {
		return zero, err
	}
	s.metrics.forwarded.Inc()
	// The header is a hint; whether it could be set does not matter to the call.
	_ = grpc.SetHeader(ctx, metadata.Pairs(ownerKey, address))
	got, err := remote(forwardContext(ctx, c), conn)
	return got, orGone(ctx, err, shard)
}

// orGone tells of an owner that is gone when a call was under way to it: its connection was closed here then, which looks as if
// the caller had cancelled the call. It can be repeated at the next owner.
func orGone(ctx context.Context, err error, shard int) error {
	if ctx.Err() == nil && status.Code(err) == codes.Canceled {
		return &engine.NotOwnerError{Shard: shard}
	}
	return err
}
