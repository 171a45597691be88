package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/holdfast-io/holdfast/operator/internal/lease/tokenreview"
	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
)

// Access says who may call. With the zero value everybody may.
type Access struct {
	// Review tells whose a bearer token is; nil: tokens are not looked at.
	Review func(ctx context.Context, token string) (string, error)
	// Allowed are the identities that may call, each exact, or up to a * at its end; none: every one that is authenticated.
	Allowed []string
}

func (a *Access) open() bool { return a.Review == nil && len(a.Allowed) == 0 }

func (a *Access) allows(identity string) bool {
	for _, pattern := range a.Allowed {
		if prefix, ok := strings.CutSuffix(pattern, "*"); (ok && strings.HasPrefix(identity, prefix)) || pattern == identity {
			return true
		}
	}
	return len(a.Allowed) == 0
}

// accessError says that somebody may not call.
type accessError struct {
	code    codes.Code
	problem string
}

func (e *accessError) Error() string { return e.problem }

// identityCtx is the context key of an identity that authenticate has found.
type identityCtx struct{}

// certIdentity returns who the caller's certificate is for; empty: it showed none that could be verified. secure says that it
// called over TLS.
func certIdentity(ctx context.Context) (identity string, secure bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", false
	}
	info, secure := p.AuthInfo.(credentials.TLSInfo)
	if !secure || len(info.State.VerifiedChains) == 0 {
		return "", secure
	}
	return leasetls.Identity(info.State.VerifiedChains[0][0]), true
}

// authenticate finds out who calls, by the token if there is one and else by the certificate, and whether it may. Other replicas are known by
// their certificate, and have done that for those whose calls they pass on.
func (s *Server) authenticate(ctx context.Context) (context.Context, error) {
	identity, _ := certIdentity(ctx)
	if s.isPeer(identity) {
		return ctx, nil
	}
	if token := bearer(ctx); token != "" && s.opts.Access.Review != nil {
		var err error
		identity, err = s.opts.Access.Review(ctx, token)
		if errors.Is(err, tokenreview.ErrRefused) {
			return nil, &accessError{code: codes.Unauthenticated, problem: err.Error()}
		}
		if err != nil {
			s.opts.Log.Warn("a token cannot be reviewed", "error", err)
			return nil, &accessError{code: codes.Unavailable, problem: "tokens cannot be reviewed at the moment"}
		}
	}
	if identity == "" {
		return nil, &accessError{code: codes.Unauthenticated, problem: "this service needs a client certificate or a bearer token"}
	}
	if !s.opts.Access.allows(identity) {
		return nil, &accessError{code: codes.PermissionDenied, problem: fmt.Sprintf("%q may not use this service", identity)}
	}
	return context.WithValue(ctx, identityCtx{}, identity), nil
}

func bearer(ctx context.Context) string {
	for _, value := range metadata.ValueFromIncomingContext(ctx, "authorization") {
		if scheme, token, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "bearer") {
			return strings.TrimSpace(token)
		}
	}
	return ""
}

// open says whether a method needs no authentication: that of the health service, so that load balancers can probe.
func openMethod(method string) bool {
	return strings.HasPrefix(method, "/"+healthpb.Health_ServiceDesc.ServiceName+"/")
}

func (s *Server) authenticateUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if !s.opts.Access.open() && !openMethod(info.FullMethod) {
		var err error
		if ctx, err = s.authenticate(ctx); err != nil {
			return nil, s.toError(err)
		}
	}
	return handler(ctx, req)
}

func (s *Server) authenticateStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if s.opts.Access.open() || openMethod(info.FullMethod) {
		return handler(srv, stream)
	}
	ctx, err := s.authenticate(stream.Context())
	if err != nil {
		return s.toError(err)
	}
	return handler(srv, &authenticatedStream{ServerStream: stream, ctx: ctx})
}

type authenticatedStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // it is the stream's
}

// Context implements grpc.ServerStream.
func (s *authenticatedStream) Context() context.Context { return s.ctx }
