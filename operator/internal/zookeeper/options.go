package zookeeper

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// Options tune a Pool. The zero value is good.
type Options struct {
	// SessionTimeout is what is asked of the server, which may grant less or more. Zero: 10 s.
	SessionTimeout time.Duration
	// RequestTimeout bounds one request, the wait for a session included. Zero: 5 s.
	RequestTimeout time.Duration
	// DialTimeout bounds an attempt to connect, TLS included, and then the wait for the session. Zero: 2 s.
	DialTimeout time.Duration
	// BreakerFailures is the number of failures in a row that opens the breaker. Zero: 5.
	BreakerFailures uint32
	// MaxBackoff is the longest wait between attempts to connect and between probes. Zero: 2 s.
	MaxBackoff time.Duration
	// IdleTimeout is how long a session is kept that watches nothing. Zero: 1 minute.
	IdleTimeout time.Duration
	// AuditInterval is how often all that is watched is compared with the server: no watch of ZooKeeper fires on a
	// change of an access control list. Zero: 30 s. Negative: never.
	AuditInterval time.Duration
	// MaxInFlight is the number of requests of a session that wait for an answer at a time. Zero: 512.
	MaxInFlight int
	// MaxSessions is the number of sessions at a time: whoever may write an object may name an ensemble and a credential, and
	// each pair of them is a session. The operator's own is admitted beyond. Zero: 256.
	MaxSessions int
	// Log takes one line an event. Nil: nothing is logged.
	Log *slog.Logger
	// Metrics counts. Nil: nothing is counted.
	Metrics *Metrics
}

func (o Options) withDefaults() Options {
	set := func(value *time.Duration, fallback time.Duration) {
		if *value == 0 {
			*value = fallback
		}
	}
	set(&o.SessionTimeout, 10*time.Second)
	set(&o.RequestTimeout, 5*time.Second)
	set(&o.DialTimeout, 2*time.Second)
	set(&o.MaxBackoff, 2*time.Second)
	set(&o.IdleTimeout, time.Minute)
	set(&o.AuditInterval, 30*time.Second)
	if o.BreakerFailures == 0 {
		o.BreakerFailures = 5
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = 512
	}
	if o.MaxSessions == 0 {
		o.MaxSessions = 256
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Credential is what a session shows to the servers. The zero value shows nothing.
type Credential = zktypes.Credential

// Target is an ensemble and how to speak to it. Targets that differ in nothing but their chroot share a session.
type Target struct {
	// Connect names the servers, and the chroot.
	Connect zktypes.ConnectString
	// Credential of the session.
	Credential Credential
	// TLS is nil for plain TCP.
	TLS *TLS
	// Own tells that the target is the operator's own, which has a session however many others there are.
	Own bool
}

// TLS are the PEM blocks of a TLS connection.
type TLS = zktypes.TLS

// Key identifies the session of a target. It holds no secret: the credential is hashed.
func (t Target) Key() string {
	c := t.Credential
	return t.Connect.Ensemble() + "#" + hashOf(append([]string{c.User, c.Password, c.PreviousUser, c.PreviousPassword}, t.TLS.Parts()...))
}

// ensembleKey identifies what sessions share a breaker: the servers, and the TLS settings, for with settings that are wrong no
// connection stands, whoever makes it, and that says nothing about connections with others.
func (t Target) ensembleKey() string { return t.Connect.Ensemble() + "#" + hashOf(t.TLS.Parts()) }

// hashOf is a short hash of a list.
func hashOf(parts []string) string {
	hash := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(hash, "%d:%s,", len(part), part)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

// Identities are what the servers take a session with this target for: the ids that its access control entries can
// name. An x509 identity is not among them, since it depends on how the server reads certificates.
func (t Target) Identities() []zktypes.ACL { return t.Credential.Identities() }
