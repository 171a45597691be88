package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
)

// countsEvery is how often changed numbers are streamed at most; changes of who leads and who is ready are
// streamed at once.
const countsEvery = time.Second

// GetStatus implements LeaseStatusService.
func (s *Server) GetStatus(context.Context, *leasestatus.GetStatusRequest) (*leasestatus.GetStatusResponse, error) {
	return s.status(), nil
}

// WatchStatus implements LeaseStatusService.
func (s *Server) WatchStatus(_ *leasestatus.WatchStatusRequest, stream grpc.ServerStreamingServer[leasestatus.WatchStatusResponse]) error {
	ctx, cancel := s.streamContext(stream.Context())
	defer cancel()
	var sent *leasestatus.GetStatusResponse
	var sentAt time.Time
	ticker := time.NewTicker(healthEvery)
	defer ticker.Stop()
	for {
		changed := s.engine.Changed()
		next := s.status()
		if sent == nil || roleChanged(sent, next) || (time.Since(sentAt) >= countsEvery && countsChanged(sent, next)) {
			if err := stream.Send(&leasestatus.WatchStatusResponse{Status: next}); err != nil {
				return err
			}
			sent, sentAt = next, time.Now()
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-ctx.Done():
			return s.streamError(ctx, ctx.Err())
		}
	}
}

func roleChanged(a, b *leasestatus.GetStatusResponse) bool {
	return a.GetIsLeader() != b.GetIsLeader() || a.GetLeader() != b.GetLeader() || a.GetLeaderTerm() != b.GetLeaderTerm() || a.GetReady() != b.GetReady() ||
		a.GetDraining() != b.GetDraining()
}

func countsChanged(a, b *leasestatus.GetStatusResponse) bool {
	replica := func(x, y *leasestatus.ReplicaStatus) bool {
		return x.GetName() == y.GetName() && x.GetShards() == y.GetShards() && x.GetDraining() == y.GetDraining() &&
			x.GetAddress() == y.GetAddress()
	}
	return a.GetActiveLeases() != b.GetActiveLeases() || a.GetWaiters() != b.GetWaiters() || a.GetShards() != b.GetShards() ||
		a.GetSessions() != b.GetSessions() || a.GetReason() != b.GetReason() || !slices.EqualFunc(a.GetReplicas(), b.GetReplicas(), replica)
}

func (s *Server) status() *leasestatus.GetStatusResponse {
	st := s.engine.Status()
	out := &leasestatus.GetStatusResponse{
		IsLeader: st.Leading, PodName: s.opts.Name, ActiveLeases: st.Holds, Ready: st.Certain,
		Version: s.opts.Version, Waiters: st.Waiters, Shards: int32(st.Shards), ShardsTotal: int32(s.engine.Shards()),
		Uptime: durationpb.New(s.opts.Clock().Sub(s.started)), Draining: st.Draining,
		Sessions: s.metrics.open.Load(),
		Store:    &leasestatus.StoreStatus{Embedded: s.opts.Embedded, SessionExpiresIn: durationpb.New(st.CertainFor)},
	}
	for _, q := range st.Quotas {
		out.Quotas = append(out.Quotas, &leasestatus.QuotaStatus{Name: q.Name, Limit: q.Limit, Used: q.Used, Refused: q.Refused})
	}
	out.Quotas = append(out.Quotas, s.requestQuotas()...)
	out.Reason = st.Trouble
	if !st.Certain {
		out.Reason = "the session with the store is not certain"
		if st.Trouble != "" {
			out.Reason += ": " + st.Trouble
		}
	}
	cluster := s.engine.Cluster()
	if cluster == nil {
		return out
	}
	out.Store.Revision = cluster.Revision
	owned := map[string]int32{}
	for shard := range cluster.Claims {
		if m, ok := cluster.Owner(shard); ok {
			owned[m.Name]++
		}
	}
	for _, m := range cluster.Members {
		leads := m.Session == cluster.Leader.Session
		if leads {
			out.Leader, out.LeaderTerm = m.Name, cluster.Leader.Revision
		}
		out.Replicas = append(out.Replicas, &leasestatus.ReplicaStatus{
			Name: m.Name, Address: m.Address, Shards: owned[m.Name], Draining: m.Draining, Leader: leads,
		})
	}
	slices.SortFunc(out.Replicas, func(a, b *leasestatus.ReplicaStatus) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}
