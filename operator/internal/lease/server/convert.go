package server

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

func pbMode(m core.Mode) leasev1.LeaseMode { return leasev1.LeaseMode(m) }

// hold shows a hold without anything that depends on the present instant.
func hold(h *core.Hold) *leasev1.Hold {
	out := &leasev1.Hold{
		Token: h.Token, Holder: h.Holder, Identity: h.Identity, Mode: pbMode(h.Mode), Permits: h.PermitsHeld,
		Ttl: durationpb.New(h.TTL), AcquiredAt: timestamppb.New(h.AcquiredAt), Metadata: h.Metadata, Value: h.Value,
		RequestId: h.RequestID,
	}
	if r := h.Revocation; r != nil {
		out.Revocation = &leasev1.Revocation{Reason: r.Reason, RequestedBy: r.RequestedBy, Force: r.Force}
	}
	return out
}

func holdView(v *core.HoldView) *leasev1.Hold {
	out := hold(&v.Hold)
	out.ExpiresIn = durationpb.New(v.ExpiresIn)
	out.Revocation = revocation(v)
	return out
}

func revocation(v *core.HoldView) *leasev1.Revocation {
	r := v.Revocation
	if r == nil {
		return nil
	}
	out := &leasev1.Revocation{Reason: r.Reason, RequestedBy: r.RequestedBy, Force: r.Force}
	if r.Period > 0 {
		out.DeadlineIn = durationpb.New(v.RevokeIn)
	}
	return out
}

func lease(v *core.LeaseView) *leasev1.Lease {
	out := &leasev1.Lease{
		Name: v.Name, Waiters: int32(v.Waiters), Revision: v.Revision, GraceUntil: graceUntil(v.GraceFor),
	}
	var taken int32
	for i := range v.Holds {
		h := &v.Holds[i]
		out.Holds = append(out.Holds, holdView(h))
		out.Mode, out.PermitsTotal = pbMode(h.Mode), h.PermitsTotal
		taken += h.PermitsHeld
	}
	out.PermitsFree = out.GetPermitsTotal() - taken
	for _, w := range v.Queue {
		out.Queue = append(out.Queue, &leasev1.Waiter{
			Holder: w.Holder, Identity: w.Identity, Mode: pbMode(w.Mode), Permits: w.Permits,
			Waited: durationpb.New(w.Waited), RequestId: w.RequestID,
		})
	}
	return out
}

// graceUntil is for people to read, so the wall clock will do.
func graceUntil(d time.Duration) *timestamppb.Timestamp {
	if d <= 0 {
		return nil
	}
	return timestamppb.New(time.Now().Add(d))
}

func acquired(name string, g *core.Grant) *leasev1.AcquireResponse {
	return &leasev1.AcquireResponse{
		Name: name, Token: g.Hold.Token, Ttl: durationpb.New(g.Hold.TTL), ExpiresIn: durationpb.New(g.Hold.ExpiresIn),
		Revision: g.Revision, RequestId: g.Hold.RequestID, GraceUntil: graceUntil(g.GraceFor), Waited: durationpb.New(g.Waited),
	}
}

func watchResponse(u store.Update) *leasev1.WatchResponse {
	out := &leasev1.WatchResponse{Revision: u.Revision}
	switch {
	case u.Snapshot != nil:
		snapshot := &leasev1.WatchSnapshot{Cause: leasev1.WatchSnapshot_CAUSE_START, Complete: u.Snapshot.Complete}
		if u.Snapshot.Compacted {
			snapshot.Cause = leasev1.WatchSnapshot_CAUSE_COMPACTED
		}
		for i := range u.Snapshot.Leases {
			snapshot.Leases = append(snapshot.Leases, storedLease(&u.Snapshot.Leases[i]))
		}
		out.Message = &leasev1.WatchResponse_Snapshot{Snapshot: snapshot}
	case len(u.Events) > 0:
		changes := &leasev1.WatchChanges{}
		for i := range u.Events {
			changes.Events = append(changes.Events, watchEvent(&u.Events[i]))
		}
		out.Message = &leasev1.WatchResponse_Changes{Changes: changes}
	default:
		out.Message = &leasev1.WatchResponse_Progress{Progress: &leasev1.WatchProgress{}}
	}
	return out
}

// storedLease shows a lease as the store has it: without the times that only its owner knows.
func storedLease(v *core.LeaseView) *leasev1.Lease {
	out := lease(v)
	for i := range v.Holds {
		out.Holds[i] = hold(&v.Holds[i].Hold)
	}
	return out
}

func watchEvent(e *store.Event) *leasev1.WatchEvent {
	out := &leasev1.WatchEvent{
		Kind: leasev1.WatchEvent_KIND_CHANGED, Name: e.Name, Hold: hold(&e.Hold), Revision: e.Revision,
	}
	switch {
	case e.Over:
		out.Kind, out.EndReason = leasev1.WatchEvent_KIND_ENDED, leasev1.EndReason(e.Ended)
	case e.Granted:
		out.Kind = leasev1.WatchEvent_KIND_GRANTED
	}
	return out
}
