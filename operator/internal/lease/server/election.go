package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// elections implements ElectionService on leases.
type elections struct {
	leasev1.UnimplementedElectionServiceServer
	server *Server
}

// Campaign implements ElectionService.
func (e *elections) Campaign(ctx context.Context, req *leasev1.CampaignRequest) (*leasev1.CampaignResponse, error) {
	if req.GetCandidate() == "" {
		return nil, e.server.toError(&InvalidError{Violations: []Violation{{Field: "candidate", Problem: "is empty; it is required"}}})
	}
	acquire := &leasev1.AcquireRequest{
		Name: req.GetName(), Mode: leasev1.LeaseMode_LEASE_MODE_EXCLUSIVE, Holder: req.GetCandidate(), Ttl: req.GetTtl(),
		Metadata: req.GetMetadata(), Value: req.GetValue(), RequestId: req.GetRequestId(),
		Wait: &leasev1.Wait{Timeout: req.GetWaitTimeout()},
	}
	grant, err := e.server.acquireFor(ctx, acquire, e.server.callerOf(ctx))
	if err != nil {
		return nil, e.server.toError(err)
	}
	return &leasev1.CampaignResponse{
		Leader: &leasev1.Leader{
			Candidate: req.GetCandidate(), Identity: e.server.callerOf(ctx).identity, Token: grant.GetToken(), Value: req.GetValue(),
			Metadata: req.GetMetadata(), ElectedAt: timestamppb.Now(),
		},
		Ttl: grant.GetTtl(), ExpiresIn: grant.GetExpiresIn(), Revision: grant.GetRevision(), GraceUntil: grant.GetGraceUntil(),
	}, nil
}

// Observe implements ElectionService.
func (e *elections) Observe(req *leasev1.ObserveRequest, stream grpc.ServerStreamingServer[leasev1.ObserveResponse]) error {
	var c checker
	c.name(req.GetName())
	c.require(req.GetAfterRevision() >= 0, "after_revision", "is %d; it must not be negative", req.GetAfterRevision())
	if err := c.err(); err != nil {
		return e.server.toError(err)
	}
	return e.server.watch(stream.Context(), store.Target{Name: req.GetName()}, req.GetAfterRevision(), func(u store.Update) error {
		if response := observed(u); response != nil {
			return stream.Send(response)
		}
		return nil
	})
}

// observed says who leads after an update; nil: it says nothing about that. An end and a grant of one revision are
// one change of leader.
func observed(u store.Update) *leasev1.ObserveResponse {
	out := &leasev1.ObserveResponse{Revision: u.Revision}
	if u.Snapshot != nil {
		out.Present = true
		for i := range u.Snapshot.Leases {
			if holds := u.Snapshot.Leases[i].Holds; len(holds) > 0 {
				out.Leader = leader(&holds[0].Hold)
			}
		}
		return out
	}
	if len(u.Events) == 0 {
		return nil
	}
	for i := range u.Events {
		event := &u.Events[i]
		if event.Over {
			out.Leader, out.FormerEnded = nil, leasev1.EndReason(event.Ended)
			continue
		}
		out.Leader = leader(&event.Hold)
	}
	return out
}

func leader(h *core.Hold) *leasev1.Leader {
	return &leasev1.Leader{
		Candidate: h.Holder, Identity: h.Identity, Token: h.Token, Value: h.Value, Metadata: h.Metadata,
		ElectedAt: timestamppb.New(h.AcquiredAt),
	}
}

// Proclaim implements ElectionService.
func (e *elections) Proclaim(ctx context.Context, req *leasev1.ProclaimRequest) (*leasev1.ProclaimResponse, error) {
	var c checker
	c.name(req.GetName())
	c.token(req.GetToken())
	c.atMost("value", len(req.GetValue()), e.server.maxValue())
	e.server.refused.count(&c, false)
	if err := c.err(); err != nil {
		return nil, e.server.toError(err)
	}
	local := func(ctx context.Context) (*leasev1.ProclaimResponse, error) {
		changed, err := e.server.engine.Change(ctx, req.GetName(), req.GetToken(), req.GetValue())
		if err != nil {
			return nil, err
		}
		return &leasev1.ProclaimResponse{Revision: changed.Revision}, nil
	}
	got, err := onConn(ctx, e.server, e.server.callerOf(ctx), req.GetName(), local,
		func(ctx context.Context, conn *grpc.ClientConn) (*leasev1.ProclaimResponse, error) {
			return leasev1.NewElectionServiceClient(conn).Proclaim(ctx, req)
		})
	return got, e.server.toError(err)
}

// Resign implements ElectionService.
func (e *elections) Resign(ctx context.Context, req *leasev1.ResignRequest) (*leasev1.ResignResponse, error) {
	released, err := e.server.Release(ctx, &leasev1.ReleaseRequest{Name: req.GetName(), Token: req.GetToken()})
	if err != nil {
		return nil, err
	}
	return &leasev1.ResignResponse{Resigned: released.GetReleased(), Revision: released.GetRevision()}, nil
}

// Transfer implements ElectionService.
//
// A transfer whose outcome is not known is repeated. It names the token of the hold, so it cannot happen twice; but when the hold is over by
// then nobody can tell whether an earlier try handed it over or its TTL ended it, so the answer is that it is not held. Who leads, Observe tells.
func (e *elections) Transfer(ctx context.Context, req *leasev1.TransferRequest) (*leasev1.TransferResponse, error) {
	var c checker
	c.name(req.GetName())
	c.token(req.GetToken())
	c.require(req.GetTo() != "", "to", "is empty; it is required")
	if err := c.err(); err != nil {
		return nil, e.server.toError(err)
	}
	local := func(ctx context.Context) (*leasev1.TransferResponse, error) {
		changed, err := e.server.engine.Transfer(ctx, req.GetName(), req.GetToken(), req.GetTo())
		if err != nil {
			return nil, err
		}
		return &leasev1.TransferResponse{Leader: leader(&changed.Holds[0].Hold), Revision: changed.Revision}, nil
	}
	got, err := onConn(ctx, e.server, e.server.callerOf(ctx), req.GetName(), local,
		func(ctx context.Context, conn *grpc.ClientConn) (*leasev1.TransferResponse, error) {
			return leasev1.NewElectionServiceClient(conn).Transfer(ctx, req)
		})
	return got, e.server.toError(err)
}
