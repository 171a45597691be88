package lease_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease"
)

// holdMany acquires leases by themselves and in sessions.
func holdMany(t *testing.T, client *lease.Client, ttl time.Duration) []*lease.Lease {
	t.Helper()
	var held []*lease.Lease
	for i := range 12 {
		l, err := client.Acquire(within(t, 20*time.Second), fmt.Sprintf("alone/%d", i), lease.WithTTL(ttl))
		require.NoError(t, err)
		held = append(held, l)
	}
	for i := range 6 {
		session, err := client.NewSession(within(t, 20*time.Second), lease.WithTTL(ttl))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, session.Close(context.Background())) })
		for j := range 4 {
			l, err := session.Acquire(within(t, 20*time.Second), fmt.Sprintf("session/%d/%d", i, j))
			require.NoError(t, err)
			held = append(held, l)
		}
	}
	return held
}

// requireRenewed waits until all leases were renewed after this moment.
func requireRenewed(t *testing.T, held []*lease.Lease) {
	t.Helper()
	now := time.Now()
	for _, l := range held {
		left := l.Remaining()
		require.Eventually(t, func() bool { return l.Remaining() > left-time.Since(now)+50*time.Millisecond }, l.TTL(), 5*time.Millisecond,
			"lease %s: %v", l.Name(), l.Err())
		require.NoError(t, l.Err())
	}
}

func TestLeasesSurviveARollingUpdate(t *testing.T) {
	etcd, _ := leasetest.Etcd(t)
	replicas := make([]*leasetest.Replica, 3)
	start := func(i int, listen string) {
		opts := leasetest.Options(fmt.Sprint("r", i))
		opts.EtcdEndpoints, opts.Listen = []string{etcd.Endpoint()}, listen
		replicas[i] = leasetest.Start(t, opts)
	}
	for i := range replicas {
		start(i, "127.0.0.1:0")
	}
	p := &paths{}
	client := dial(t, replicas[0].Address)
	p.round(t, client)
	held := holdMany(t, client, 6*time.Second)
	for i := range replicas {
		address := replicas[i].Address
		replicas[i].Stop(t)
		start(i, address)
		requireRenewed(t, held)
	}
}

// A replica that hangs keeps its connections open and answers nothing.
func TestLeasesSurviveAReplicaThatHangs(t *testing.T) {
	etcd, _ := leasetest.Etcd(t)
	var first string
	var toReplica, toEtcd *leasetest.Link
	for i := range 3 {
		opts := leasetest.Options(fmt.Sprint("r", i))
		opts.EtcdEndpoints = []string{etcd.Endpoint()}
		if i == 2 {
			address := freeAddress(t)
			toReplica, toEtcd = leasetest.NewLink(t, address), leasetest.NewLink(t, etcd.Endpoint())
			opts.Listen, opts.Advertise, opts.EtcdEndpoints = address, toReplica.Address, []string{toEtcd.Address}
		}
		r := leasetest.Start(t, opts)
		if i == 0 {
			first = r.Address
		}
	}
	p := &paths{}
	client := dial(t, first)
	p.round(t, client)
	held := holdMany(t, client, 12*time.Second)
	toReplica.Cut()
	toEtcd.Cut()
	requireRenewed(t, held)
	toEtcd.Restore()
	toReplica.Restore()
}

// freeAddress returns a loopback address whose port nobody uses now.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}
