package server

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// Revoke implements LeaseService. All holds of a name are those that it has when the call comes: each is revoked by its token, so that what
// is repeated, because its outcome is not known, never touches who was granted the name since.
func (s *Server) Revoke(ctx context.Context, req *leasev1.RevokeRequest) (*leasev1.RevokeResponse, error) {
	who := s.callerOf(ctx)
	asked, err := revocationOf(req, who)
	if err != nil {
		return nil, s.toError(err)
	}
	if req.GetToken() != 0 {
		got, err := s.revoke(ctx, who, req, asked)
		return got, s.toError(err)
	}
	got, err := s.revokeAll(ctx, who, req, asked)
	return got, s.toError(err)
}

func revocationOf(req *leasev1.RevokeRequest, who caller) (core.Revocation, error) {
	var c checker
	c.name(req.GetName())
	c.require(req.GetToken() >= 0, "token", "is %d; it must not be negative", req.GetToken())
	c.text("reason", req.GetReason(), maxReason)
	c.text("requested_by", req.GetRequestedBy(), maxHolder)
	asked := core.Revocation{
		Reason: req.GetReason(), RequestedBy: who.identity, Force: req.GetForce(),
		Period: c.duration("deadline", req.GetDeadline()),
	}
	if asked.RequestedBy == "" {
		asked.RequestedBy = req.GetRequestedBy()
	}
	return asked, c.err()
}

// revokeAll revokes the holds that there are now. Those that end meanwhile are as their holders were asked, and no reason to leave out the
// others.
func (s *Server) revokeAll(ctx context.Context, who caller, req *leasev1.RevokeRequest, asked core.Revocation) (*leasev1.RevokeResponse, error) {
	found, err := s.getFor(ctx, &leasev1.GetRequest{Name: req.GetName()}, who)
	if err != nil {
		return nil, err
	}
	holds := found.GetLease().GetHolds()
	if len(holds) == 0 {
		return nil, &core.NotHeldError{Name: req.GetName()}
	}
	out := &leasev1.RevokeResponse{Ended: true}
	bytes := 0
	for _, h := range holds {
		one := proto.CloneOf(req)
		one.Token = h.GetToken()
		got, err := s.revoke(ctx, who, one, asked)
		if isNotHeld(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, h := range got.GetHolds() {
			if bytes += h.SizeVT(); bytes > pageBytes {
				brief(h)
			}
			out.Holds = append(out.Holds, h)
		}
		out.Ended, out.Revision = got.GetEnded(), max(out.GetRevision(), got.GetRevision())
	}
	return out, nil
}

// revoke revokes the hold that has the token. When it is over once the call is made again, an earlier try, whose answer got lost, may have
// ended it, or its TTL: nobody can tell any more. So the answer is then that it is not held, which is true, and not that this call ended it.
func (s *Server) revoke(ctx context.Context, who caller, req *leasev1.RevokeRequest, asked core.Revocation) (*leasev1.RevokeResponse, error) {
	local := func(ctx context.Context) (*leasev1.RevokeResponse, error) {
		changed, err := s.engine.Revoke(ctx, req.GetName(), req.GetToken(), asked)
		if err != nil {
			return nil, err
		}
		out := &leasev1.RevokeResponse{Ended: changed.Ended, Revision: changed.Revision}
		for i := range changed.Holds {
			out.Holds = append(out.Holds, holdView(&changed.Holds[i]))
		}
		return out, nil
	}
	return at(ctx, s, who, req.GetName(), local,
		func(ctx context.Context, owner leasev1.LeaseServiceClient) (*leasev1.RevokeResponse, error) {
			return owner.Revoke(ctx, req)
		})
}

// isNotHeld says whether a hold is over, by the error of this replica or of another one.
func isNotHeld(err error) bool {
	var over *core.NotHeldError
	if errors.As(err, &over) {
		return true
	}
	return status.Code(err) == codes.NotFound && reasonOf(err).GetReason() == reasonName(leasev1.ErrorReason_ERROR_REASON_LEASE_NOT_HELD)
}
