package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// The loads of unary calls. Both sides use the plain generated gRPC clients, on as many connections.

const (
	holder = "bench-client"
	// putValue is as long as the record of a hold.
	putValue     = "0123456789012345678901234567890123456789012345678901234567890123"
	peerLeaseTTL = 60 // seconds
)

// leaseClients are the clients' gRPC clients, each of the replica that the client belongs to.
func (l load) leaseClients() []leasev1.LeaseServiceClient {
	clients := make([]leasev1.LeaseServiceClient, l.clients)
	for i := range clients {
		clients[i] = leasev1.NewLeaseServiceClient(l.stand.toService[l.replica(i)][i%connections])
	}
	return clients
}

// unaryCycle acquires and releases, each client a name of its own.
func unaryCycle(ctx context.Context, l load) (*tally, error) {
	clients := l.leaseClients()
	names := make([]string, l.clients)
	for i := range names {
		names[i] = l.name(i, 0)
	}
	return l.closedLoop(ctx, func(ctx context.Context, client, _ int) error {
		got, err := clients[client].Acquire(ctx, &leasev1.AcquireRequest{
			Name: names[client], Holder: holder, RequestId: lease.NewRequestID(),
		})
		if err != nil {
			return err
		}
		_, err = clients[client].Release(ctx, &leasev1.ReleaseRequest{Name: names[client], Token: got.GetToken()})
		return err
	})
}

// unaryAcquire acquires one new name after another; they are released in the end.
func unaryAcquire(ctx context.Context, l load) (*tally, error) {
	clients := l.leaseClients()
	held := make([][]*leasev1.ReleaseRequest, l.clients)
	done, err := l.closedLoop(ctx, func(ctx context.Context, client, n int) error {
		name := l.name(client, n)
		got, err := clients[client].Acquire(ctx, &leasev1.AcquireRequest{Name: name, Holder: holder, RequestId: lease.NewRequestID()})
		held[client] = append(held[client], &leasev1.ReleaseRequest{Name: name, Token: got.GetToken()})
		return err
	})
	if err != nil {
		return nil, err
	}
	done.cleanUp = func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for client := range held {
			group.Go(func() error {
				for _, hold := range held[client] {
					if _, err := clients[client].Release(ctx, hold); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return group.Wait()
	}
	return done, nil
}

// v3lockCycle is what etcd's own lock service needs for the same: a lease for the client, the lock, and both given back.
func v3lockCycle(ctx context.Context, l load) (*tally, error) {
	names := make([][]byte, l.clients)
	for i := range names {
		names[i] = []byte(l.name(i, 0))
	}
	return l.closedLoop(ctx, func(ctx context.Context, client, _ int) error {
		conn := l.stand.toEtcd[client%connections]
		leases, locks := etcdserverpb.NewLeaseClient(conn), v3lockpb.NewLockClient(conn)
		granted, err := leases.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{TTL: peerLeaseTTL})
		if err != nil {
			return err
		}
		got, err := locks.Lock(ctx, &v3lockpb.LockRequest{Name: names[client], Lease: granted.GetID()})
		if err != nil {
			return err
		}
		if _, err := locks.Unlock(ctx, &v3lockpb.UnlockRequest{Key: got.GetKey()}); err != nil {
			return err
		}
		_, err = leases.LeaseRevoke(ctx, &etcdserverpb.LeaseRevokeRequest{ID: granted.GetID()})
		return err
	})
}

// put writes one new key after another.
func put(ctx context.Context, l load) (*tally, error) {
	kvs := l.kvClients()
	return l.closedLoop(ctx, func(ctx context.Context, client, n int) error {
		_, err := kvs[client].Put(ctx, &etcdserverpb.PutRequest{Key: []byte(l.name(client, n)), Value: []byte(putValue)})
		return err
	})
}

func (l load) kvClients() []etcdserverpb.KVClient {
	clients := make([]etcdserverpb.KVClient, l.clients)
	for i := range clients {
		clients[i] = etcdserverpb.NewKVClient(l.stand.toEtcd[i%connections])
	}
	return clients
}

// getLease reads a held lease again and again, each client its own: load.hold has acquired them.
func getLease(ctx context.Context, l load) (*tally, error) {
	clients := l.leaseClients()
	names := make([]string, l.clients)
	for i := range names {
		names[i] = l.name(i, 0)
	}
	return l.closedLoop(ctx, func(ctx context.Context, client, _ int) error {
		_, err := clients[client].Get(ctx, &leasev1.GetRequest{Name: names[client]})
		return err
	})
}

// getKey is the same of etcd: linearizable reads of a key.
func getKey(ctx context.Context, l load) (*tally, error) {
	kvs := l.kvClients()
	keys := make([][]byte, l.clients)
	for i := range keys {
		keys[i] = []byte(l.name(i, 0))
	}
	return l.closedLoop(ctx, func(ctx context.Context, client, _ int) error {
		_, err := kvs[client].Range(ctx, &etcdserverpb.RangeRequest{Key: keys[client]})
		return err
	})
}

// getKeysTogether reads as many keys, those of a connection's clients by one transaction after another, which is the most that etcd
// offers to who has many to read. Each read counts.
func getKeysTogether(ctx context.Context, l load) (*tally, error) {
	kvs := l.kvClients()
	var mu sync.Mutex
	done := &tally{}
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for first := range min(connections, l.clients) {
		group.Go(func() error {
			txn := &etcdserverpb.TxnRequest{}
			for client := first; client < l.clients; client += connections {
				txn.Success = append(txn.Success, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{
					RequestRange: &etcdserverpb.RangeRequest{Key: []byte(l.name(client, 0))},
				}})
			}
			var latencies []time.Duration
			for sent := began; sent.Sub(began) < l.lasts; {
				if _, err := kvs[first].Txn(ctx, txn); err != nil {
					return err
				}
				now := time.Now()
				latencies = append(latencies, slices.Repeat([]time.Duration{now.Sub(sent)}, len(txn.GetSuccess()))...)
				sent = now
			}
			mu.Lock()
			defer mu.Unlock()
			done.latencies = append(done.latencies, latencies...)
			return nil
		})
	}
	err := group.Wait()
	done.elapsed = time.Since(began)
	return done, err
}

// hold acquires the names that getLease and keepAlive use, and writes the keys that getKey uses. It returns the tokens.
func (l load) hold(ctx context.Context) ([]int64, error) {
	leases, kvs := l.leaseClients(), l.kvClients()
	tokens := make([]int64, l.clients)
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for client := range l.clients {
		group.Go(func() error {
			name := l.name(client, 0)
			if _, err := kvs[client].Put(ctx, &etcdserverpb.PutRequest{Key: []byte(name), Value: []byte(putValue)}); err != nil {
				return err
			}
			got, err := leases[client].Acquire(ctx, &leasev1.AcquireRequest{Name: name, Holder: holder, RequestId: lease.NewRequestID()})
			mu.Lock()
			defer mu.Unlock()
			tokens[client] = got.GetToken()
			return err
		})
	}
	return tokens, group.Wait()
}

// keepAlive renews the leases with the tokens.
func keepAlive(tokens []int64) driver {
	return func(ctx context.Context, l load) (*tally, error) {
		clients := l.leaseClients()
		names := make([]string, l.clients)
		for i := range names {
			names[i] = l.name(i, 0)
		}
		return l.closedLoop(ctx, func(ctx context.Context, client, _ int) error {
			_, err := clients[client].KeepAlive(ctx, &leasev1.KeepAliveRequest{Name: names[client], Token: tokens[client]})
			return err
		})
	}
}
