// Package leaselock lets the leader election of client-go, and with it that of any controller, elect through the lease
// service:
//
//	lock, err := leaselock.New(client, "scheduler", podName)
//	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{Lock: lock, ReleaseOnCancel: true, ...})
//	ctrl.NewManager(config, ctrl.Options{LeaderElection: true, LeaderElectionResourceLockInterface: lock, ...})
//
// The election is the exclusive lease of that name, with the election's LeaseDuration as TTL (the service grants 1 s at
// least). It is renewed when the elector says so, every RetryPeriod, and not by itself: an elector that hangs loses it.
// Unlike with a Lease object of Kubernetes, clocks need not agree, a release is heard of at once by the next try, and there is
// a fencing token.
//
// One thing differs for those who restart under the same identity, such as the pods of a StatefulSet: they do not resume their
// own leadership, but get it anew when the former one was released or has expired. So the token always tells the two apart.
package leaselock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/holdfast-io/holdfast/operator/internal/lease/clock"
	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

const (
	// minCall is the least time that a call gets, and maxCall the most while nothing is held.
	minCall = 500 * time.Millisecond
	maxCall = 5 * time.Second
)

// Lock implements resourcelock.Interface. Its methods are safe for concurrent use. Make it with New, one for each elector.
type Lock struct {
	service  leasev1.LeaseServiceClient
	name     string
	identity string
	// Metadata is shown with the leadership; nil: nothing. It must not be changed while an elector runs.
	Metadata map[string]string
	// OnEvent is told when this candidate becomes the leader or stops being it; nil: nobody is.
	OnEvent func(event string)

	token atomic.Int64 // 0: not held
	mu    sync.Mutex   // one call at a time
	ttl   time.Duration
	// until is when the leadership is over if it is not renewed.
	until core.Instant
	// requestID is that of an acquire whose outcome is not known; empty: there is none.
	requestID string
	looks     int64
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns the lock of an election for a candidate, whose identity no other candidate may have.
func New(client *lease.Client, election, identity string) (*Lock, error) {
	if election == "" || identity == "" {
		return nil, fmt.Errorf("election is %q and identity %q; neither may be empty", election, identity)
	}
	return &Lock{service: client.Service(), name: election, identity: identity}, nil
}

// Token returns the fencing token of the leadership; 0: this candidate does not lead, as far as it knows.
func (l *Lock) Token() int64 { return l.token.Load() }

// Identity implements resourcelock.Interface.
func (l *Lock) Identity() string { return l.identity }

// Describe implements resourcelock.Interface.
func (l *Lock) Describe() string { return "lease " + l.name }

// RecordEvent implements resourcelock.Interface.
func (l *Lock) RecordEvent(event string) {
	if l.OnEvent != nil {
		l.OnEvent(l.identity + " " + event)
	}
}

// Get implements resourcelock.Interface. The service does not count transitions.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.expire(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	got, err := l.service.Get(ctx, &leasev1.GetRequest{Name: l.name})
	if err != nil {
		return nil, nil, lease.Typed(l.name, err)
	}
	holds := got.GetLease().GetHolds()
	if len(holds) == 0 {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Group: "lease.dist.system", Resource: "leases"}, l.name)
	}
	hold := holds[0]
	l.looks++
	// The elector takes a record that stays the same for a whole lease duration as abandoned. That a hold is shown means that it lives.
	raw := fmt.Appendf(nil, "%d/%d", hold.GetToken(), l.looks)
	return &resourcelock.LeaderElectionRecord{
		HolderIdentity:       hold.GetHolder(),
		LeaseDurationSeconds: int(hold.GetTtl().AsDuration() / time.Second),
		AcquireTime:          metav1.NewTime(hold.GetAcquiredAt().AsTime()),
		RenewTime:            metav1.Now(),
	}, raw, nil
}

// Create implements resourcelock.Interface: it acquires the lease, without waiting.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	ttl := time.Duration(record.LeaseDurationSeconds) * time.Second
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acquire(ctx, ttl)
}

// Update implements resourcelock.Interface: it renews the lease, or releases it if the record names no holder. A candidate that has no lease
// acquires it.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.expire(); err != nil {
		return err
	}
	switch {
	case record.HolderIdentity == "":
		return l.release(ctx)
	case l.token.Load() == 0:
		return l.acquire(ctx, time.Duration(record.LeaseDurationSeconds)*time.Second)
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	sent := clock.Now()
	kept, err := l.service.KeepAlive(ctx, &leasev1.KeepAliveRequest{Name: l.name, Token: l.token.Load()})
	if err != nil {
		err = lease.Typed(l.name, err)
		if errors.Is(err, lease.ErrNotHeld) {
			l.token.Store(0)
		}
		return err
	}
	l.extend(sent, kept.GetExpiresIn().AsDuration())
	return nil
}

// extend leaves a tenth for clocks that run at different rates.
func (l *Lock) extend(from core.Instant, expiresIn time.Duration) {
	l.until = from.Add(expiresIn - expiresIn/10)
}

func (l *Lock) acquire(ctx context.Context, ttl time.Duration) error {
	if l.requestID == "" {
		l.requestID = lease.NewRequestID()
	}
	ctx, cancel := context.WithTimeout(ctx, max(ttl/10, minCall))
	defer cancel()
	sent := clock.Now()
	got, err := l.service.Acquire(ctx, &leasev1.AcquireRequest{
		Name: l.name, Holder: l.identity, Ttl: durationpb.New(ttl), RequestId: l.requestID, Metadata: l.Metadata,
	})
	if !unknown(err) {
		l.requestID = ""
	}
	if err != nil {
		return lease.Typed(l.name, err)
	}
	l.ttl = got.GetTtl().AsDuration()
	l.extend(sent, got.GetExpiresIn().AsDuration())
	l.token.Store(got.GetToken())
	return nil
}

func (l *Lock) release(ctx context.Context) error {
	token := l.token.Load()
	if token == 0 {
		return nil
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	if _, err := l.service.Release(ctx, &leasev1.ReleaseRequest{Name: l.name, Token: token}); err != nil {
		return lease.Typed(l.name, err)
	}
	l.token.Store(0)
	return nil
}

// expire gives up a leadership that may be over, and says so once.
func (l *Lock) expire() error {
	if l.token.Load() == 0 || l.until > clock.Now() {
		return nil
	}
	l.token.Store(0)
	return fmt.Errorf("lease %q: %w", l.name, lease.ErrExpired)
}

// unknown says whether a call that failed may have had an effect all the same.
func unknown(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal:
		return true
	default:
		return false
	}
}

// bounded gives a leader's call a tenth of the TTL, and nothing beyond the end of its leadership. The elector counts the time until it
// gives up from an answer, while the service counts from before it, so that an answer that took longer must not count. And the elector,
// when it has given up, first makes calls to release, and stops what it leads only then.
func (l *Lock) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.token.Load() == 0 {
		return context.WithTimeout(ctx, maxCall)
	}
	return context.WithTimeout(ctx, min(max(l.ttl/10, minCall), l.until.Sub(clock.Now())))
}
