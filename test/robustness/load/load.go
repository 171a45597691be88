// Package load is clients of the lease service that record what they do and see.
package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
	"github.com/holdfast-io/holdfast/test/robustness/history"
	"github.com/holdfast-io/holdfast/test/robustness/lab"
)

// TTL is that of all leases: the least the service allows.
const TTL = time.Second

// Name is a lease name that clients contend for.
type Name struct {
	Name string
	// Capacity is 1 for an exclusive lease, else the number of permits, or for one that may be shared as many as there are.
	Capacity int32
	Shared   bool
}

// shareable is the capacity of leases that may be shared.
const shareable = 1000

// Prefix is what all names that were made together begin with.
func (n Name) Prefix() string { return n.Name[:strings.LastIndex(n.Name, "/")+1] }

// Names makes lease names that begin with a prefix: most exclusive, one of permits, one shared.
func Names(prefix string, n int) []Name {
	names := make([]Name, n)
	for i := range names {
		names[i] = Name{Name: fmt.Sprintf("%s/%d", prefix, i), Capacity: 1}
		switch i % 6 {
		case 4:
			names[i].Capacity = 3
		case 5:
			names[i].Capacity, names[i].Shared = shareable, true
		}
	}
	return names
}

// Elections makes names of elections that begin with a prefix.
func Elections(prefix string, n int) []Name {
	names := make([]Name, n)
	for i := range names {
		names[i] = Name{Name: fmt.Sprintf("%s/election-%d", prefix, i), Capacity: 1}
	}
	return names
}

// Capacities returns the capacity of each name.
func Capacities(names []Name) map[string]int32 {
	capacities := map[string]int32{}
	for _, n := range names {
		capacities[n.Name] = n.Capacity
	}
	return capacities
}

// request asks for a hold of a name, and says how much of its capacity that takes.
func (n Name) request(rng *rand.Rand) (*leasev1.AcquireRequest, int32) {
	req := &leasev1.AcquireRequest{Name: n.Name, Mode: leasev1.LeaseMode_LEASE_MODE_EXCLUSIVE}
	switch {
	case n.Shared && rng.IntN(4) > 0:
		req.Mode = leasev1.LeaseMode_LEASE_MODE_SHARED
		return req, 1
	case n.Shared || n.Capacity == 1:
		return req, n.Capacity
	}
	req.Mode, req.PermitsTotal, req.Permits = leasev1.LeaseMode_LEASE_MODE_PERMITS, n.Capacity, 1+rng.Int32N(2)
	return req, req.GetPermits()
}

func (n Name) options(rng *rand.Rand) ([]lease.Option, int32) {
	req, weight := n.request(rng)
	switch req.GetMode() {
	case leasev1.LeaseMode_LEASE_MODE_SHARED:
		return []lease.Option{lease.WithTTL(TTL), lease.Shared()}, weight
	case leasev1.LeaseMode_LEASE_MODE_PERMITS:
		return []lease.Option{lease.WithTTL(TTL), lease.Permits(req.GetPermits(), req.GetPermitsTotal())}, weight
	default:
		return []lease.Option{lease.WithTTL(TTL)}, weight
	}
}

// Load is what some clients do together.
type Load struct {
	Addresses []string
	// TLS is what the clients show and believe.
	TLS   leasetls.Files
	Names []Name
	// Elections are names for which candidates campaign; nobody else touches them.
	Elections []Name
	Recorder  *history.Recorder `json:"-"`
	Registers history.Guarded   `json:"-"`
	// Think is how long a holder takes at most between reading a register and writing it; 0: mostly no time.
	Think time.Duration
	// First is the number of the first client.
	First int
	// Raw, Leases and Sessions are how many clients make calls of their own, use leases of the Go client, and its sessions. Candidates are how
	// many campaign, every second one by the Go client.
	Raw, Leases, Sessions, Candidates int
	Seed                              uint64
}

// clients is how many there are.
func (l *Load) clients() int { return l.Raw + l.Leases + l.Sessions + l.Candidates }

// Run lets the clients work until the context ends, and returns what was wrong with answers, if anything was.
func (l *Load) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make([]error, l.clients())
	for i := range errs {
		c := l.newClient(l.First+i, rand.New(rand.NewPCG(l.Seed, uint64(i))))
		run := c.raw
		switch {
		case i >= l.Raw+l.Leases+l.Sessions && i%2 == 0:
			run = c.candidate
		case i >= l.Raw+l.Leases+l.Sessions:
			run = c.leader
		case i >= l.Raw+l.Leases:
			run = c.session
		case i >= l.Raw:
			run = c.leases
		}
		wg.Go(func() {
			defer c.close()
			errs[i] = run(ctx)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// client is one client. It belongs to one goroutine.
type client struct {
	*Load
	id    int
	rng   *rand.Rand
	at    int
	conns []*grpc.ClientConn
	// values counts those that it has made.
	values int
}

func (l *Load) newClient(id int, rng *rand.Rand) *client {
	return &client{Load: l, id: id, rng: rng, at: rng.IntN(len(l.Addresses)), conns: make([]*grpc.ClientConn, len(l.Addresses))}
}

func (c *client) close() {
	for _, conn := range c.conns {
		if conn != nil {
			_ = conn.Close() // it is given up
		}
	}
}

// conn returns the connection to the replica that the client uses now.
func (c *client) conn() (*grpc.ClientConn, error) {
	if c.conns[c.at] == nil {
		conn, err := lab.Dial(c.Addresses[c.at], c.TLS)
		if err != nil {
			return nil, err
		}
		c.conns[c.at] = conn
	}
	return c.conns[c.at], nil
}

// elsewhere makes the client use another replica.
func (c *client) elsewhere() { c.at = (c.at + 1 + c.rng.IntN(len(c.Addresses))) % len(c.Addresses) }

func (c *client) add(op history.Op) {
	op.Client = c.id
	c.Recorder.Add(op)
}

// between is a random time up to most.
func (c *client) upTo(most time.Duration) time.Duration {
	return time.Duration(c.rng.Int64N(int64(most)))
}

// increment writes to the register of a hold, and returns false when the token was refused.
func (c *client) increment(ctx context.Context, name string, token int64) (bool, error) {
	return history.Increment(c.Registers, c.id, name, token, func() {
		switch {
		case c.Think > 0:
			lab.Sleep(ctx, c.upTo(c.Think))
		case c.rng.IntN(4) == 0:
			lab.Sleep(ctx, c.upTo(10*time.Millisecond))
		}
	})
}

// unknown says whether an error leaves open what happened.
func unknown(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown:
		return true
	default:
		return false
	}
}
