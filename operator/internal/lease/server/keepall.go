package server

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

const (
	// maxKeepAll is how many holds one call may name.
	maxKeepAll = 10_000
	// keepPart is how many of them go to their owner at a time; with the longest names they take half of what a message may.
	keepPart = 1000
	// keepParallel is how many owners, or single holds, are asked at a time.
	keepParallel = 32
)

// KeepAliveAll implements LeaseService.
func (s *Server) KeepAliveAll(ctx context.Context, req *leasev1.KeepAliveAllRequest) (*leasev1.KeepAliveAllResponse, error) {
	var c checker
	c.require(len(req.GetHolds()) <= maxKeepAll, "holds", "has %d entries; at most %d are allowed", len(req.GetHolds()), maxKeepAll)
	if err := c.err(); err != nil {
		return nil, s.toError(err)
	}
	out := &leasev1.KeepAliveAllResponse{Results: make([]*leasev1.KeepAliveResult, len(req.GetHolds()))}
	s.keepAll(ctx, s.callerOf(ctx), req.GetHolds(), func(i int, kept *leasev1.KeepAliveResponse, err error) {
		if err == nil {
			out.Results[i] = &leasev1.KeepAliveResult{Result: &leasev1.KeepAliveResult_Kept{Kept: kept}}
			return
		}
		st := status.Convert(s.toError(err)).Proto()
		out.Results[i] = &leasev1.KeepAliveResult{Result: &leasev1.KeepAliveResult_Refused{Refused: &leasev1.SessionRefused{
			Code: st.GetCode(), Message: st.GetMessage(), Details: st.GetDetails(),
		}}}
	})
	return out, nil
}

// keepAll keeps holds alive: those served here by themselves, the others by one call to each of their owners. It tells the result of each
// hold once, from any goroutine.
func (s *Server) keepAll(ctx context.Context, who caller, holds []*leasev1.KeepAliveRequest, tell func(int, *leasev1.KeepAliveResponse, error)) {
	var single []int
	elsewhere := map[string][]int{} // by the owner's address
	for i, h := range holds {
		if err := checkHold(h.GetName(), h.GetToken()); err != nil {
			tell(i, nil, err)
			continue
		}
		kept, err := s.engine.KeepAlive(h.GetName(), h.GetToken())
		var moved *engine.NotOwnerError
		switch {
		case who.forwarded || !errors.As(err, &moved):
			tell(i, keptResponse(&kept, err), err)
		default:
			if address, ok := s.owner(moved.Shard); ok {
				elsewhere[address] = append(elsewhere[address], i)
			} else {
				single = append(single, i)
			}
		}
	}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(keepParallel)
	for address, some := range elsewhere {
		group.Go(func() error {
			missed := s.keepAt(ctx, who, address, holds, some, tell)
			mu.Lock()
			defer mu.Unlock()
			single = append(single, missed...)
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	for _, i := range single {
		group.Go(func() error {
			kept, err := s.keepOne(ctx, who, holds[i])
			tell(i, kept, err)
			return nil
		})
	}
	_ = group.Wait() // as above
}

// keepAt asks an owner to keep some of the holds alive. It returns those that have to be tried one by one, wherever they are served.
func (s *Server) keepAt(ctx context.Context, who caller, address string, holds []*leasev1.KeepAliveRequest, some []int,
	tell func(int, *leasev1.KeepAliveResponse, error),
) (missed []int) {
	conn, err := s.peers.conn(address)
	if err != nil {
		return some
	}
	for len(some) > 0 {
		part := some[:min(len(some), keepPart)]
		req := &leasev1.KeepAliveAllRequest{Holds: make([]*leasev1.KeepAliveRequest, len(part))}
		for k, i := range part {
			req.Holds[k] = holds[i]
		}
		s.metrics.forwarded.Inc()
		got, err := leasev1.NewLeaseServiceClient(conn).KeepAliveAll(forwardContext(ctx, who), req)
		if err != nil || len(got.GetResults()) != len(part) {
			return append(missed, some...)
		}
		for k, result := range got.GetResults() {
			refused := result.GetRefused()
			switch {
			case refused == nil:
				tell(part[k], result.GetKept(), nil)
			case codes.Code(refused.GetCode()) == codes.Unavailable:
				missed = append(missed, part[k])
			default:
				tell(part[k], nil, status.FromProto(&spb.Status{Code: refused.GetCode(), Message: refused.GetMessage(), Details: refused.GetDetails()}).Err())
			}
		}
		some = some[len(part):]
	}
	return missed
}

func keptResponse(kept *core.KeepAliveResult, err error) *leasev1.KeepAliveResponse {
	if err != nil {
		return nil
	}
	return &leasev1.KeepAliveResponse{
		Ttl: durationpb.New(kept.Hold.TTL), ExpiresIn: durationpb.New(kept.Hold.ExpiresIn),
		GraceUntil: graceUntil(kept.GraceFor), Revocation: revocation(&kept.Hold),
	}
}
