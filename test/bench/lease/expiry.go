package main

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

const (
	// peerExpiringTTL is enough to grant as many etcd leases and to put as many keys.
	peerExpiringTTL = 20 * time.Second
	// expirySessions is how many sessions hold the leases that expire together.
	expirySessions = 16
	// drainTimeout bounds how long the ends of all leases may take.
	drainTimeout = 2 * time.Minute
)

// herd is a lot of leases that expire together.
type herd struct {
	// due is when they are over; ended waits until all have been reported ended.
	due   time.Time
	ended func() error
}

// expiry is L7: what it costs, and what it does to others, that many leases expire at the same time. The peer is etcd with a
// lease and a key for each client.
func (b *bench) expiry(ctx context.Context, s *stand) error {
	var ratios, drained, entries, quietP50, stormP50 []float64
	for range b.rounds {
		alone, err := b.storm(ctx, s, b.ourHerd, nil)
		if err != nil {
			return err
		}
		disturbed, err := b.storm(ctx, s, b.ourHerd, probeAcquire)
		if err != nil {
			return err
		}
		ratios, drained = append(ratios, disturbed.ratio()), append(drained, alone.took.Seconds())
		entries = append(entries, float64(alone.entries))
		quietP50, stormP50 = append(quietP50, float64(disturbed.quiet)), append(stormP50, float64(disturbed.during))
		fmt.Fprintf(b.log, "  %d leases expire: all ended after %s, %d entries; an acquire took %s before and %s meanwhile\n",
			b.expiring, alone.took, alone.entries, disturbed.quiet, disturbed.during)
	}
	var peerRatio, peerTook, peerEntries string
	if b.peerExpiry {
		peer, err := b.storm(ctx, s, b.etcdHerd, probePut)
		if err != nil {
			return err
		}
		fmt.Fprintf(b.log, "  %d etcd leases expire: all ended after %s, %d entries; a put took %s before and %s meanwhile\n",
			b.expiring, peer.took, peer.entries, peer.quiet, peer.during)
		peerRatio = fmt.Sprintf("a put, with an etcd lease for each client: %sx", number(peer.ratio()))
		peerTook, peerEntries = fmt.Sprintf("%.1f s", peer.took.Seconds()), thousands(float64(peer.entries))
	}
	all := thousands(float64(b.expiring)) + " leases expire together: "
	b.add(figure{
		ID: "L7", What: all + "unrelated acquire p50 / quiet", Clients: 1, Etcd: len(s.etcd), Value: newSpread(ratios), Goal: atMost(1.5), Unit: times,
		Ours: short(time.Duration(newSpread(stormP50).Median)) + " / " + short(time.Duration(newSpread(quietP50).Median)),
		Peer: peerRatio,
	})
	b.add(figure{
		ID: "L7", What: all + "all ended within", Clients: 1, Etcd: len(s.etcd), Value: newSpread(drained), Goal: atMost(1), Unit: seconds,
		Peer: peerTook,
	})
	b.add(figure{
		ID: "L7", What: all + "raft entries", Clients: 1, Etcd: len(s.etcd), Value: newSpread(entries), Goal: atMost(100), Unit: count,
		Peer: peerEntries,
	})
	return nil
}

// stormResult is what one herd's expiry did. The figures of the probe are 0 without one.
type stormResult struct {
	took          time.Duration // from when the leases were due until all were reported ended
	entries       uint64        // including those of the probe
	quiet, during time.Duration // p50 of the probe
}

func (r *stormResult) ratio() float64 { return float64(r.during) / float64(r.quiet) }

// probe does something that has nothing to do with the herd, again and again, and tells how long each took.
type probe func(ctx context.Context, l load, n int) (time.Duration, error)

func (b *bench) storm(ctx context.Context, s *stand, raise func(context.Context, *stand) (*herd, error), do probe) (*stormResult, error) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	result := &stormResult{}
	l := load{stand: s, clients: 1, label: b.label("probe")}
	quiet, err := l.probeUntil(ctx, do, after(b.lasts))
	if err != nil {
		return nil, err
	}
	h, err := raise(ctx, s)
	if err != nil {
		return nil, err
	}
	<-after(time.Until(h.due))
	before, err := s.usage(ctx)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	var group errgroup.Group
	group.Go(func() error {
		defer close(ended)
		return h.ended()
	})
	l.label = b.label("probe")
	during, err := l.probeUntil(ctx, do, ended)
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	result.took = time.Since(h.due)
	used, err := s.usage(ctx)
	result.entries = used.entries - before.entries
	if do != nil {
		result.quiet, result.during = quiet.quantile(0.5), during.quantile(0.5)
	}
	return result, err
}

// after is a channel that is closed after a time.
func after(d time.Duration) <-chan struct{} {
	done := make(chan struct{})
	time.AfterFunc(d, func() { close(done) })
	return done
}

// probeUntil probes until a channel is closed, but once at least. Without a probe it only waits.
func (l load) probeUntil(ctx context.Context, do probe, end <-chan struct{}) (*sample, error) {
	s := &sample{}
	for n := 0; do != nil; n++ {
		took, err := do(ctx, l, n)
		if err != nil {
			return nil, err
		}
		s.latencies = append(s.latencies, took)
		select {
		case <-end:
			s.sort()
			return s, nil
		default:
		}
	}
	<-end
	return s, nil
}

