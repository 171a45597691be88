package server

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// Acquire implements LeaseService.
func (s *Server) Acquire(ctx context.Context, req *leasev1.AcquireRequest) (*leasev1.AcquireResponse, error) {
	grant, err := s.acquireFor(ctx, req, s.callerOf(ctx))
	return grant, s.toError(err)
}

func (s *Server) acquireFor(ctx context.Context, req *leasev1.AcquireRequest, who caller) (*leasev1.AcquireResponse, error) {
	asked, err := s.acquireRequest(req, who)
	if err != nil {
		return nil, err
	}
	// The wait goes on where it was, and in its place in line, when the name changes its owner.
	var began core.Instant
	if asked.Wait {
		began = s.opts.Clock()
	}
	waited := func() time.Duration { return asked.Waited + s.opts.Clock().Sub(began) }
	left := func() time.Duration {
		if asked.WaitFor == 0 {
			return 0
		}
		return max(asked.WaitFor-s.opts.Clock().Sub(began), time.Millisecond)
	}
	local := func(ctx context.Context) (*leasev1.AcquireResponse, error) {
		now := asked
		if asked.Wait {
			now.WaitFor, now.Waited = left(), waited()
		}
		grant, err := s.engine.Acquire(ctx, now)
		if err != nil {
			return nil, err
		}
		return acquired(asked.Name, &grant), nil
	}
	remote := func(ctx context.Context, owner leasev1.LeaseServiceClient) (*leasev1.AcquireResponse, error) {
		forward := proto.CloneOf(req)
		forward.RequestId, forward.Holder = asked.RequestID, asked.Holder
		if asked.Wait {
			forward.Wait = &leasev1.Wait{Waited: durationpb.New(waited())}
			if asked.WaitFor > 0 {
				forward.Wait.Timeout = durationpb.New(left())
			}
		}
		return owner.Acquire(ctx, forward)
	}
	if !asked.Wait {
		return at(ctx, s, who, asked.Name, local, remote)
	}
	ctx, cancel := s.streamContext(ctx)
	defer cancel()
	grant, err := at(ctx, s, who, asked.Name, local, remote)
	if err != nil && errors.Is(context.Cause(ctx), errStopping) {
		return nil, errStopping
	}
	return grant, err
}

// KeepAlive implements LeaseService.
func (s *Server) KeepAlive(ctx context.Context, req *leasev1.KeepAliveRequest) (*leasev1.KeepAliveResponse, error) {
	if err := checkHold(req.GetName(), req.GetToken()); err != nil {
		return nil, s.toError(err)
	}
	got, err := s.keepOne(ctx, s.callerOf(ctx), req)
	return got, s.toError(err)
}

func (s *Server) keepOne(ctx context.Context, who caller, req *leasev1.KeepAliveRequest) (*leasev1.KeepAliveResponse, error) {
	local := func(context.Context) (*leasev1.KeepAliveResponse, error) {
		kept, err := s.engine.KeepAlive(req.GetName(), req.GetToken())
		return keptResponse(&kept, err), err
	}
	return at(ctx, s, who, req.GetName(), local,
		func(ctx context.Context, owner leasev1.LeaseServiceClient) (*leasev1.KeepAliveResponse, error) {
			return owner.KeepAlive(ctx, req)
		})
}

// Release implements LeaseService.
func (s *Server) Release(ctx context.Context, req *leasev1.ReleaseRequest) (*leasev1.ReleaseResponse, error) {
	if err := checkHold(req.GetName(), req.GetToken()); err != nil {
		return nil, s.toError(err)
	}
	got, err := s.releaseFor(ctx, req, s.callerOf(ctx))
	return got, s.toError(err)
}

func (s *Server) releaseFor(ctx context.Context, req *leasev1.ReleaseRequest, who caller) (*leasev1.ReleaseResponse, error) {
	local := func(ctx context.Context) (*leasev1.ReleaseResponse, error) {
		result, err := s.engine.Release(ctx, req.GetName(), req.GetToken())
		if err != nil {
			return nil, err
		}
		return released(result), nil
	}
	return at(ctx, s, who, req.GetName(), local,
		func(ctx context.Context, owner leasev1.LeaseServiceClient) (*leasev1.ReleaseResponse, error) {
			return owner.Release(ctx, req)
		})
}

func released(r core.ReleaseResult) *leasev1.ReleaseResponse {
	out := &leasev1.ReleaseResponse{Released: r.Released}
	if r.Released {
		out.Revision = r.Revision
	}
	return out
}

