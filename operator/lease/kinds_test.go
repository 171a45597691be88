package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// later acquires in the background.
func later(t *testing.T, acquire func(context.Context) (*lease.Lease, error)) <-chan *lease.Lease {
	granted := make(chan *lease.Lease, 1)
	go func() {
		l, err := acquire(within(t, 30*time.Second))
		assert.NoError(t, err)
		granted <- l
	}()
	return granted
}

func awaitWaiters(t *testing.T, client *lease.Client, name string, n int32) {
	t.Helper()
	require.Eventually(t, func() bool {
		got, err := client.Service().Get(t.Context(), &leasev1.GetRequest{Name: name})
		return err == nil && got.GetLease().GetWaiters() == n
	}, 10*time.Second, 5*time.Millisecond, "%d wait for %q", n, name)
}

// kinds runs a test with leases that are renewed one by one, and with those of a session.
func kinds(t *testing.T, test func(t *testing.T, client *lease.Client, from lease.Acquirer)) {
	address := leasetest.Start(t, leasetest.Options("alone")).Address
	t.Run("client", func(t *testing.T) {
		client := dial(t, address)
		test(t, client, client)
	})
	t.Run("session", func(t *testing.T) {
		client := dial(t, address)
		session, err := client.NewSession(within(t, 10*time.Second))
		require.NoError(t, err)
		test(t, client, session)
		require.NoError(t, session.Close(within(t, 10*time.Second)))
	})
}

func TestSemaphore(t *testing.T) {
	kinds(t, func(t *testing.T, client *lease.Client, from lease.Acquirer) {
		ctx := within(t, 30*time.Second)
		pool := lease.NewSemaphore(from, "pool", 5, lease.WithTTL(10*time.Second), lease.WithHolder("h"))
		two, err := pool.Acquire(ctx, 2)
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, two.TTL())
		three, err := pool.TryAcquire(ctx, 3)
		require.NoError(t, err)
		var held *lease.HeldError
		_, err = pool.TryAcquire(ctx, 1)
		require.ErrorAs(t, err, &held)
		require.Equal(t, []string{"h", "h"}, held.Holders)

		// One that asks for few does not overtake one that asks for many.
		many := later(t, func(ctx context.Context) (*lease.Lease, error) { return pool.Acquire(ctx, 4) })
		awaitWaiters(t, client, "pool", 1)
		few := later(t, func(ctx context.Context) (*lease.Lease, error) { return pool.Acquire(ctx, 1) })
		awaitWaiters(t, client, "pool", 2)
		require.NoError(t, two.Release(ctx))
		awaitWaiters(t, client, "pool", 2)
		require.NoError(t, three.Release(ctx))
		four, one := <-many, <-few
		require.Greater(t, one.Token(), four.Token())

		for _, n := range []int32{-1, 0, 6} {
			_, err = pool.TryAcquire(ctx, n)
			require.ErrorContains(t, err, "permits", "%d permits", n)
		}
		_, err = lease.NewSemaphore(from, "pool", 7).TryAcquire(ctx, 1)
		require.ErrorContains(t, err, "permits", "another total")
		require.NoError(t, four.Release(ctx))
		require.NoError(t, one.Release(ctx))
	})
}

func TestRWLease(t *testing.T) {
	kinds(t, func(t *testing.T, client *lease.Client, from lease.Acquirer) {
		ctx := within(t, 30*time.Second)
		rw := lease.NewRWLease(from, "table")
		reader, err := rw.Read(ctx)
		require.NoError(t, err)
		other, err := rw.TryRead(ctx)
		require.NoError(t, err)
		var held *lease.HeldError
		_, err = rw.TryWrite(ctx)
		require.ErrorAs(t, err, &held)

		writing := later(t, rw.Write)
		awaitWaiters(t, client, "table", 1)
		_, err = rw.TryRead(ctx)
		require.ErrorAs(t, err, &held, "a reader does not overtake the writer")
		require.NoError(t, reader.Release(ctx))
		require.NoError(t, other.Release(ctx))
		writer := <-writing
		require.NotNil(t, writer)
		_, err = rw.TryRead(ctx)
		require.ErrorAs(t, err, &held)
		require.NoError(t, writer.Release(ctx))
		again, err := rw.TryWrite(ctx)
		require.NoError(t, err)
		require.NoError(t, again.Release(ctx))
	})
}
