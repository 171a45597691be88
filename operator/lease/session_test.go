package lease_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

func TestSessionKeepsManyLeases(t *testing.T) {
	client := dial(t, leasetest.Start(t, leasetest.Options("alone")).Address)
	session, err := client.NewSession(within(t, 10*time.Second), lease.WithTTL(time.Second), lease.WithHolder("s"))
	require.NoError(t, err)
	leases := make([]*lease.Lease, 100)
	var wg sync.WaitGroup
	for i := range leases {
		wg.Go(func() {
			var err error
			leases[i], err = session.Acquire(within(t, 10*time.Second), fmt.Sprintf("n/%d", i))
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	waiting := make(chan *lease.Lease, 1)
	go func() {
		l, err := session.Acquire(within(t, 20*time.Second), "n/0")
		assert.NoError(t, err)
		waiting <- l
	}()
	select {
	case <-waiting:
		t.Fatal("granted twice")
	case <-time.After(2500 * time.Millisecond):
	}
	for _, l := range leases {
		require.NoError(t, l.Err())
		require.Positive(t, l.Remaining())
	}
	_, err = session.TryAcquire(within(t, 10*time.Second), "n/1")
	var held *lease.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, []string{"s"}, held.Holders)

	require.NoError(t, leases[0].Release(within(t, 10*time.Second)))
	next := <-waiting
	require.Greater(t, next.Token(), leases[0].Token())
	require.Equal(t, 100, session.Leases())
	_, err = client.Service().Revoke(t.Context(), &leasev1.RevokeRequest{Name: "n/2", Force: true})
	require.NoError(t, err)
	<-leases[2].Done()
	require.ErrorIs(t, leases[2].Err(), lease.ErrNotHeld)

	require.NoError(t, session.Close(within(t, 10*time.Second)))
	require.ErrorIs(t, leases[5].Err(), lease.ErrReleased)
	got, err := client.Service().List(t.Context(), &leasev1.ListRequest{Prefix: "n/"})
	require.NoError(t, err)
	require.Empty(t, got.GetLeases())
	_, err = session.Acquire(within(t, 10*time.Second), "late")
	require.ErrorIs(t, err, lease.ErrSessionClosed)
}

func TestSessionTakesItsLeasesAlong(t *testing.T) {
	opts := leasetest.Options("alone")
	opts.DataDir = t.TempDir()
	first := leasetest.Start(t, opts)
	opts.Listen = first.Address
	client := dial(t, first.Address)
	session, err := client.NewSession(within(t, 10*time.Second), lease.WithTTL(15*time.Second))
	require.NoError(t, err)
	held, err := session.Acquire(within(t, 10*time.Second), "n")
	require.NoError(t, err)
	first.Stop(t)
	stopped, left := time.Now(), held.Remaining()
	leasetest.Start(t, opts)
	require.Eventually(t, func() bool { return held.Remaining() > left-time.Since(stopped)+100*time.Millisecond },
		12*time.Second, 10*time.Millisecond, "renewed on a new stream")
	require.NoError(t, held.Err())
	_, err = client.Service().Revoke(t.Context(), &leasev1.RevokeRequest{Name: "n", Reason: "test"})
	require.NoError(t, err)
	select {
	case <-held.Revoked():
	case <-time.After(10 * time.Second):
		t.Fatal("the new stream does not know the lease")
	}
	require.NoError(t, session.Close(within(t, 10*time.Second)))
}

// A session whose leases do not fit into one message takes all of them along.
func TestSessionTakesAsManyLeasesAlongAsItHas(t *testing.T) {
	const many = 3000
	opts := leasetest.Options("alone")
	opts.DataDir, opts.JournalChanges = t.TempDir(), 10_000
	first := leasetest.Start(t, opts)
	opts.Listen = first.Address
	client := dial(t, first.Address)
	session, err := client.NewSession(within(t, 10*time.Second), lease.WithTTL(15*time.Second))
	require.NoError(t, err)
	leases := make([]*lease.Lease, many)
	padding := strings.Repeat("x", 480)
	var wg sync.WaitGroup
	for w := range 100 {
		wg.Go(func() {
			for i := w; i < many; i += 100 {
				var err error
				leases[i], err = session.TryAcquire(within(t, 30*time.Second), fmt.Sprint("n/", i, padding))
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	require.False(t, t.Failed())
	// renewed waits until each lease ends later than it would have before something was done.
	renewed := func(how string, do func()) {
		before := make([]time.Time, many)
		for i, l := range leases {
			before[i] = time.Now().Add(l.Remaining())
		}
		do()
		for i, l := range leases {
			require.Eventually(t, func() bool { return time.Now().Add(l.Remaining()).After(before[i].Add(100 * time.Millisecond)) },
				12*time.Second, 10*time.Millisecond, "lease %d is renewed %s", i, how)
		}
	}
	renewed("on a new stream", func() {
		first.Stop(t)
		leasetest.Start(t, opts)
	})
	renewed("by heartbeats", func() {})
	require.Equal(t, many, session.Leases())
	require.NoError(t, session.Close(within(t, 10*time.Second)))
	got, err := client.Service().List(t.Context(), &leasev1.ListRequest{Prefix: "n/"})
	require.NoError(t, err)
	require.Empty(t, got.GetLeases())
}

func TestSessionLosesItsLeasesInTime(t *testing.T) {
	link := leasetest.NewLink(t, leasetest.Start(t, leasetest.Options("alone")).Address)
	session, err := dial(t, link.Address).NewSession(within(t, 10*time.Second), lease.WithTTL(2*time.Second))
	require.NoError(t, err)
	held, err := session.Acquire(within(t, 10*time.Second), "n")
	require.NoError(t, err)
	link.Cut()
	cut := time.Now()
	<-held.Done()
	require.ErrorIs(t, held.Err(), lease.ErrExpired)
	require.Less(t, time.Since(cut), 2*time.Second)
}