// Get implements LeaseService.
func (s *Server) Get(ctx context.Context, req *leasev1.GetRequest) (*leasev1.GetResponse, error) {
	var c checker
	c.name(req.GetName())
	if err := c.err(); err != nil {
		return nil, s.toError(err)
	}
	got, err := s.getFor(ctx, req, s.callerOf(ctx))
	return got, s.toError(err)
}

func (s *Server) getFor(ctx context.Context, req *leasev1.GetRequest, who caller) (*leasev1.GetResponse, error) {
	local := func(ctx context.Context) (*leasev1.GetResponse, error) {
		view, err := s.engine.Get(ctx, req.GetName(), req.GetIncludeQueue())
		if err != nil {
			return nil, err
		}
		return &leasev1.GetResponse{Lease: lease(&view)}, nil
	}
	return at(ctx, s, who, req.GetName(), local,
		func(ctx context.Context, owner leasev1.LeaseServiceClient) (*leasev1.GetResponse, error) {
			return owner.Get(ctx, req)
		})
}

// CheckToken implements LeaseService.
func (s *Server) CheckToken(ctx context.Context, req *leasev1.CheckTokenRequest) (*leasev1.CheckTokenResponse, error) {
	if err := checkHold(req.GetName(), req.GetToken()); err != nil {
		return nil, s.toError(err)
	}
	local := func(ctx context.Context) (*leasev1.CheckTokenResponse, error) {
		check, err := s.engine.Check(ctx, req.GetName(), req.GetToken())
		if err != nil {
			return nil, err
		}
		out := &leasev1.CheckTokenResponse{Verdict: leasev1.CheckTokenResponse_VERDICT_STALE, CurrentToken: check.Newest}
		if check.Current {
			out.Verdict, out.ExpiresIn = leasev1.CheckTokenResponse_VERDICT_CURRENT, durationpb.New(check.ExpiresIn)
		}
		return out, nil
	}
	got, err := at(ctx, s, s.callerOf(ctx), req.GetName(), local,
		func(ctx context.Context, owner leasev1.LeaseServiceClient) (*leasev1.CheckTokenResponse, error) {
			return owner.CheckToken(ctx, req)
		})
	return got, s.toError(err)
}

// Watch implements LeaseService. Any replica can serve it: it reads the history of the store.
func (s *Server) Watch(req *leasev1.WatchRequest, stream grpc.ServerStreamingServer[leasev1.WatchResponse]) error {
	var target store.Target
	var c checker
	switch t := req.GetTarget().(type) {
	case *leasev1.WatchRequest_Name:
		target.Name = t.Name
		c.name(t.Name)
	case *leasev1.WatchRequest_Prefix:
		target.Prefix = t.Prefix
		c.prefix(t.Prefix)
	default:
		c.require(false, "target", "is not set; name or prefix is required")
	}
	c.require(req.GetAfterRevision() >= 0, "after_revision", "is %d; it must not be negative", req.GetAfterRevision())
	if err := c.err(); err != nil {
		return s.toError(err)
	}
	err := s.watch(stream.Context(), target, req.GetAfterRevision(), func(u store.Update) error {
		return stream.Send(watchResponse(u))
	})
	return err
}

// watch passes on updates until the caller or the server ends it, and returns a gRPC error.
func (s *Server) watch(ctx context.Context, target store.Target, after int64, pass func(store.Update) error) error {
	ctx, cancel := s.streamContext(ctx)
	defer cancel()
	shards := s.engine.Shards()
	for shards == 0 {
		changed := s.engine.Changed()
		select {
		case <-changed:
		case <-ctx.Done():
			return s.streamError(ctx, ctx.Err())
		}
		shards = s.engine.Shards()
	}
	return s.streamError(ctx, s.opts.Store.Watch(ctx, shards, target, after, pass))
}

func formatShards(shards []int) string {
	numbers := make([]string, len(shards))
	for i, shard := range shards {
		numbers[i] = strconv.Itoa(shard)
	}
	return strings.Join(numbers, ",")
}

func parseShards(list string) ([]int, error) {
	var shards []int
	for number := range strings.SplitSeq(list, ",") {
		shard, err := strconv.Atoi(number)
		if err != nil {
			return nil, &InvalidError{Violations: []Violation{{Field: shardsKey, Problem: "is no list of numbers"}}}
		}
		shards = append(shards, shard)
	}
	return shards, nil
}
