package server

import (
	"context"
	"crypto/x509"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

const (
	// forwardedKey marks a call that another replica passed on. Such a call is never passed on again, so
	// that replicas that disagree about an owner cannot send it in circles.
	forwardedKey = "holdfast-forwarded"
	// callerKey carries the label of the caller of a forwarded call.
	callerKey = "holdfast-caller"
	// shardsKey says which shards a forwarded List is about.
	shardsKey = "holdfast-shards"
	// ownerKey tells a client, in the header of an answer, which replica it might have asked directly.
	ownerKey = "holdfast-owner"
)

// caller is who makes a call.
type caller struct {
	// identity is authenticated, by a client certificate; empty without one.
	identity string
	// address is where the call comes from.
	address   string
	forwarded bool
	shards    string
}

func (c caller) label() string {
	if c.identity != "" {
		return c.identity
	}
	return c.address
}

func callerOf(ctx context.Context) caller {
	var c caller
	if p, ok := peer.FromContext(ctx); ok {
		c.address = p.Addr.String()
		if tls, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(tls.State.VerifiedChains) > 0 {
			c.identity = certificateIdentity(tls.State.VerifiedChains[0][0])
		}
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if c.forwarded = len(md.Get(forwardedKey)) > 0; c.forwarded {
		if label := md.Get(callerKey); len(label) > 0 {
			c.address = label[0]
		}
		if shards := md.Get(shardsKey); len(shards) > 0 {
			c.shards = shards[0]
		}
	}
	return c
}

// certificateIdentity is a certificate's URI (SPIFFE), else its first DNS name, else its common name.
func certificateIdentity(cert *x509.Certificate) string {
	switch {
	case len(cert.URIs) > 0:
		return cert.URIs[0].String()
	case len(cert.DNSNames) > 0:
		return cert.DNSNames[0]
	}
	return cert.Subject.CommonName
}
