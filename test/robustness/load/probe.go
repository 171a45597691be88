package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
	"github.com/holdfast-io/holdfast/test/robustness/history"
)

// probeTimeout bounds how long a name may stay held after its clients are gone: its last TTL, and another one from a new owner. Most of it is for
// machines that do much else.
const probeTimeout = 15 * TTL

// Probe acquires and releases every name once the clients are gone: whatever they left behind must end by itself.
func (l *Load) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var wg sync.WaitGroup
	names := slices.Concat(l.Names, l.Elections)
	errs := make([]error, len(names))
	for i, name := range names {
		wg.Go(func() {
			c := l.newClient(l.First+l.clients()+i, rand.New(rand.NewPCG(l.Seed, uint64(i))))
			defer c.close()
			errs[i] = c.probe(ctx, name)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *client) probe(ctx context.Context, n Name) error {
	req, weight := n.request(c.rng)
	req.RequestId, req.Ttl, req.Wait = lease.NewRequestID(), durationpb.New(TTL), &leasev1.Wait{}
	first := int64(0)
	for {
		granted, sent, returned, err := call(ctx, c, probeTimeout, leasev1.LeaseServiceClient.Acquire, req)
		if first == 0 {
			first = sent
		}
		if err == nil {
			h := held{name: n.Name, token: granted.GetToken(), until: sent + int64(granted.GetExpiresIn().AsDuration())}
			c.add(history.Op{
				Name: n.Name, Kind: history.Granted, Call: first, Return: returned, Token: h.token, Weight: weight, Until: h.until,
			})
			return c.release(ctx, h)
		}
		if ctx.Err() != nil || !unknown(err) {
			return fmt.Errorf("%q is not free %s after all clients are gone: %w", n.Name, time.Duration(history.Now()-first), err)
		}
	}
}
