package server

import (
	"cmp"
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// GetShardMap implements LeaseService.
func (s *Server) GetShardMap(context.Context, *leasev1.GetShardMapRequest) (*leasev1.GetShardMapResponse, error) {
	cluster := s.engine.Cluster()
	if err := s.engine.CutOffError(); cluster == nil || err != nil {
		return nil, s.toError(cmp.Or(err, engine.ErrUncertain))
	}
	return &leasev1.GetShardMapResponse{Map: shardMap(cluster)}, nil
}

// WatchShardMap implements LeaseService. It ends when this replica is cut off from the store: the map may be another one by then, and a
// client that went by it would come back here.
func (s *Server) WatchShardMap(_ *leasev1.WatchShardMapRequest, stream grpc.ServerStreamingServer[leasev1.WatchShardMapResponse]) error {
	if err := s.engine.CutOffError(); err != nil {
		return s.toError(err)
	}
	ctx, cancel := s.servingContext(stream.Context())
	defer cancel()
	var sent *leasev1.ShardMap
	for {
		changed := s.engine.Changed()
		if cluster := s.engine.Cluster(); cluster != nil {
			next := shardMap(cluster)
			if !sameMap(sent, next) {
				if err := stream.Send(&leasev1.WatchShardMapResponse{Map: next}); err != nil {
					return err
				}
				sent = next
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s.streamError(ctx, ctx.Err())
		}
	}
}

// sameMap compares two maps apart from their revisions.
func sameMap(a, b *leasev1.ShardMap) bool {
	if a == nil {
		return false
	}
	c := proto.CloneOf(b)
	c.Revision = a.GetRevision()
	return proto.Equal(a, c)
}

func shardMap(c *store.Cluster) *leasev1.ShardMap {
	out := &leasev1.ShardMap{Revision: c.Revision, ShardCount: int32(len(c.Claims))}
	members := map[store.SessionID]*leasev1.ShardMember{}
	for _, m := range c.Members {
		member := &leasev1.ShardMember{Name: m.Name, Address: m.Address, Draining: m.Draining, Session: int64(m.Session)}
		members[m.Session] = member
		out.Members = append(out.Members, member)
	}
	for shard, claim := range c.Claims {
		if m := members[claim.Session]; m != nil {
			m.Shards = append(m.Shards, int32(shard))
		}
	}
	return out
}
