// Package lease is the Go client of the Holdfast lease service.
//
//	client, err := lease.Dial("locks:7400", grpc.WithTransportCredentials(creds))
//	held, err := client.Acquire(ctx, "jobs/nightly")
//	defer held.Release(context.Background())
//	run(held.Context(), held.Token())
//
// # What is guaranteed
//
// While a Lease is not Done, the service has granted the name to nobody who would conflict, and will not before the
// lease's deadline passes. The client counts the TTL from the moment it sent its last successful call, on a
// clock that never steps, and leaves a tenth of it for clocks that run at different rates. It learns of a loss by itself,
// without the service: when the deadline passes with no renewal, Done is closed and the Context cancelled. Only when somebody else
// ends it by force (a revocation, or a transfer of its leadership) it hears of that at its next renewal, within a third of the TTL; in a
// session at once.
//
// A lease survives the death and the restart of any replica of the service, with the same token.
//
// # What is not guaranteed
//
// A process that is stopped or swapped out, or whose write is under way in the network, does not notice that its
// deadline has passed. No lock service can prevent that. Where it matters, send Token along with every access, and
// let what is guarded refuse tokens that are smaller than the largest it has seen.
//
// The order of waiters is that in which their waits began, as far as the replica that serves the name knows of them. When another replica
// takes the name over, a lease that becomes free before they are all back goes to the first that is.
package lease

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
	"github.com/holdfast-io/holdfast/operator/lease/leasewire"
)

const (
	retryFirst = 50 * time.Millisecond
	retryMost  = 2 * time.Second
)

// Client acquires leases. It is safe for concurrent use. Make it with Dial or New.
type Client struct {
	service   leasev1.LeaseServiceClient
	elections leasev1.ElectionServiceClient
	router    *router // nil if the connection is not ours
	// ctx ends with Close, and with it all leases and sessions.
	ctx    context.Context //nolint:containedctx // see above
	cancel context.CancelCauseFunc
}

// Dial makes a client of the service at an address, host:port. It needs transport credentials among the options, as
// grpc.NewClient does, and connects when it is first used.
//
// If several replicas serve, the client asks each one directly about the names it serves, and opens its sessions at a
// random one. It learns their addresses from the service. It uses one only while a connection to it is up and it has
// proved to be the replica that is meant; everything else goes to the given address, where any replica can answer. So the
// given address may be that of a load balancer or of a port-forward, and the others need not be reachable. With TLS the
// replicas must have certificates for the given address too. A client that shall connect to nothing but the given address
// is made with New.
func Dial(address string, options ...grpc.DialOption) (*Client, error) {
	router, err := newRouter(address, options)
	if err != nil {
		return nil, fmt.Errorf("lease service at %q: %w", address, err)
	}
	client := New(router)
	client.router = router
	return client, nil
}

