package lease

import (
	"context"
	"fmt"
	"iter"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// Leadership is a won election. It is a lease: it is kept until Release (which resigns) or loss, and its token fences.
type Leadership struct {
	*Lease

	client *Client
}

// Campaign waits until the candidate leads the election, or the context ends. WithValue sets what it proclaims.
func (c *Client) Campaign(ctx context.Context, election, candidate string, options ...Option) (*Leadership, error) {
	l, err := c.Acquire(ctx, election, append(options, WithHolder(candidate))...)
	if err != nil {
		return nil, err
	}
	return &Leadership{Lease: l, client: c}, nil
}

// Proclaim changes what the leader proclaims. It fails with ErrNotHeld when the leadership is over.
func (l *Leadership) Proclaim(ctx context.Context, value []byte) error {
	_, err := l.client.elections.Proclaim(ctx, &leasev1.ProclaimRequest{Name: l.Name(), Token: l.Token(), Value: value})
	if err != nil {
		return Typed(l.Name(), err)
	}
	return nil
}

// Transfer hands the leadership to a candidate that is campaigning, with no leaderless moment in between. This leadership is
// over as soon as it is called, unless it fails because nobody of that name campaigns: then it goes on. After any
// other error it is given up.
func (l *Leadership) Transfer(ctx context.Context, to string) error {
	_, err := l.client.elections.Transfer(ctx, &leasev1.TransferRequest{Name: l.Name(), Token: l.Token(), To: to})
	if status.Code(err) == codes.FailedPrecondition {
		return Typed(l.Name(), err)
	}
	if err != nil {
		return fmt.Errorf("%w (resigned: %w)", Typed(l.Name(), err), l.Release(ctx))
	}
	l.cancel(ErrReleased)
	return nil
}

// Leader is who leads an election. The zero value is nobody.
type Leader struct {
	Candidate string
	Token     int64
	Value     []byte
	Metadata  map[string]string
}

// Observe yields the leader of an election: the present one at once, then each new one and each new value, until the context ends
// or the service refuses. Nobody leads while Candidate is empty. It carries on over broken connections without leaving out a
// change, unless it was away for so long that the store has compacted its history: then the present leader comes next.
func (c *Client) Observe(ctx context.Context, election string) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		after := int64(0)
		for pause := retryFirst; ; pause = min(2*pause, retryMost) {
			stream, err := c.elections.Observe(ctx, &leasev1.ObserveRequest{Name: election, AfterRevision: after})
			for err == nil {
				var got *leasev1.ObserveResponse
				if got, err = stream.Recv(); err != nil {
					break
				}
				after, pause = got.GetRevision(), retryFirst
				l := got.GetLeader()
				leader := Leader{Candidate: l.GetCandidate(), Token: l.GetToken(), Value: l.GetValue(), Metadata: l.GetMetadata()}
				if !yield(leader, nil) {
					return
				}
			}
			if status.Code(err) != codes.Unavailable || !sleep(ctx, jittered(pause)) {
				yield(Leader{}, Typed(election, err))
				return
			}
		}
	}
}
