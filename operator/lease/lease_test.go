package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

func dial(t *testing.T, address string) *lease.Client {
	t.Helper()
	client, err := lease.Dial(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestLeaseIsKeptUntilReleased(t *testing.T) {
	client := dial(t, leasetest.Start(t, leasetest.Options("alone")).Address)
	first, err := client.Acquire(within(t, 10*time.Second), "n", lease.WithTTL(time.Second), lease.WithHolder("one"))
	require.NoError(t, err)

	_, err = client.TryAcquire(within(t, 10*time.Second), "n", lease.WithHolder("two"))
	var held *lease.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, []string{"one"}, held.Holders)
	require.Equal(t, []int64{first.Token()}, held.Tokens)

	// Waiting longer than three TTLs shows that the first one renews, and that a long wait does not eat up the TTL.
	granted := make(chan *lease.Lease, 1)
	go func() {
		second, err := client.Acquire(within(t, 30*time.Second), "n", lease.WithTTL(time.Second), lease.WithHolder("two"))
		if err == nil {
			granted <- second
		}
		close(granted)
	}()
	select {
	case <-granted:
		t.Fatal("granted while the first one holds it")
	case <-first.Done():
		t.Fatal("lost: ", first.Err())
	case <-time.After(3500 * time.Millisecond):
	}
	require.Positive(t, first.Remaining())
	require.NoError(t, first.Release(within(t, 10*time.Second)))
	require.ErrorIs(t, first.Err(), lease.ErrReleased)
	require.ErrorIs(t, context.Cause(first.Context()), lease.ErrReleased)
	second := <-granted
	require.NotNil(t, second)
	require.Greater(t, second.Token(), first.Token())
	require.Greater(t, second.Remaining(), 400*time.Millisecond)
	require.NoError(t, second.Release(within(t, 10*time.Second)))
}

func TestLossIsNoticedWithoutTheService(t *testing.T) {
	link := leasetest.NewLink(t, leasetest.Start(t, leasetest.Options("alone")).Address)
	client := dial(t, link.Address)
	held, err := client.Acquire(within(t, 10*time.Second), "n", lease.WithTTL(2*time.Second))
	require.NoError(t, err)
	cut := time.Now()
	link.Cut()
	select {
	case <-held.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("not noticed")
	}
	require.ErrorIs(t, held.Err(), lease.ErrExpired)
	require.Less(t, time.Since(cut), 2*time.Second, "noticed before the TTL passed")
}

func TestRevocation(t *testing.T) {
	client := dial(t, leasetest.Start(t, leasetest.Options("alone")).Address)
	held, err := client.Acquire(within(t, 10*time.Second), "n", lease.WithTTL(time.Second))
	require.NoError(t, err)
	_, err = client.Service().Revoke(t.Context(), &leasev1.RevokeRequest{Name: "n", Reason: "maintenance", RequestedBy: "ops"})
	require.NoError(t, err)
	select {
	case <-held.Revoked():
	case <-time.After(10 * time.Second):
		t.Fatal("not heard")
	}
	require.Equal(t, "maintenance", held.Revocation().Reason)
	_, err = client.Service().Revoke(t.Context(), &leasev1.RevokeRequest{Name: "n", Reason: "now", Force: true})
	require.NoError(t, err)
	select {
	case <-held.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("not heard")
	}
	require.ErrorIs(t, held.Err(), lease.ErrNotHeld)
}
