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

// pageBytes is how much a page holds at most, unless it is one lease. Clients take 4 MiB.
const pageBytes = 1 << 20

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
	list := s.listEverywhere
	if who.forwarded {
		list = s.listHere
	}
	found, err := list(ctx, who, req, string(after), limit)
	if err != nil {
		return nil, s.toError(err)
	}
	return page(found, req.GetHolder(), limit), nil
}

// listed is what was read of the leases, by name. more says that there may be others after them.
type listed struct {
	leases []*leasev1.Lease
	more   bool
}

// cut leaves as many as a page may have: of a number, and of bytes.
func (l listed) cut(limit int) listed {
	bytes := 0
	for i, lease := range l.leases {
		bytes += lease.SizeVT()
		if i == limit || (i > 0 && bytes > pageBytes) {
			return listed{leases: l.leases[:i], more: true}
		}
	}
	return listed{leases: l.leases, more: l.more || len(l.leases) == limit}
}

// merge puts what owners have read together. Beyond the last name of one that has more nothing is known of that one, and so of all.
func merge(parts []listed) listed {
	var out listed
	end := ""
	for _, part := range parts {
		out.leases = append(out.leases, part.leases...)
		if n := len(part.leases); part.more && n > 0 {
			if last := part.leases[n-1].GetName(); !out.more || last < end {
				end = last
			}
			out.more = true
		}
	}
	slices.SortFunc(out.leases, func(a, b *leasev1.Lease) int { return strings.Compare(a.GetName(), b.GetName()) })
	if out.more {
		out.leases = slices.DeleteFunc(out.leases, func(l *leasev1.Lease) bool { return l.GetName() > end })
	}
	return out
}

// page cuts a page out of what was read. The filter comes last, so that the next page goes on after what was
// read and not only after what was shown.
func page(found listed, holder string, limit int) *leasev1.ListResponse {
	out := &leasev1.ListResponse{}
	found = found.cut(limit)
	if n := len(found.leases); n > 0 && found.more {
		out.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(found.leases[n-1].GetName()))
	}
	for _, l := range found.leases {
		if holder == "" || slices.ContainsFunc(l.GetHolds(), func(h *leasev1.Hold) bool { return h.GetHolder() == holder }) {
			out.Leases = append(out.Leases, l)
		}
	}
	return out
}

func (s *Server) listHere(_ context.Context, c caller, req *leasev1.ListRequest, after string, limit int) (listed, error) {
	shards, err := parseShards(c.shards)
	if err != nil {
		return listed{}, err
	}
	return s.listShards(shards, req, after, limit)
}

func (s *Server) listShards(shards []int, req *leasev1.ListRequest, after string, limit int) (listed, error) {
	views, err := s.engine.List(shards, req.GetPrefix(), after, limit)
	if err != nil {
		return listed{}, err
	}
	leases := make([]*leasev1.Lease, len(views))
	for i := range views {
		leases[i] = lease(&views[i])
	}
	return listed{leases: leases}.cut(limit), nil
}

func (s *Server) listEverywhere(ctx context.Context, c caller, req *leasev1.ListRequest, after string, limit int) (listed, error) {
	patience := time.NewTimer(s.opts.Patience)
	defer patience.Stop()
	for {
		changed := s.engine.Changed()
		found, err := s.listOnce(ctx, c, req, after, limit)
		if err == nil || !elsewhere(err) {
			return found, err
		}
		select {
		case <-changed:
		case <-time.After(routeRetry):
		case <-patience.C:
			return listed{}, &noOwnerError{name: req.GetPrefix()}
		case <-ctx.Done():
			return listed{}, ctx.Err()
		}
	}
}

func (s *Server) listOnce(ctx context.Context, c caller, req *leasev1.ListRequest, after string, limit int) (listed, error) {
	cluster, session := s.engine.Cluster(), s.engine.Session()
	if cluster == nil || session == 0 {
		return listed{}, engine.ErrUncertain
	}
	shards := map[string][]int{} // by address; here is ""
	for shard := range cluster.Claims {
		owner, ok := cluster.Owner(shard)
		if !ok {
			return listed{}, &engine.NotOwnerError{Shard: shard}
		}
		address := owner.Address
		if owner.Session == session {
			address = ""
		}
		shards[address] = append(shards[address], shard)
	}
	parts := make(chan listed, len(shards))
	group, ctx := errgroup.WithContext(ctx)
	for address, shards := range shards {
		group.Go(func() error {
			part, err := s.listAt(ctx, c, address, shards, req, after, limit)
			parts <- part
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return listed{}, err
	}
	close(parts)
	var all []listed
	for part := range parts {
		all = append(all, part)
	}
	return merge(all), nil
}

func (s *Server) listAt(ctx context.Context, c caller, address string, shards []int, req *leasev1.ListRequest, after string, limit int) (listed, error) {
	if address == "" {
		return s.listShards(shards, req, after, limit)
	}
	conn, err := s.peers.conn(address)
	if err != nil {
		return listed{}, err
	}
	ctx = metadata.AppendToOutgoingContext(forwardContext(ctx, c), shardsKey, formatShards(shards))
	page, err := leasev1.NewLeaseServiceClient(conn).List(ctx, &leasev1.ListRequest{
		Prefix: req.GetPrefix(), PageSize: int32(limit), PageToken: base64.RawURLEncoding.EncodeToString([]byte(after)),
	})
	// An older replica does not say that there is more, and cuts a page by the number alone.
	more := page.GetNextPageToken() != "" || len(page.GetLeases()) >= limit
	return listed{leases: page.GetLeases(), more: more}, orGone(ctx, err, shards[0])
}