// DialOptions are what Dial adds for the sake of leases, for those who make the connection themselves: a dead connection
// is noticed within seconds, and a service that is back is found within a second. gRPC's own back-off of up to two
// minutes would outlast most TTLs. The options of package leasewire are among them.
func DialOptions() []grpc.DialOption {
	return append(leasewire.DialOptions(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.3, MaxDelay: time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
	)
}

// New makes a client on a connection, which stays the caller's to close, and uses no other. See DialOptions.
func New(conn grpc.ClientConnInterface) *Client {
	c := &Client{service: leasev1.NewLeaseServiceClient(conn), elections: leasev1.NewElectionServiceClient(conn)}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// Close gives up all leases and sessions without telling the service, where they expire after their TTLs, and closes the connections
// that Dial made. Release what shall be free at once before.
func (c *Client) Close() error {
	c.cancel(ErrClientClosed)
	if c.router == nil {
		return nil
	}
	if err := c.router.close(); err != nil {
		return fmt.Errorf("close the connection to the lease service: %w", err)
	}
	return nil
}

// sessionAt says where to open a session: at a random replica, so that sessions spread; nil: at the given address.
func (c *Client) sessionAt() (leasev1.LeaseServiceClient, *replica) {
	if c.router == nil {
		return c.service, nil
	}
	c.router.start()
	if p := c.router.pick(); p != nil {
		return leasev1.NewLeaseServiceClient(p.conn), p
	}
	return leasev1.NewLeaseServiceClient(c.router.given), nil
}

// Service returns the plain gRPC client, for what this package does not wrap.
func (c *Client) Service() leasev1.LeaseServiceClient { return c.service }

// Option changes what is acquired.
type Option func(*leasev1.AcquireRequest)

// WithTTL sets how long the lease lives without a renewal. Without it the service's default applies.
func WithTTL(ttl time.Duration) Option {
	return func(r *leasev1.AcquireRequest) { r.Ttl = durationpb.New(ttl) }
}

// WithHolder sets the name that others are shown.
func WithHolder(holder string) Option {
	return func(r *leasev1.AcquireRequest) { r.Holder = holder }
}

// WithMetadata sets what others are shown along with the holder.
func WithMetadata(metadata map[string]string) Option {
	return func(r *leasev1.AcquireRequest) { r.Metadata = metadata }
}

// WithValue sets the value that others are shown: what the leader of an election proclaims.
func WithValue(value []byte) Option {
	return func(r *leasev1.AcquireRequest) { r.Value = value }
}

// Shared acquires a lease that any number may hold together, and nobody exclusively at the same time.
func Shared() Option {
	return func(r *leasev1.AcquireRequest) { r.Mode = leasev1.LeaseMode_LEASE_MODE_SHARED }
}

// Permits acquires n of the total permits of a name. All who use the name at one time must agree on the total.
func Permits(n, total int32) Option {
	return func(r *leasev1.AcquireRequest) {
		r.Mode, r.Permits, r.PermitsTotal = leasev1.LeaseMode_LEASE_MODE_PERMITS, n, total
	}
}

// WithWaitTimeout bounds how long Acquire waits in line. After that it fails with a *HeldError that says so. TryAcquire does
// not wait in any case.
func WithWaitTimeout(timeout time.Duration) Option {
	return func(r *leasev1.AcquireRequest) {
		if r.GetWait() != nil {
			r.Wait.Timeout = durationpb.New(timeout)
		}
	}
}

// Acquire waits in line for a lease until it is granted or the context ends, and keeps it until it is released or
// lost. The context only bounds the waiting.
//
// While the service cannot be reached, Acquire goes on trying. If the context ends at a moment when the
// grant was on its way, the service takes it back; if it cannot know, the lease expires after its TTL.
func (c *Client) Acquire(ctx context.Context, name string, options ...Option) (*Lease, error) {
	return c.acquire(ctx, name, &leasev1.Wait{}, options)
}

// TryAcquire is Acquire without waiting: it fails with *HeldError if the lease is not free.
func (c *Client) TryAcquire(ctx context.Context, name string, options ...Option) (*Lease, error) {
	return c.acquire(ctx, name, nil, options)
}

func (c *Client) acquire(ctx context.Context, name string, wait *leasev1.Wait, options []Option) (*Lease, error) {
	req := &leasev1.AcquireRequest{Name: name, RequestId: NewRequestID(), Wait: wait}
	for _, option := range options {
		option(req)
	}
	began := now()
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		sent := now()
		keepPlace(req, began)
		granted, err := c.service.Acquire(ctx, req)
		if err == nil {
			return c.start(ctx, c.unary(newLease(c.ctx, granted, sent)))
		}
		if requestEnded(err) {
			req.RequestId = NewRequestID()
		} else if status.Code(err) != codes.Unavailable {
			return nil, Typed(name, err)
		}
		if !sleep(ctx, jittered(pause)) {
			return nil, Typed(name, err)
		}
	}
}

// keepPlace lets a request that waits and is made again say since when.
func keepPlace(req *leasev1.AcquireRequest, began core.Instant) {
	if waited := now().Sub(began); req.GetWait() != nil && waited > retryFirst {
		req.Wait.Waited = durationpb.New(waited)
	}
}

// unary lets a lease be renewed and given back by calls of its own.
func (c *Client) unary(l *Lease) *Lease {
	l.renewOnce = func(ctx context.Context) error {
		sent := now()
		kept, err := c.service.KeepAlive(ctx, &leasev1.KeepAliveRequest{Name: l.name, Token: l.token})
		if err != nil {
			return Typed(l.name, err)
		}
		l.extend(sent, kept.GetExpiresIn().AsDuration())
		l.wanted(kept.GetRevocation())
		return nil
	}
	l.giveBack = func(ctx context.Context) error {
		_, err := c.service.Release(ctx, &leasev1.ReleaseRequest{Name: l.name, Token: l.token})
		return err
	}
	return l
}

// start hands a granted lease over to its holder, once it is certain for a good while.
func (c *Client) start(ctx context.Context, l *Lease) (*Lease, error) {
	if err := l.confirm(ctx); err != nil {
		giveBack, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryMost)
		defer cancel()
		return nil, errors.Join(err, l.Release(giveBack))
	}
	go l.keep()
	return l, nil
}

// NewRequestID returns a random request id, for those who make the gRPC calls themselves.
func NewRequestID() string {
	var id [15]byte
	rand.Read(id[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(id[:])
}
