package lease

import (
	"context"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

const (
	// nameKey and tokenKey are where a call carries the lease under which it is made.
	nameKey  = "holdfast-lease"
	tokenKey = "holdfast-token"
)

// Fenced returns a context whose gRPC calls carry the lease's name and token, for a Guard on the other side to check.
func (l *Lease) Fenced(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, nameKey, l.name, tokenKey, strconv.FormatInt(l.token, 10))
}

// Guard refuses gRPC calls that are made under a lease that is over. It protects a server that cannot
// keep the largest token it has seen in its own storage:
//
//	grpc.NewServer(grpc.UnaryInterceptor(guard.Unary("orders/writer")))
//
// It asks the service about each call, except that it refuses tokens below the largest it has let pass by itself. A call that
// passes was made under a live lease at a moment between its arrival and its handling. One that is under way when the
// lease ends goes on; where that matters, compare tokens in the storage itself.
type Guard struct {
	client *Client
	mu     sync.Mutex
	newest map[string]int64
}

// NewGuard makes a guard that asks the service of a client.
func NewGuard(client *Client) *Guard { return &Guard{client: client, newest: map[string]int64{}} }

// Check refuses a token that is not that of a live hold, with FailedPrecondition.
func (g *Guard) Check(ctx context.Context, name string, token int64) error {
	g.mu.Lock()
	newest := g.newest[name]
	g.mu.Unlock()
	if token < newest {
		return stale(name, token, newest)
	}
	got, err := g.client.service.CheckToken(ctx, &leasev1.CheckTokenRequest{Name: name, Token: token})
	if err != nil {
		return err
	}
	if got.GetVerdict() != leasev1.CheckTokenResponse_VERDICT_CURRENT {
		return stale(name, token, got.GetCurrentToken())
	}
	return nil
}

// seen remembers the token of an exclusive lease, below which none can be current any more.
func (g *Guard) seen(name string, token int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.newest[name] = max(g.newest[name], token)
}

func stale(name string, token, current int64) error {
	return status.Errorf(codes.FailedPrecondition, "lease %q: token %d is stale; the current one is %d", name, token, current)
}

// Unary returns an interceptor that lets only calls pass that were made under the exclusive lease of a name, by Lease.Fenced. Calls
// without a token are refused.
func (g *Guard) Unary(name string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		token, err := incomingToken(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := g.Check(ctx, name, token); err != nil {
			return nil, err
		}
		g.seen(name, token)
		return handler(ctx, req)
	}
}

func incomingToken(ctx context.Context, name string) (int64, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	names, tokens := md.Get(nameKey), md.Get(tokenKey)
	for i := range min(len(names), len(tokens)) {
		if names[i] != name {
			continue
		}
		token, err := strconv.ParseInt(tokens[i], 10, 64)
		if err != nil {
			return 0, status.Errorf(codes.InvalidArgument, "the token of lease %q is %q, which is no number", name, tokens[i])
		}
		return token, nil
	}
	return 0, status.Errorf(codes.FailedPrecondition, "this call must be made under lease %q", name)
}
