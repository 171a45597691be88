package server

import (
	"context"
	"fmt"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// replicaKey names, in the metadata of a call that a client sends to an address of the shard map, the session of the
// replica it is for.
const replicaKey = "holdfast-replica"

// addressedUnary refuses calls that are for another replica. They were sent to an address that has come to be ours, or
// that means us only in the network of the client; answering could grant what another service has granted.
func addressedUnary(eng *engine.Engine) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if err := checkAddressed(ctx, eng); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
}

func addressedStream(eng *engine.Engine) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if err := checkAddressed(stream.Context(), eng); err != nil {
			return err
		}
		return handler(srv, stream)
	}
}

func checkAddressed(ctx context.Context, eng *engine.Engine) error {
	wanted := first(metadata.ValueFromIncomingContext(ctx, replicaKey))
	if wanted == "" || wanted == strconv.FormatInt(int64(eng.Session()), 10) {
		return nil
	}
	return rich(codes.Unavailable, leasev1.ErrorReason_ERROR_REASON_NOT_OWNER,
		fmt.Errorf("this is not the replica with the session %q", wanted), nil, retryInfo(retrySoon))
}
