package server

import (
	"context"
	"net"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

const (
	// forwardedKey marks a call that another replica passed on. Such a call is never passed on again, whoever says so, so
	// that replicas that disagree about an owner, or cannot prove who they are, cannot send it in circles.
	forwardedKey = "holdfast-forwarded"
	// callerKey and identityKey carry the address and the identity of the caller of a forwarded call.
	callerKey   = "holdfast-caller"
	identityKey = "holdfast-identity-bin"
	// shardsKey says which shards a forwarded List is about.
	shardsKey = "holdfast-shards"
	// ownerKey tells a client, in the header of an answer, which replica it might have asked directly.
	ownerKey = "holdfast-owner"
)

// caller is who makes a call.
type caller struct {
	// identity is authenticated, by a client certificate or a token; empty without.
	identity string
	// peer is where the call comes from, and address what another replica says of that; see from.
	peer      net.Addr
	address   string
	forwarded bool
	// relayed says that another replica makes the call for somebody else, and has checked what that one says.
	relayed bool
	shards  string
}

func (c caller) label() string {
	if c.identity != "" {
		return c.identity
	}
	return c.from()
}

// from is where the call comes from. Most calls do not need the text, which is why it is not made before.
func (c caller) from() string {
	if c.address == "" && c.peer != nil {
		return c.peer.String()
	}
	return c.address
}

// callerOf tells who makes a call. What a forwarded call says about its first caller is believed only from another
// replica: with TLS, one whose certificate is for the same identity as ours.
func (s *Server) callerOf(ctx context.Context) caller {
	var c caller
	if p, ok := peer.FromContext(ctx); ok {
		c.peer = p.Addr
	}
	if len(metadata.ValueFromIncomingContext(ctx, forwardedKey)) > 0 {
		c.forwarded, c.shards = true, first(metadata.ValueFromIncomingContext(ctx, shardsKey))
	}
	if identity, ok := ctx.Value(identityCtx{}).(string); ok {
		c.identity = identity // no replica, whatever its name
		return c
	}
	var secure bool
	c.identity, secure = certIdentity(ctx)
	if !c.forwarded || (secure && !s.isPeer(c.identity)) {
		return c
	}
	c.relayed, c.identity = true, first(metadata.ValueFromIncomingContext(ctx, identityKey))
	if label := first(metadata.ValueFromIncomingContext(ctx, callerKey)); label != "" {
		c.address = label
	}
	return c
}

func (s *Server) isPeer(identity string) bool {
	return identity != "" && s.opts.Identity != nil && identity == s.opts.Identity()
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
