package leaseservice

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/certs"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
)

// recheck is the longest time between two looks at certificates. It is much shorter than any of them lives, so that a clock
// that was set, or a machine that slept, does no harm.
const recheck = time.Hour

// Issuer issues the certificates of LeaseServices. The zero value issues none.
type Issuer struct {
	// Seeds are what authorities are derived from, the present one first.
	Seeds [][]byte
	// Installation tells this operator from others.
	Installation string
	// Lifetime of a certificate.
	Lifetime time.Duration
}

// secured is what the operator keeps in memory of one LeaseService that speaks TLS.
type secured struct {
	authority *certs.Authority // nil unless the operator issues the certificates
	own       certs.Keys       // the operator's own certificate; nowhere else is it kept
	shown     *shown
}

// material is what gather finds out about the certificates of one LeaseService.
type material struct {
	desired.Certificates
	// Next is when they have to be looked at again. Zero: never.
	Next time.Time
	// Missing says what is wrong with a Secret that the spec refers to. Empty: nothing.
	Missing string
}

// certificates returns the certificates that the LeaseService should have: those that it has, as long as they are good. It
// writes nothing; what is new gets into effect with the children.
func (g *gatherer) certificates(ctx context.Context, reader client.Reader, ls *v1alpha1.LeaseService) (material, error) {
	var found material
	var err error
	if found.Missing, err = missing(ctx, reader, ls); err != nil {
		return found, err
	}
	mode, err := desired.TLSMode(ls, g.settings)
	if err != nil || mode == v1alpha1.TLSDisabled {
		return found, nil // decide tells of the error; there is nothing to issue
	}
	kept, err := g.securedOf(ls, mode)
	if err != nil {
		return found, err
	}
	if mode == v1alpha1.TLSProvided {
		data, err := secretData(ctx, reader, ls.Namespace, ls.Spec.TLS.SecretRef.Name)
		if err != nil {
			return found, err
		}
		kept.shown.set(desired.KeysOf(data), desired.ServerName(ls))
		return found, nil
	}
	now := g.clock.Now()
	found.Next = now.Add(recheck)
	renew := func(have certs.Keys, leaf certs.Leaf) (certs.Keys, error) {
		leaf.Lifetime = g.issuer.Lifetime
		keys, next, err := kept.authority.Renew(have, leaf, now)
		if next.Before(found.Next) {
			found.Next = next
		}
		return keys, err
	}
	for _, each := range []struct {
		secret string
		leaf   certs.Leaf
		keys   *certs.Keys
	}{
		{desired.ServerSecretName(ls), desired.ServerLeaf(ls), &found.Server},
		{desired.ClientSecretName(ls), desired.ClientLeaf(ls), &found.Client},
	} {
		data, err := secretData(ctx, reader, ls.Namespace, each.secret)
		if err != nil {
			return found, err
		}
		if *each.keys, err = renew(desired.KeysOf(data), each.leaf); err != nil {
			return found, fmt.Errorf("issue the certificate in Secret %s: %w", each.secret, err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if kept.own, err = renew(kept.own, desired.OperatorLeaf(ls)); err != nil {
		return found, fmt.Errorf("issue the operator's own certificate: %w", err)
	}
	kept.shown.set(kept.own, desired.ServerName(ls))
	return found, nil
}

// securedOf returns what is kept of a LeaseService. One whose mode changed begins anew.
func (g *gatherer) securedOf(ls *v1alpha1.LeaseService, mode v1alpha1.TLSMode) (*secured, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	kept, ok := g.secured[ls.UID]
	if !ok {
		kept = &secured{shown: &shown{}}
		g.secured[ls.UID] = kept
	}
	if mode == v1alpha1.TLSManaged && kept.authority == nil {
		authority, err := certs.NewAuthority(string(ls.UID), g.issuer.Seeds...)
		if err != nil {
			return nil, err
		}
		kept.authority = authority
	}
	return kept, nil
}

// shownTo returns what the operator shows to the pods of a LeaseService that speak TLS, or nil.
func (g *gatherer) shownTo(uid types.UID) credentials.TransportCredentials {
	g.mu.Lock()
	defer g.mu.Unlock()
	if kept, ok := g.secured[uid]; ok {
		return kept.shown
	}
	return nil
}

// missing says which Secret that the spec refers to is not there, or lacks a key. The first is told.
func missing(ctx context.Context, reader client.Reader, ls *v1alpha1.LeaseService) (string, error) {
	for _, reference := range desired.References(ls) {
		data, err := secretData(ctx, reader, ls.Namespace, reference.Name)
		if err != nil {
			return "", err
		}
		for _, key := range reference.Keys {
			if len(data[key]) == 0 {
				return fmt.Sprintf("%s: there is no Secret %s with the key %s", reference.Field, reference.Name, key), nil
			}
		}
	}
	return "", nil
}

// secretData returns the data of a Secret; nil, if there is none.
func secretData(ctx context.Context, reader client.Reader, namespace, name string) (map[string][]byte, error) {
	secret := &corev1.Secret{}
	switch err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, secret); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	return secret.Data, nil
}

// shown are the credentials of the connections to the pods of one LeaseService. Each handshake takes what was set last, so
// a certificate that was renewed needs no new connection and no new listener.
type shown struct {
	config atomic.Pointer[tls.Config]
}

// set takes keys into use. Keys that make no certificate are not used: the ones before may still do.
func (s *shown) set(keys certs.Keys, serverName string) {
	if config, err := keys.ClientTLS(serverName); err == nil {
		s.config.Store(config)
	}
}

var errNoCertificate = errors.New("the operator has no certificate to show")

// ClientHandshake implements credentials.TransportCredentials. Pods are connected to by their IPs, which are in no
// certificate: what a server must be is the LeaseService's.
func (s *shown) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config := s.config.Load()
	if config == nil {
		return nil, nil, errNoCertificate
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, config.ServerName, conn)
}

// ServerHandshake implements credentials.TransportCredentials.
func (*shown) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these are credentials of a client")
}

// Info implements credentials.TransportCredentials.
func (*shown) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials. What is set later is set for the clone too.
func (s *shown) Clone() credentials.TransportCredentials { return s }

// OverrideServerName implements credentials.TransportCredentials.
func (*shown) OverrideServerName(string) error {
	return errors.New("the server's name is that of the LeaseService")
}
