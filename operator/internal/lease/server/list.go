package server

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// List implements LeaseService. Names are spread over all replicas, so each owner is asked for the page
// that its own shards would give, and the pages are merged.
func (s *Server) List(ctx context.Context, req *leasev1.ListRequest) (*leasev1.ListResponse, error) {
	var c checker
	c.prefix(req.GetPrefix())
	c.require(req.GetPageSize() >= 0, "page_size", "is %d; it must not be negative", req.GetPageSize())
	after, err := base64.RawURLEncoding.DecodeString(req.GetPageToken())
	c.require(err == nil, "page_token", "is none that a list returned")
	if err := c.err(); err != nil {
		return nil, s.toError(err)
	}
	limit := int(min(req.GetPageSize(), maxPage))
	if limit == 0 {
		limit = defaultPage
	}
	who := s.callerOf(ctx)
	if who.forwarded {
		return s.listHere(who, req, string(after), limit)
	}
	leases, err := s.listEverywhere(ctx, who, req, string(after), limit)
	if err != nil {
		return nil, s.toError(err)
	}
	return page(leases, req.GetHolder(), limit), nil
}

// page cuts a page out of what was read. The filter comes last, so that the next page goes on after what was
// read and not only after what was shown.
func page(leases []*leasev1.Lease, holder string, limit int) *leasev1.ListResponse {
	out := &leasev1.ListResponse{}
	if len(leases) >= limit {
		leases = leases[:limit]
		out.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(leases[limit-1].GetName()))
	}
	for _, l := range leases {
		if holder == "" || slices.ContainsFunc(l.GetHolds(), func(h *leasev1.Hold) bool { return h.GetHolder() == holder }) {
			out.Leases = append(out.Leases, l)
		}
	}
	return out
}

func (s *Server) listHere(c caller, req *leasev1.ListRequest, after string, limit int) (*leasev1.ListResponse, error) {
	shards, err := parseShards(c.shards)
	if err != nil {
		return nil, s.toError(err)
	}
	leases, err := s.listShards(shards, req, after, limit)
	if err != nil {
		return nil, s.toError(err)
	}
	return &leasev1.ListResponse{Leases: leases}, nil
}

func (s *Server) listShards(shards []int, req *leasev1.ListRequest, after string, limit int) ([]*leasev1.Lease, error) {
	views, err := s.engine.List(shards, req.GetPrefix(), after, limit)
	if err != nil {
		return nil, err
	}
	leases := make([]*leasev1.Lease, len(views))
	for i := range views {
		leases[i] = lease(&views[i])
	}
	return leases, nil
}

func (s *Server) listEverywhere(ctx context.Context, c caller, req *leasev1.ListRequest, after string, limit int) ([]*leasev1.Lease, error) {
	patience := time.NewTimer(s.opts.Patience)
	defer patience.Stop()
	for {
		changed := s.engine.Changed()
		leases, err := s.listOnce(ctx, c, req, after, limit)
		if err == nil || !elsewhere(err) {
			return leases, err
		}
		select {
		case <-changed:
		case <-time.After(routeRetry):
		case <-patience.C:
			return nil, &noOwnerError{name: req.GetPrefix()}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *Server) listOnce(ctx context.Context, c caller, req *leasev1.ListRequest, after string, limit int) ([]*leasev1.Lease, error) {
	cluster, session := s.engine.Cluster(), s.engine.Session()
	if cluster == nil || session == 0 {
		return nil, engine.ErrUncertain
	}
	shards := map[string][]int{} // by address; here is ""
	for shard := range cluster.Claims {
		owner, ok := cluster.Owner(shard)
		if !ok {
			return nil, &engine.NotOwnerError{Shard: shard}
		}
		address := owner.Address
		if owner.Session == session {
			address = ""
		}
		shards[address] = append(shards[address], shard)
	}
	pages := make(chan []*leasev1.Lease, len(shards))
	group, ctx := errgroup.WithContext(ctx)
	for address, shards := range shards {
		group.Go(func() error {
			leases, err := s.listAt(ctx, c, address, shards, req, after, limit)
			pages <- leases
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	close(pages)
	var leases []*leasev1.Lease
	for page := range pages {
		leases = append(leases, page...)
	}
	slices.SortFunc(leases, func(a, b *leasev1.Lease) int { return strings.Compare(a.GetName(), b.GetName()) })
	return leases, nil
}

func (s *Server) listAt(ctx context.Context, c caller, address string, shards []int, req *leasev1.ListRequest, after string, limit int) ([]*leasev1.Lease, error) {
	if address == "" {
		return s.listShards(shards, req, after, limit)
	}
	conn, err := s.peers.conn(address)
	if err != nil {
		return nil, err
	}
	ctx = metadata.AppendToOutgoingContext(forwardContext(ctx, c), shardsKey, formatShards(shards))
	page, err := leasev1.NewLeaseServiceClient(conn).List(ctx, &leasev1.ListRequest{
		Prefix: req.GetPrefix(), PageSize: int32(limit), PageToken: base64.RawURLEncoding.EncodeToString([]byte(after)),
	})
	return page.GetLeases(), orGone(ctx, err, shards[0])
}