// probeAcquire acquires a name, and releases it after the time was taken.
func probeAcquire(ctx context.Context, l load, n int) (time.Duration, error) {
	client, name := l.leaseClients()[0], l.name(0, n)
	began := time.Now()
	got, err := client.Acquire(ctx, &leasev1.AcquireRequest{Name: name, Holder: holder, RequestId: lease.NewRequestID()})
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	_, err = client.Release(ctx, &leasev1.ReleaseRequest{Name: name, Token: got.GetToken()})
	return took, err
}

// probePut puts a key.
func probePut(ctx context.Context, l load, n int) (time.Duration, error) {
	began := time.Now()
	_, err := l.kvClients()[0].Put(ctx, &etcdserverpb.PutRequest{Key: []byte(l.name(0, n)), Value: []byte(putValue)})
	return time.Since(began), err
}

// ourHerd acquires leases in sessions, which renew them all with one heartbeat at the same time, and then no more.
func (b *bench) ourHerd(ctx context.Context, s *stand) (*herd, error) {
	sessions := make([]*session, expirySessions)
	label, each := b.label("expiring"), b.expiring/expirySessions
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range sessions {
		sessions[i] = &session{}
		group.Go(func() error {
			conn := s.toService[0][i%connections]
			if err := sessions[i].open(ctx, leasev1.NewLeaseServiceClient(conn), &leasev1.SessionOpen{Holder: holder}); err != nil {
				return err
			}
			names := make([]string, each)
			for n := range names {
				names[n] = fmt.Sprintf("%s/%d/%d", label, i, n)
			}
			if err := sessions[i].hold(names, b.expireAfter); err != nil {
				return err
			}
			return groupCtx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	sent := time.Now()
	var beats errgroup.Group
	for _, one := range sessions {
		beats.Go(one.beat)
	}
	if err := beats.Wait(); err != nil {
		return nil, err
	}
	ended := func() error {
		var group errgroup.Group
		for _, one := range sessions {
			group.Go(func() error { return one.awaitLost(each) })
		}
		err := group.Wait()
		for _, one := range sessions {
			one.cancel()
		}
		return err
	}
	return &herd{due: sent.Add(b.expireAfter), ended: ended}, nil
}

// awaitLost waits until the session was told of the end of so many leases.
func (s *session) awaitLost(n int) error {
	for n > 0 {
		r, err := s.stream.Recv()
		if err != nil {
			return fmt.Errorf("receive in a session: %w", err)
		}
		if r.GetLost() != nil {
			n--
		}
	}
	return nil
}

// etcdHerd makes etcd leases with one key each, and renews them all at the same time.
func (b *bench) etcdHerd(ctx context.Context, s *stand) (*herd, error) {
	label := b.label("expiring")
	watch, err := etcdserverpb.NewWatchClient(s.toEtcd[0]).Watch(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch etcd: %w", err)
	}
	err = watch.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
		CreateRequest: &etcdserverpb.WatchCreateRequest{
			Key: []byte(label + "/"), RangeEnd: []byte(label + "0"), // '0' follows '/'
			Filters: []etcdserverpb.WatchCreateRequest_FilterType{etcdserverpb.WatchCreateRequest_NOPUT},
		},
	}})
	if err != nil {
		return nil, fmt.Errorf("watch etcd: %w", err)
	}
	const workers = 256
	ids := make([][]int64, workers)
	group, groupCtx := errgroup.WithContext(ctx)
	for w := range workers {
		group.Go(func() error {
			for n := w; n < b.expiring; n += workers {
				id, err := etcdHold(groupCtx, s, w, fmt.Sprintf("%s/%d", label, n))
				if err != nil {
					return err
				}
				ids[w] = append(ids[w], id)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	sent := time.Now()
	renew, renewCtx := errgroup.WithContext(ctx)
	for w := range workers {
		renew.Go(func() error { return etcdRenew(renewCtx, s, w, ids[w]) })
	}
	if err := renew.Wait(); err != nil {
		return nil, err
	}
	ended := func() error {
		for left := b.expiring; left > 0; {
			r, err := watch.Recv()
			if err != nil {
				return fmt.Errorf("watch etcd: %w", err)
			}
			left -= len(r.GetEvents())
		}
		return nil
	}
	return &herd{due: sent.Add(peerExpiringTTL), ended: ended}, nil
}

func etcdHold(ctx context.Context, s *stand, worker int, key string) (int64, error) {
	conn := s.toEtcd[worker%connections]
	granted, err := etcdserverpb.NewLeaseClient(conn).LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{TTL: int64(peerExpiringTTL.Seconds())})
	if err != nil {
		return 0, fmt.Errorf("grant an etcd lease: %w", err)
	}
	_, err = etcdserverpb.NewKVClient(conn).Put(ctx, &etcdserverpb.PutRequest{Key: []byte(key), Value: []byte(putValue), Lease: granted.GetID()})
	if err != nil {
		return 0, fmt.Errorf("put a key with an etcd lease: %w", err)
	}
	return granted.GetID(), nil
}

func etcdRenew(ctx context.Context, s *stand, worker int, ids []int64) error {
	stream, err := etcdserverpb.NewLeaseClient(s.toEtcd[worker%connections]).LeaseKeepAlive(ctx)
	if err != nil {
		return fmt.Errorf("renew etcd leases: %w", err)
	}
	for _, id := range ids {
		if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: id}); err != nil {
			return fmt.Errorf("renew etcd leases: %w", err)
		}
		if _, err := stream.Recv(); err != nil {
			return fmt.Errorf("renew etcd leases: %w", err)
		}
	}
	return stream.CloseSend()
}
