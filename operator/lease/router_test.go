package lease_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// cluster starts replicas that share an etcd.
func cluster(t *testing.T, names ...string) []*leasetest.Replica {
	t.Helper()
	etcd, _ := leasetest.Etcd(t)
	replicas := make([]*leasetest.Replica, len(names))
	for i, name := range names {
		opts := leasetest.Options(name)
		opts.EtcdEndpoints = []string{etcd.Endpoint()}
		replicas[i] = leasetest.Start(t, opts)
	}
	return replicas
}

// paths counts the calls of a client by the address they were sent to, and those that were passed on from there.
type paths struct {
	mu        sync.Mutex
	calls     map[string]int
	forwarded int
}

func (p *paths) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var header metadata.MD
	err := invoke(ctx, method, req, reply, cc, append(opts, grpc.Header(&header))...)
	if strings.HasSuffix(method, "/Get") {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls[strings.TrimPrefix(strings.TrimPrefix(cc.CanonicalTarget(), "passthrough:///"), "dns:///")]++
		p.forwarded += len(header.Get("holdfast-owner"))
	}
	return err
}

// round makes one call about each of many names, and says where the calls went.
func (p *paths) round(t *testing.T, client *lease.Client) (addresses []string, forwarded int) {
	t.Helper()
	p.mu.Lock()
	p.calls, p.forwarded = map[string]int{}, 0
	p.mu.Unlock()
	for i := range 40 {
		_, err := client.Service().Get(within(t, 20*time.Second), &leasev1.GetRequest{Name: fmt.Sprintf("n%d", i)})
		require.NoError(t, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.calls)), p.forwarded
}

func (p *paths) awaitDirect(t *testing.T, client *lease.Client, want []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		addresses, forwarded := p.round(t, client)
		return forwarded == 0 && slices.Equal(addresses, want)
	}, 20*time.Second, 20*time.Millisecond, "all calls go to the owners, which are %v", want)
}

func dialWith(t *testing.T, address string, options ...grpc.DialOption) *lease.Client {
	t.Helper()
	client, err := lease.Dial(address, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func TestCallsGoToTheOwners(t *testing.T) {
	replicas := cluster(t, "a", "b", "c")
	p := &paths{}
	client := dialWith(t, replicas[0].Address, grpc.WithUnaryInterceptor(p.intercept))
	p.awaitDirect(t, client, slices.Sorted(slices.Values([]string{replicas[0].Address, replicas[1].Address, replicas[2].Address})))

	// It goes on when the given address is gone, and finds the new owners.
	replicas[0].Stop(t)
	p.awaitDirect(t, client, slices.Sorted(slices.Values([]string{replicas[1].Address, replicas[2].Address})))
}

func TestCallsGoToTheOwnersWithTLS(t *testing.T) {
	etcd, _ := leasetest.Etcd(t)
	authority := leasetest.NewAuthority(t)
	files := authority.Issue(t, t.TempDir(), "leases.example")
	addresses := make([]string, 2)
	for i, name := range []string{"a", "b"} {
		opts := leasetest.Options(name)
		opts.EtcdEndpoints, opts.TLS = []string{etcd.Endpoint()}, files
		addresses[i] = leasetest.Start(t, opts).Address
	}
	p := &paths{}
	client, err := lease.Dial(addresses[0], grpc.WithUnaryInterceptor(p.intercept),
		grpc.WithTransportCredentials(leasetls.ClientCredentials(authority.Issue(t, t.TempDir(), "tenant.example"))))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	p.awaitDirect(t, client, slices.Sorted(slices.Values(addresses)))
}

// dialer stands for the network where the client is.
type dialer struct {
	mu     sync.Mutex
	reach  func(address string) (string, error)
	dialed map[string]int
	open   []net.Conn
}

func (d *dialer) dial(ctx context.Context, address string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dialed[address]++
	target, err := d.reach(address)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
	if err == nil {
		d.open = append(d.open, conn)
	}
	return conn, err
}

func (d *dialer) tried(address string, times int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dialed[address] >= times
}

// change makes addresses lead elsewhere, and breaks the connections.
func (d *dialer) change(reach func(address string) (string, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reach = reach
	for _, conn := range d.open {
		_ = conn.Close()
	}
	d.open = nil
}

// Behind a port-forward the addresses in the shard map mean nothing.
func TestUnreachableReplicasDoNoHarm(t *testing.T) {
	replicas := cluster(t, "a", "b", "c")
	given := replicas[0].Address
	d := &dialer{dialed: map[string]int{}, reach: func(address string) (string, error) {
		if address != given {
			return "", errors.New("no route")
		}
		return address, nil
	}}
	p := &paths{}
	client := dialWith(t, given, grpc.WithContextDialer(d.dial), grpc.WithUnaryInterceptor(p.intercept))
	p.round(t, client)
	require.Eventually(t, func() bool { return d.tried(replicas[1].Address, 2) && d.tried(replicas[2].Address, 2) },
		20*time.Second, 10*time.Millisecond)
	addresses, forwarded := p.round(t, client)
	require.Equal(t, []string{given}, addresses)
	require.Positive(t, forwarded)
	session, err := client.NewSession(within(t, 10*time.Second))
	require.NoError(t, err)
	_, err = session.Acquire(within(t, 10*time.Second), "n")
	require.NoError(t, err)
	require.NoError(t, session.Close(within(t, 10*time.Second)))
}

// In the client's network the addresses in the shard map may belong to another lease service, from the beginning or from
// some moment on. Nothing must ever be acquired there.
func TestAnotherServiceAtTheAddressesIsNeverUsed(t *testing.T) {
	replicas := cluster(t, "a", "b", "c")
	other := leasetest.Start(t, leasetest.Options("a"))
	given := replicas[0].Address
	right := func(address string) (string, error) { return address, nil }
	wrong := func(address string) (string, error) {
		if address != given {
			return other.Address, nil
		}
		return address, nil
	}
	acquired := 0
	acquire := func(client *lease.Client) {
		for range 30 {
			acquired++
			_, err := client.TryAcquire(within(t, 20*time.Second), fmt.Sprintf("l%d", acquired))
			require.NoError(t, err)
		}
	}
	d := &dialer{dialed: map[string]int{}, reach: wrong}
	p := &paths{}
	client := dialWith(t, given, grpc.WithContextDialer(d.dial), grpc.WithUnaryInterceptor(p.intercept))
	p.round(t, client)
	require.Eventually(t, func() bool { return d.tried(replicas[1].Address, 1) && d.tried(replicas[2].Address, 1) },
		20*time.Second, 10*time.Millisecond)
	acquire(client)
	d.change(right)
	p.awaitDirect(t, client, slices.Sorted(slices.Values([]string{given, replicas[1].Address, replicas[2].Address})))
	acquire(client)
	d.change(wrong)
	acquire(client)

	held := func(address string) int {
		got, err := leasev1.NewLeaseServiceClient(leasetest.Dial(t, address)).List(within(t, 10*time.Second), &leasev1.ListRequest{PageSize: 1000})
		require.NoError(t, err)
		return len(got.GetLeases())
	}
	require.Zero(t, held(other.Address))
	require.Equal(t, acquired, held(given))
}
