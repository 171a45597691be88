package leaselock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leaselock"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

const leaseDuration = 3 * time.Second

func newLock(t *testing.T, address, identity string) (*leaselock.Lock, *lease.Client) {
	t.Helper()
	client, err := lease.Dial(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	lock, err := leaselock.New(client, "election", identity)
	require.NoError(t, err)
	return lock, client
}

// terms is what the candidates do.
type terms struct {
	leading atomic.Int32
	tokens  chan int64 // one for each term
}

type candidate struct {
	stop context.CancelFunc
	done chan struct{}
	lost chan struct{} // closed when its leadership ends
}

func (c *candidate) end() {
	c.stop()
	<-c.done
}

// run lets a candidate stand until it is stopped or its leadership ends.
func (terms *terms) run(t *testing.T, address, identity string) *candidate {
	t.Helper()
	lock, _ := newLock(t, address, identity)
	ctx, stop := context.WithCancel(context.Background())
	c := &candidate{stop: stop, done: make(chan struct{}), lost: make(chan struct{})}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				assert.EqualValues(t, 1, terms.leading.Add(1), "one leads at a time")
				terms.tokens <- lock.Token()
				<-ctx.Done()
				terms.leading.Add(-1)
				close(c.lost)
			},
			OnStoppedLeading: func() {},
		},
	})
	require.NoError(t, err)
	go func() {
		defer close(c.done)
		elector.Run(ctx)
	}()
	t.Cleanup(c.end)
	return c
}

func receive[T any](t *testing.T, from <-chan T, within time.Duration) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(within):
		t.Fatal("nothing came within ", within)
		panic("unreachable")
	}
}

func TestElection(t *testing.T) {
	address := leasetest.Start(t, leasetest.Options("alone")).Address
	terms := &terms{tokens: make(chan int64, 10)}
	link := leasetest.NewLink(t, address)
	first := terms.run(t, link.Address, "first")
	token := receive(t, terms.tokens, 10*time.Second)
	others := []*candidate{terms.run(t, address, "second"), terms.run(t, address, "third")}

	// While it renews, it goes on for longer than the lease lasts.
	select {
	case <-first.lost:
		t.Fatal("lost although it renews")
	case <-time.After(leaseDuration + leaseDuration/2):
	}

	// One that is cut off gives up before another one leads.
	link.Cut()
	receive(t, first.lost, leaseDuration)
	next := receive(t, terms.tokens, 2*leaseDuration)
	require.Greater(t, next, token)
	link.Restore()

	// One that is stopped releases, so that another one leads at its next try.
	leader := others[0]
	if holder(t, address) == "third" {
		leader = others[1]
	}
	stopped := time.Now()
	leader.end()
	require.Greater(t, receive(t, terms.tokens, leaseDuration), next)
	require.Less(t, time.Since(stopped), leaseDuration*2/3)
}

func holder(t *testing.T, address string) string {
	t.Helper()
	got, err := leasev1.NewLeaseServiceClient(leasetest.Dial(t, address)).Get(t.Context(), &leasev1.GetRequest{Name: "election"})
	require.NoError(t, err)
	require.Len(t, got.GetLease().GetHolds(), 1)
	return got.GetLease().GetHolds()[0].GetHolder()
}

func TestLock(t *testing.T) {
	address := leasetest.Start(t, leasetest.Options("alone")).Address
	lock, client := newLock(t, address, "me")
	ctx := t.Context()
	_, _, err := lock.Get(ctx)
	require.True(t, apierrors.IsNotFound(err), "of a free one: %v", err)
	record := resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaseDurationSeconds: 10}
	require.NoError(t, lock.Create(ctx, record))
	require.Positive(t, lock.Token())

	got, raw, err := lock.Get(ctx)
	require.NoError(t, err)
	require.Equal(t, "me", got.HolderIdentity)
	require.Equal(t, 10, got.LeaseDurationSeconds)
	require.WithinDuration(t, time.Now(), got.AcquireTime.Time, time.Minute)
	_, again, err := lock.Get(ctx)
	require.NoError(t, err)
	require.NotEqual(t, raw, again, "a live leadership never looks abandoned")
	require.NoError(t, lock.Update(ctx, record))

	// Another one of the same name is not taken for this one.
	impostor, _ := newLock(t, address, "me")
	var held *lease.HeldError
	require.ErrorAs(t, impostor.Update(ctx, record), &held)
	require.ErrorAs(t, impostor.Create(ctx, record), &held)
	require.NoError(t, impostor.Update(ctx, resourcelock.LeaderElectionRecord{}), "it releases what it has, which is nothing")
	require.NoError(t, lock.Update(ctx, record))

	_, err = client.Service().Revoke(ctx, &leasev1.RevokeRequest{Name: "election", Force: true})
	require.NoError(t, err)
	require.ErrorIs(t, lock.Update(ctx, record), lease.ErrNotHeld)
	require.Zero(t, lock.Token())
	require.NoError(t, impostor.Create(ctx, record))
	require.NoError(t, impostor.Update(ctx, resourcelock.LeaderElectionRecord{}))
	_, _, err = lock.Get(ctx)
	require.True(t, apierrors.IsNotFound(err), "after the release: %v", err)
}

// Of a leadership that could not be renewed in time nothing is left, and the lock can be used again.
func TestExpiry(t *testing.T) {
	link := leasetest.NewLink(t, leasetest.Start(t, leasetest.Options("alone")).Address)
	lock, _ := newLock(t, link.Address, "me")
	record := resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaseDurationSeconds: 1}
	require.NoError(t, lock.Create(t.Context(), record))
	first := lock.Token()
	link.Cut()
	require.Eventually(t, func() bool {
		_, _, err := lock.Get(t.Context())
		return errors.Is(err, lease.ErrExpired)
	}, 2*time.Second, time.Millisecond)
	require.Zero(t, lock.Token())
	link.Restore()
	require.Eventually(t, func() bool { return lock.Create(t.Context(), record) == nil }, 30*time.Second, 10*time.Millisecond)
	require.Greater(t, lock.Token(), first)
}

// An acquire whose answer was lost is found again, and not waited for until it expires.
func TestAnAcquireWithoutAnAnswerIsRepeated(t *testing.T) {
	address := leasetest.Start(t, leasetest.Options("alone")).Address
	lost := false
	client, err := lease.Dial(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if _, ok := req.(*leasev1.AcquireRequest); ok && !lost {
				lost = true
				return context.DeadlineExceeded
			}
			return err
		}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	lock, err := leaselock.New(client, "election", "me")
	require.NoError(t, err)
	record := resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaseDurationSeconds: 10}
	err = lock.Create(t.Context(), record)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "me", holder(t, address))
	require.NoError(t, lock.Update(t.Context(), record))
	require.Positive(t, lock.Token())
}
