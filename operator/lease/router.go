package lease

import (
	"context"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

const (
	// replicaKey is where a call says which replica it is for.
	replicaKey = "holdfast-replica"
	// ownerKey is where an answer says which replica might have been asked directly.
	ownerKey = "holdfast-owner"
	// proofTimeout bounds how long a replica may take to prove that it is the one that was meant.
	proofTimeout = 5 * time.Second
	// doubtMost is how long a replica that failed to prove that is left alone at most.
	doubtMost = 30 * time.Second
	// dialSpread is over how long the clients of a service spread their connections to a new replica.
	dialSpread = 500 * time.Millisecond
)

// router is a connection to a whole service. It takes each call that can be repeated to the replica that serves its
// name, and everything else, and whatever fails on that way, to the given address.
//
// The given address always works if anything does; the addresses in the shard map may mean nothing where we are (behind a
// port-forward), or even another service. So a replica is asked only while a connection to it is up, once it has proved to
// be the one that the map means, and each call says which one it is for.
type router struct {
	given  *grpc.ClientConn
	dial   func(address string) (*grpc.ClientConn, error)
	ctx    context.Context //nolint:containedctx // ends with close
	cancel context.CancelFunc
	begin  sync.Once
	wait   sync.WaitGroup

	mu       sync.RWMutex
	owners   []*replica // one entry a shard; nil: not known
	replicas map[replicaID]*replica
}

type replicaID struct {
	address string
	session int64
}

// replica is one that the map names.
type replica struct {
	replicaID

	conn     *grpc.ClientConn
	ctx      context.Context //nolint:containedctx // ends when the map does not name it any more
	cancel   context.CancelFunc
	draining atomic.Bool
	// usable says that the connection is up and that the replica has proved to be the one that is meant.
	usable atomic.Bool
	// doubt makes it prove that anew.
	doubt atomic.Pointer[context.CancelFunc]
}

// newRouter makes a router that connects when it is first used.
func newRouter(target string, options []grpc.DialOption) (*router, error) {
	given, err := grpc.NewClient(target, append(DialOptions(), options...)...)
	if err != nil {
		return nil, err
	}
	patient := grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.3, MaxDelay: doubtMost},
		MinConnectTimeout: 3 * time.Second,
	})
	direct := slices.Concat(DialOptions(), []grpc.DialOption{patient}, options)
	r := &router{given: given, replicas: map[replicaID]*replica{}}
	r.dial = func(address string) (*grpc.ClientConn, error) {
		// A replica's certificate must be for the service that the caller named, whatever its own address is.
		named := slices.Concat([]grpc.DialOption{grpc.WithAuthority(authority(target))}, direct)
		conn, err := grpc.NewClient("passthrough:///"+address, named...)
		if err != nil { // the caller's credentials name another one already
			return grpc.NewClient("passthrough:///"+address, direct...)
		}
		return conn, nil
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if scheme, _, ok := strings.Cut(given.CanonicalTarget(), ":"); !ok || (scheme != "dns" && scheme != "passthrough") {
		r.begin.Do(func() {}) // the address is no network address, so that those of the map are not for us
	}
	return r, nil
}

// authority is what gRPC takes for the name of the server at a target.
func authority(target string) string {
	if u, err := url.Parse(target); err == nil && u.Scheme != "" && u.Path != "" {
		return strings.TrimPrefix(u.Path, "/")
	}
	return target
}

func (r *router) close() error {
	r.begin.Do(func() {}) // nothing begins any more
	r.cancel()
	r.mu.Lock()
	for id := range r.replicas {
		r.drop(id)
	}
	r.owners = nil
	r.mu.Unlock()
	err := r.given.Close()
	r.wait.Wait()
	return err
}

// Invoke implements grpc.ClientConnInterface.
func (r *router) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	r.start()
	if p := r.ownerOf(args); p != nil {
		var header metadata.MD
		err := p.conn.Invoke(p.addressed(ctx), method, args, reply, append(slices.Clip(opts), grpc.Header(&header))...)
		r.learn(args, header, err)
		if err == nil || ctx.Err() != nil || !notServed(err) {
			return err
		}
		p.suspect()
	}
	p := r.any()
	if p == nil {
		return r.given.Invoke(ctx, method, args, reply, opts...)
	}
	return p.conn.Invoke(p.addressed(ctx), method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (r *router) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	r.start()
	if p := r.any(); p != nil {
		return p.conn.NewStream(p.addressed(ctx), desc, method, opts...)
	}
	return r.given.NewStream(ctx, desc, method, opts...)
}

// named returns the name of a request that any number of its repetitions leave with the same effect.
func named(args any) (string, bool) {
	switch req := args.(type) {
	case *leasev1.AcquireRequest:
		return req.GetName(), req.GetRequestId() != ""
	case *leasev1.CampaignRequest:
		return req.GetName(), req.GetRequestId() != ""
	case *leasev1.RevokeRequest:
		return req.GetName(), req.GetToken() != 0 // of whoever holds it, a repetition may hit another holder
	case *leasev1.TransferRequest:
		return "", false // a repetition fails, and would look as if the transfer had
	case interface{ GetName() string }:
		return req.GetName(), true
	}
	return "", false
}

// notServed says whether an error means that the replica does not serve the call, or cannot be reached.
func notServed(err error) bool {
	switch status.Code(err) {
	case codes.Canceled: // the caller's context goes on: the connection was closed since the replica is gone
		return true
	case codes.Unavailable:
		return reason(err) != "STORE_UNAVAILABLE"
	default:
		return false
	}
}

// ownerOf returns the replica to ask directly about a request; nil: none.
func (r *router) ownerOf(args any) *replica {
	name, ok := named(args)
	if !ok {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(r.owners) == 0 {
		return nil
	}
	if p := r.owners[core.ShardOf(name, len(r.owners))]; p != nil && p.usable.Load() {
		return p
	}
	return nil
}

// learn takes note of what an answer says about the owner of a name.
func (r *router) learn(args any, header metadata.MD, err error) {
	address := ""
	if hint := header.Get(ownerKey); len(hint) > 0 {
		address = hint[0]
	} else if err != nil {
		address = errorInfo(err).GetMetadata()["owner"]
	}
	if address == "" {
		return
	}
	name, _ := named(args)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.owners) == 0 {
		return
	}
	shard := core.ShardOf(name, len(r.owners))
	r.owners[shard] = nil
	for id, p := range r.replicas {
		if id.address == address {
			r.owners[shard] = p
		}
	}
}

// any returns a replica to send to what any can answer; nil: the given address. That one comes first, unless its
// connection is down.
func (r *router) any() *replica {
	state := r.given.GetState()
	if state == connectivity.Ready {
		return nil
	}
	p := r.pick()
	if p != nil && state == connectivity.Idle {
		r.given.Connect()
	}
	return p
}

// pick returns a random replica that can be reached and is not about to stop; nil: there is none.
func (r *router) pick() *replica {
	r.mu.RLock()
	defer r.mu.RUnlock()
	usable := make([]*replica, 0, len(r.replicas))
	for _, p := range r.replicas {
		if p.usable.Load() && !p.draining.Load() {
			usable = append(usable, p)
		}
	}
	if len(usable) == 0 {
		return nil
	}
	return usable[rand.N(len(usable))]
}

// addressed makes calls say which replica they are for.
func (p *replica) addressed(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, replicaKey, strconv.FormatInt(p.session, 10))
}

// suspect stops the use of a replica until it has proved itself again.
func (p *replica) suspect() {
	p.usable.Store(false)
	if again := p.doubt.Load(); again != nil {
		(*again)()
	}
}
